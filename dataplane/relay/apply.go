package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// ErrIdle tells that a row is not taken in because the relay leads no shard, or has not begun to read.
var ErrIdle = errors.New("relay: leads no shard")

// Apply applies a row of another region that did not come through Feed, as if it had been read
// there: each count becomes the maximum of the known count and the row's. The cursor of the row's
// stream does not move, so the relay also reads the row from Feed. Apply may receive rows several
// times, in any order, or not at all.
//
// Apply uses the row's Stream and Payload. It applies nothing and returns an error that wraps
// store.ErrRefused if
//
//   - the row is of the relay's own region;
//   - the payload is too long or cannot be decoded to its end;
//   - the payload names a window that has not begun anywhere;
//   - the payload refers to a cell by number, because numbers only have a meaning within stored rows.
//
// It leaves out malformed counts. See ErrIdle for the error of a relay that leads no shard. Apply
// does no I/O, keeps no reference to the row, and may be called concurrently; rows are merged one
// at a time.
func (r *Relay) Apply(row store.FeedRow) error {
	now := r.cfg.Clock()
	if !r.leads(now) {
		return ErrIdle
	}
	originMs := r.originMs()
	if originMs == 0 {
		return ErrIdle
	}
	if err := r.checkReceived(&row, originMs); err != nil {
		return err
	}
	if !r.reader.applyReceived(&row, now) {
		return ErrIdle
	}
	r.metrics.received.add(len(row.Payload))
	r.reader.wake()
	return nil
}

// originMs is the latest of the times that the origin's shards have answered; 0 before the first.
func (r *Relay) originMs() (latest int64) {
	for _, s := range r.shards {
		latest = max(latest, s.book.clockMs())
	}
	return latest
}

// checkReceived reads a row to its end before anything of it is merged.
func (r *Relay) checkReceived(row *store.FeedRow, originMs int64) error {
	if err := row.Stream.Validate(); err != nil {
		return err
	}
	if row.Region == r.cfg.Region {
		return fmt.Errorf("%w: region is %q, the relay's own", store.ErrRefused, row.Region)
	}
	var broken error
	_, _, err := decodeBlocks(row.Payload, func(of *window.Cell, counts []entry) {
		for _, e := range counts {
			if e.number != 0 {
				broken = fmt.Errorf("a count has the number %d, and counts in rows from a peer have none", e.number)
			}
		}
		if at := of.ExpiresAtMs(); len(counts) > 0 && isEarly(at, of.Duration, originMs) {
			broken = fmt.Errorf("a cell expires at %d ms (at most %d)", at, originMs+aheadMax(of.Duration))
		}
	})
	if err := errors.Join(err, broken); err != nil {
		return fmt.Errorf("%w: payload of %v: %w", store.ErrRefused, row.Stream, err)
	}
	return nil
}

// aheadMax is how far ahead the expiry of a cell can be: that of the one that begins next, by a clock that is ahead.
func aheadMax(duration time.Duration) int64 { return (3*duration + keptFor).Milliseconds() }

// isEarly tells whether a cell's window has not begun anywhere, by an origin's clock.
func isEarly(expiresMs int64, duration time.Duration, originMs int64) bool {
	return expiresMs > originMs+aheadMax(duration)
}

// applyReceived merges a row unless the reader has ended, and with it all that it held.
func (r *reader) applyReceived(row *store.FeedRow, now time.Time) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		left, _, _ := r.merge(row, now) // it was checked
		r.relay.noteLeftOut(row, left, now)
	}
	return r.open
}

// Lost returns how often the relay has forgotten the rows that it received, because it lost its
// lease. A peer whose stream was opened before the last loss must repeat all counts that it has
// sent: see Handed.
func (r *Relay) Lost() int {
	r.reader.mu.Lock()
	defer r.reader.mu.Unlock()
	return r.reader.lost
}

func (r *reader) setOpen(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open && !open {
		r.lost++
	}
	r.open = open
}
