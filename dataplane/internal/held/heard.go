package held

import (
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	heardFor = 20 * time.Millisecond // how long a refusal lets the node refuse other requests by itself
	heardMax = 10_000                // most cells
)

// heard is the count of a cell when the origin refused a reservation.
type heard struct {
	used, before int64 // as in store.HoldAnswer
	untilMs      int64
}

// refusals are the counts of cells at which the origin has just refused reservations. The zero value is ready to use.
// All methods may be called concurrently.
type refusals struct {
	mu    sync.Mutex
	heard map[window.Cell]heard
}

// add records the counts of the holds' cells from the answers to a refused call.
func (all *refusals) add(holds []store.Hold, answers []store.HoldAnswer, nowMs int64) {
	untilMs := nowMs + heardFor.Milliseconds()
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.heard == nil || len(all.heard) >= heardMax {
		all.heard = make(map[window.Cell]heard)
	}
	for i := range holds {
		a, cell := &answers[i], holds[i].Cell
		again := slices.ContainsFunc(holds[:i], func(h store.Hold) bool { return h.Cell == cell })
		if !again && a.Total.Err == nil { // a second answer about the same cell includes the first hold
			all.heard[cell] = heard{a.Used, a.UsedBefore, untilMs}
		}
	}
}

// forget forgets the counts of cells that have changed.
func (all *refusals) forget(holds []store.Hold) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range holds {
		delete(all.heard, holds[i].Cell)
	}
}

// answers returns the answers that the origin would give to a request for new holds, if it has just refused holds on
// the same cells and the new holds do not fit into the counts of that answer either. So a flood of such requests does
// not reach the origin. It returns nil if the origin must be called. It does not include reservations that other nodes
// have made: see existing.
func (all *refusals) answers(holds []store.Hold, nowMs int64) []store.HoldAnswer {
	all.mu.Lock()
	defer all.mu.Unlock()
	answers, refused := make([]store.HoldAnswer, len(holds)), false
	for i := range holds {
		h, a := &holds[i], &answers[i]
		was, ok := all.heard[h.Cell]
		if !ok || was.untilMs <= nowMs || was.untilMs > nowMs+heardFor.Milliseconds() {
			return nil
		}
		for j := range i {
			if holds[j].Cell == h.Cell && answers[j].Fits {
				was.used += holds[j].Amount
			}
		}
		a.Used, a.UsedBefore = was.used, was.before
		durationMs := h.Cell.DurationMs()
		uncovered := min(max(0, window.Start(h.Cell.Sequence+1, durationMs)-nowMs), durationMs)
		if h.Precise { // UsedBefore is without the cost that had left the window
			uncovered = durationMs
		}
		a.Fits = window.Fits(a.Used, a.UsedBefore, h.Amount, h.Limit, uncovered, durationMs)
		refused = refused || !a.Fits
	}
	if !refused {
		return nil
	}
	return answers
}
