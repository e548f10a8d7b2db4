package store

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// ErrNoSettings is an origin's answer while no relay has told it any settings: what a node has stays in force.
var ErrNoSettings = errors.New("origin: no relay has sent it settings yet")

// ErrNoLease is an origin's answer to settings of a relay that does not have the shard's lease.
var ErrNoLease = errors.New("origin: the relay does not have the shard's lease")

const (
	// WaitingHeartbeatsMax is how many nodes' heartbeats a shard keeps for its relay; those of further nodes are refused.
	WaitingHeartbeatsMax = 10_000

	// HeartbeatBytesMax is how long a heartbeat may be in the form in which an origin keeps it.
	HeartbeatBytesMax = 128 << 10
)

// Mailbox is the part of an Origin that carries what operators have set to the nodes, and the nodes' heartbeats back.
// Nodes call Settings and Heartbeat, and need no connection to the fleet's store for either. The region's relay, which
// has that connection, calls the other three methods for each shard that it relays. A Mailbox must therefore be Relayed
// as well: StoreSettings depends on the shard's lease.
//
// Each shard has its own copy of the settings, and its own heartbeats. Settings and Heartbeat use the shard that
// answered last, or another shard if that one fails, so either may go to any shard.
//
// Without it, nodes take their settings from dataplane.Config.Settings, such as a file. If that is nil too, they use
// the defaults, and send no heartbeats. Set dataplane.Config.RegionNodes then, because no heartbeat counts the nodes.
//
// All methods may be called concurrently, must obey ctx's deadline and must not retry.
type Mailbox interface {
	// Settings returns the rows that a relay has stored last in any shard, of whatever region they are, or
	// ErrNoSettings. Callers must not change the rows: the origin keeps them, so that the same rows need not be sent
	// again.
	//
	// Heartbeat keeps the heartbeats for the relay: see Heartbeats.
	Settings

	// StoreSettings replaces a shard's copy of the region's settings with rows that were just read, or just found to be
	// unchanged. Unless holder has the shard's lease it changes nothing, and returns ErrNoLease: what a relay has read
	// and tells late does not replace what its successor has told. Telling the same rows again costs next to nothing,
	// makes the copy as young, and renews the trial. The copy stays for a week after it was told last.
	//
	// Its age and Trial.Left count from asOf by the shard's clock (see Changes.Now), whenever the call comes: one that is
	// late lengthens no trial. The zero time, or one that is not yet, is the moment at which it comes. Age of the rows
	// is not heeded.
	StoreSettings(ctx context.Context, shard int, holder string, rows SettingsRows, asOf time.Time) error

	// Heartbeats returns at most max heartbeats that a shard has received and that were not acked, longest waiting
	// first. A node has one, its last, with its Age; it is dropped after NodeLiveFor.
	Heartbeats(ctx context.Context, shard, max int) ([]StoredHeartbeat, error)

	// AckHeartbeats drops heartbeats, each unless its node has sent another one since.
	AckHeartbeats(ctx context.Context, shard int, beats []StoredHeartbeat) error
}

// StoredHeartbeat is a heartbeat on its way to the store. Its Top is the newest that the node has sent since the last
// ack.
type StoredHeartbeat struct {
	heartbeat.Heartbeat
	Mark int64 // the origin's: tells two heartbeats of one node apart
}
