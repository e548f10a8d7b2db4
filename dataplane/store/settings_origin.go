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
	// BeatsMax is how many nodes' heartbeats a shard keeps for its relay; those of further nodes are refused.
	BeatsMax = 10_000

	// BeatBytesMax is how long a heartbeat may be in the form in which an origin keeps it.
	BeatBytesMax = 128 << 10
)

// SettingsRelay is an origin's part in carrying settings to nodes, and heartbeats back. Each shard has a copy of the
// settings and heartbeats of its own. Origin.Settings and Origin.Heartbeat use the shard that answered last, and
// another one where that fails, so any shard will do for either.
type SettingsRelay interface {
	// StoreSettings replaces a shard's copy of the region's settings with rows that were just read, or just found to be
	// unchanged. Unless holder has the shard's lease it changes nothing, and returns ErrNoLease: what a relay has read
	// and tells late does not replace what its successor has told. Telling the same rows again costs next to nothing,
	// makes the copy as young, and renews the trial. The copy stays for a week after it was told last.
	//
	// Its age and Trial.Left count from asOf by the shard's clock (see Changes.Now), whenever the call comes: one that is
	// late lengthens no trial. The zero time, or one that is not yet, is the moment at which it comes. Age of the rows
	// is not heeded.
	StoreSettings(ctx context.Context, shard int, holder string, rows SettingsRows, asOf time.Time) error

	// Beats returns heartbeats that a shard has received and that are not Stored, at most max, longest waiting first. A
	// node has one, its last, with its Age; it is dropped after NodeLiveFor.
	Beats(ctx context.Context, shard, max int) ([]KeptBeat, error)

	// Stored drops heartbeats, each unless its node has sent another one since.
	Stored(ctx context.Context, shard int, beats []KeptBeat) error
}

// KeptBeat is a heartbeat on its way to the store. Its Top is the newest that the node has sent since one was Stored.
type KeptBeat struct {
	heartbeat.Beat
	Mark int64 // the origin's: tells two heartbeats of one node apart
}
