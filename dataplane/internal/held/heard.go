package held

import (
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	heardFor = 20 * time.Millisecond // for which a refusal refuses others by itself
	heardMax = 10_000                // cells
)

// heard is what a cell counted when the origin refused a reservation.
type heard struct {
	used, before int64 // as store.HoldAnswer has them
	untilMs      int64
}

// refused takes note of what the cells of words count beside them, as the origin has answered.
func (s *There) refused(words []store.Hold, answers []store.HoldAnswer) {
	untilMs := s.NowMs() + heardFor.Milliseconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil || len(s.heard) >= heardMax {
		s.heard = make(map[window.Cell]heard)
	}
	for i := range words {
		a := &answers[i]
		if _, several := s.heard[words[i].Cell]; several || a.Total.Err != nil || a.Late {
			continue
		}
		h := heard{a.Used, a.UsedBefore, untilMs}
		if a.Granted {
			h.used -= words[i].Cost
		}
		s.heard[words[i].Cell] = h
	}
}

// unhear forgets what cells counted: words were said about them since.
func (s *There) unhear(words []store.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range words {
		delete(s.heard, words[i].Cell)
	}
}

// refusal returns the answers that the origin would give to a request for new holds, if it has just
// refused holds on the same cells and these do not fit into the counts of that answer either. So a
// flood of such requests does not reach the origin. It returns nil if the origin must be asked. It
// does not know reservations that other nodes have made: see existing.
func (s *There) refusal(id string, words []store.Hold) []store.HoldAnswer {
	nowMs := s.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[id] != nil {
		return nil // it is reserved already
	}
	answers, refused := make([]store.HoldAnswer, len(words)), false
	for i := range words {
		w, a := &words[i], &answers[i]
		h, ok := s.heard[w.Cell]
		if !ok || h.untilMs <= nowMs || h.untilMs > nowMs+heardFor.Milliseconds() {
			return nil
		}
		for j := range i {
			if words[j].Cell == w.Cell && answers[j].Granted {
				h.used = answers[j].Used
			}
		}
		a.Used, a.UsedBefore = h.used, h.before
		durationMs := w.Cell.DurationMs()
		uncovered := min(max(0, window.Start(w.Cell.Sequence+1, durationMs)-nowMs), durationMs)
		if a.Granted = window.Fits(h.used, h.before, w.Cost, w.Limit, uncovered, durationMs); a.Granted {
			a.Used += w.Cost
		}
		refused = refused || !a.Granted
	}
	if !refused {
		return nil
	}
	return answers
}
