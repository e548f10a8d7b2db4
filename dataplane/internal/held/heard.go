package held

import (
	"slices"
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

// refused records the counts of the holds' cells from the answers to a refused call.
func (s *Reservations) refused(holds []store.Hold, answers []store.HoldAnswer) {
	if s.Near {
		return
	}
	untilMs := s.NowMs() + heardFor.Milliseconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil || len(s.heard) >= heardMax {
		s.heard = make(map[window.Cell]heard)
	}
	for i := range holds {
		a, cell := &answers[i], holds[i].Cell
		again := slices.ContainsFunc(holds[:i], func(h store.Hold) bool { return h.Cell == cell })
		if !again && a.Total.Err == nil { // a second answer about the same cell includes the first hold
			s.heard[cell] = heard{a.Used, a.UsedBefore, untilMs}
		}
	}
}

// unhear forgets the counts of cells that have changed.
func (s *Reservations) unhear(holds []store.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range holds {
		delete(s.heard, holds[i].Cell)
	}
}

// refusal returns the answers that the origin would give to a request for new holds, if it has just refused holds on
// the same cells and the new holds do not fit into the counts of that answer either. So a flood of such requests does
// not reach the origin. It returns nil if the origin must be called. It does not include reservations that other nodes
// have made: see existing.
func (s *Reservations) refusal(id string, holds []store.Hold) []store.HoldAnswer {
	if s.Near {
		return nil
	}
	nowMs := s.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[id] != nil {
		return nil // the ID is reserved already
	}
	answers, refused := make([]store.HoldAnswer, len(holds)), false
	for i := range holds {
		h, a := &holds[i], &answers[i]
		was, ok := s.heard[h.Cell]
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
