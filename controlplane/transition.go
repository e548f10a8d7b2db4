package controlplane

import (
	"slices"
	"time"
)

// EventsMax bounds the history of a document.
const EventsMax = 200

// Transitions is a part of the documents rollout.Rollout and retire.Retirement: the number of the newest transition,
// the timer of the next one, and the history.
type Transitions struct {
	// Epoch is the number of the newest transition. A timer of an earlier transition is stale, and does nothing.
	Epoch int64 `json:"epoch"`

	TimerMs int64 `json:"timer_ms,omitempty"` // when the timer of the next transition is due; 0: there is none

	Events []Event `json:"events,omitempty"` // oldest first, the newest EventsMax
}

// Event is a line of a history.
type Event struct {
	AtMs  int64  `json:"at_ms"`
	Actor string `json:"actor"`
	What  string `json:"what"`
	Text  string `json:"text,omitempty"`
}

// IsCurrent reports whether a timer belongs to the newest transition.
func (t *Transitions) IsCurrent(epoch int64) bool { return epoch == t.Epoch }

// EndTransition ends a transition. Earlier timers are stale from now on, and the next transition is due after wait. If
// wait is negative, there is no next transition.
func (t *Transitions) EndTransition(nowMs int64, wait time.Duration) {
	t.Epoch++
	t.TimerMs = 0
	if wait >= 0 {
		t.TimerMs = nowMs + wait.Milliseconds()
	}
}

// OverdueBy reports whether the timer is overdue by more than grace: then its process was killed or has given up.
func (t *Transitions) OverdueBy(nowMs int64, grace time.Duration) bool {
	return nowMs > t.TimerMs+grace.Milliseconds()
}

// AddEvent adds a line to the history, and drops the oldest beyond EventsMax.
func (t *Transitions) AddEvent(nowMs int64, actor, what, words string) {
	t.Events = append(t.Events, Event{AtMs: nowMs, Actor: actor, What: what, Text: Shorten(words, ReasonBytesMax)})
	if extra := len(t.Events) - EventsMax; extra > 0 {
		t.Events = slices.Delete(t.Events, 0, extra)
	}
}
