package store

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// ErrNoSettings is returned by an origin to which no relay has sent settings yet: a node then keeps its settings.
var ErrNoSettings = errors.New("origin: no relay has sent it settings yet")

// ErrNoLease is returned for settings from a relay that does not have the shard's lease.
var ErrNoLease = errors.New("origin: the relay does not have the shard's lease")

const (
	// WaitingHeartbeatsMax is the highest number of nodes whose heartbeats a shard keeps for its relay. It refuses
	// heartbeats of further nodes.
	WaitingHeartbeatsMax = 10_000

	// HeartbeatBytesMax is the length of the longest heartbeat in the form in which an origin keeps it.
	HeartbeatBytesMax = 128 << 10
)

// Mailbox is the part of an Origin that carries the operators' settings to the nodes, and the nodes' heartbeats back.
// Nodes call Settings and Heartbeat, and need no connection to the fleet's store for either. The region's relay,
// which has that connection, calls the other three methods for each shard that it relays. A Mailbox must therefore be
// Relayed as well: StoreSettings depends on the shard's lease.
//
// Each shard has its own copy of the settings, and its own heartbeats. Settings and Heartbeat use the shard that
// answered last, or another shard if that shard fails, so either may go to any shard.
//
// Without it, nodes take their settings from dataplane.Config.Settings, such as a file. If that is nil too, they use
// the defaults, and send no heartbeats. Then you should set dataplane.Config.RegionNodes, because no heartbeat counts
// the nodes.
//
// All methods must be safe to call concurrently, obey ctx's deadline and never retry.
type Mailbox interface {
	// Settings returns the rows that a relay has stored last in any shard, for whatever region, or ErrNoSettings.
	// Callers must not change the rows: the origin keeps them, so that the same rows need not be sent again.
	//
	// Heartbeat keeps the heartbeats for the relay: see Heartbeats.
	Settings

	// StoreSettings replaces a shard's copy of the region's settings with rows that were just read, or just found to be
	// unchanged. If holder does not have the shard's lease, it changes nothing, and returns ErrNoLease. So a late call
	// of an old relay does not replace the settings that its successor has sent. Sending the same rows again costs next
	// to nothing, refreshes the copy's age, and renews the trial. The copy stays for a week after it was last sent.
	//
	// The age of the rows and Trial.Left count from asOf by the shard's clock (see Changes.Now), whenever the call
	// arrives: a late call lengthens no trial. The zero time, or a time in the future, means the arrival of the call.
	// StoreSettings ignores the Age of the rows.
	StoreSettings(ctx context.Context, shard int, holder string, rows SettingsRows, asOf time.Time) error

	// Heartbeats returns at most max heartbeats that a shard has received and that were not acked, longest waiting
	// first. A node has only its last heartbeat, with its Age; it is dropped after NodeLiveFor.
	Heartbeats(ctx context.Context, shard, max int) ([]StoredHeartbeat, error)

	// AckHeartbeats drops heartbeats, each unless its node has sent a newer heartbeat since.
	AckHeartbeats(ctx context.Context, shard int, beats []StoredHeartbeat) error
}

// StoredHeartbeat is a heartbeat on its way to the store. Its Top is the newest Top that the node has sent since the
// last ack.
type StoredHeartbeat struct {
	heartbeat.Heartbeat
	Mark int64 // set by the origin: it distinguishes two heartbeats of one node
}
