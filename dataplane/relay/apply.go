package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// ErrIdle is returned by Apply if the relay leads no shard, or has not begun to read the change feed. The row is then
// not applied. The peer should send its counts again later: see Handed.
var ErrIdle = errors.New("relay: leads no shard")

// Apply applies a row of another region that did not come through Feed, as if it had been read there: each count
// becomes the maximum of the book's count and the row's. The cursor of the row's stream does not move, so the relay
// also reads the row from Feed. Apply may receive rows several times, in any order, or not at all.
//
// Apply uses the row's Stream and Payload. It applies nothing and returns an error that wraps store.ErrRefused if
//
//   - the row belongs to the relay's own region;
//   - the payload is too long or cannot be decoded to its end;
//   - the payload names a window that has not begun anywhere;
//   - the payload refers to a cell by number, because numbers only have a meaning within stored rows.
//
// It leaves out malformed counts. See ErrIdle for the error of a relay that leads no shard. Apply does no I/O, keeps no
// reference to the row, and may be called concurrently; rows are merged in turn.
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

// originMs returns the latest time that a shard of the origin has answered, or 0 before the first answer.
func (r *Relay) originMs() (latest int64) {
	for _, s := range r.shards {
		latest = max(latest, s.book.clock.ms())
	}
	return latest
}

// checkReceived decodes a row to its end before any of its counts are merged.
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

// aheadMax returns how far ahead of the origin's clock the expiry of a cell can be. The latest cell is the cell that
// begins next, by a clock that is ahead: see store.Ahead.
func aheadMax(duration time.Duration) int64 {
	return (2*duration + min(duration, store.AheadMax) + keptFor).Milliseconds()
}

// isEarly reports whether a cell's window has not begun anywhere, by an origin's clock.
func isEarly(expiresMs int64, duration time.Duration, originMs int64) bool {
	return expiresMs > originMs+aheadMax(duration)
}

// applyReceived merges a row, unless the reader was closed and has forgotten its counts. It reports whether the reader
// is open.
func (r *reader) applyReceived(row *store.FeedRow, now time.Time) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		left, _, _ := r.merge(row, now) // checkReceived has decoded the row without an error
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
