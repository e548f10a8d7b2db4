package handlers

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	stateVersion = 1
	historyMax   = 20

	intervalMin = 100 * time.Millisecond
	intervalMax = 24 * time.Hour
	turnMax     = 2 * time.Minute // how long a run under way can make a tick wait
)

// State is the whole state of a job's object as one document under a single key, so it is stored and read as a whole. A
// build may only add fields; if the meaning of a field changes, Version must change.
//
// Its methods are its transitions. They are pure; the handlers add the clock and the messages.
type State struct {
	Version int `json:"version"` // 0: nothing is recorded yet

	// The chain. A tick belongs to the chain if it carries both numbers. Each accepted tick raises Sequence, and each new
	// or ended chain Generation.
	Generation int64 `json:"generation"`
	Sequence   int64 `json:"sequence"`
	Running    bool  `json:"running"` // a tick is under way, or should be
	IntervalMs int64 `json:"interval_ms"`

	// SlotMs is the next slot of the grid. DueMs is when the next tick is due: at the slot, or earlier after a run that
	// left work behind. Unix ms; 0 while not running.
	SlotMs   int64  `json:"slot_ms"`
	DueMs    int64  `json:"due_ms"`
	NextTick string `json:"next_tick,omitempty"` // its invocation, which is cancelled if it is no longer needed

	Pause *Pause `json:"pause,omitempty"`

	// OrderedMs is when an operator last paused or resumed the job, in Unix ms: see ordered. MySQL has that order too.
	OrderedMs int64 `json:"ordered_ms,omitempty"`

	Runs    int64            `json:"runs"`
	Errors  int64            `json:"errors"` // runs that failed
	Totals  map[string]int64 `json:"totals,omitempty"`
	History []Run            `json:"history,omitempty"` // newest first, at most historyMax
}

// Pause names the operator who paused the job, the reason and the time.
type Pause struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// Run is a run of the job.
type Run struct {
	StartedMs int64  `json:"started_ms"`
	TookMs    int64  `json:"took_ms"`
	Trigger   string `json:"trigger"` // cleanup.TriggerSchedule or an actor
	Report    Report `json:"report"`
	Error     string `json:"error,omitempty"`
}

// check rejects a document of a newer build, because this build would drop the fields that it cannot read.
func (s *State) check() error {
	if s.Version > stateVersion {
		return fmt.Errorf("the job's state is version %d (this build reads up to %d): run the newer weir-control", s.Version,
			stateVersion)
	}
	return nil
}

// wantsChain reports whether a chain must be begun, because there is none or its interval differs. A paused job needs
// no chain.
func (s *State) wantsChain(interval time.Duration) bool {
	return s.Pause == nil && (!s.Running || s.IntervalMs != interval.Milliseconds())
}

// ordered returns when an operator last paused or resumed the job, or 0. Builds without OrderedMs only stored the time
// of a pause.
func (s *State) ordered() int64 {
	if s.Pause != nil {
		return max(s.OrderedMs, s.Pause.AtMs)
	}
	return s.OrderedMs
}

// order returns the newest order to pause or resume the job. The zero value means that there was none.
func (s *State) order() controlplane.PauseOrder {
	o := controlplane.PauseOrder{OrderedMs: s.ordered(), Paused: s.Pause != nil, Generation: s.Generation}
	if s.Pause != nil {
		o.By = s.Pause.By
	}
	return o
}

// adopt applies an order from MySQL if it is newer than the state, and reports whether it was. It is newer if Restate
// has lost its data, or was restored from a backup. If a build that saves no orders has resumed the job since, the
// resumption counts, and gets a later time than the order.
func (s *State) adopt(o controlplane.PauseOrder) bool {
	switch {
	case o.OrderedMs <= s.ordered():
		return false
	case s.OrderedMs == 0 && s.Generation > o.Generation && o.Generation > 0:
		s.OrderedMs = o.OrderedMs + 1
		return false
	}
	s.Version, s.OrderedMs = stateVersion, o.OrderedMs
	switch {
	case !o.Paused:
		s.Pause = nil
	case s.Pause == nil:
		s.end()
		s.Pause = &Pause{By: o.By, AtMs: o.OrderedMs}
	}
	return true
}

// dead reports whether the chain has lost its tick: it is later than runs under way and two clocks can explain, or
// further ahead than any tick is sent.
func (s *State) dead(nowMs int64, grace time.Duration) bool {
	late := lateMax(s.IntervalMs, grace)
	return s.Running && (nowMs > s.DueMs+late || s.DueMs > nowMs+s.IntervalMs+grace.Milliseconds())
}

// lateMax returns how late, in ms, a tick can be while it waits for its turn.
func lateMax(intervalMs int64, grace time.Duration) int64 {
	return min(2*intervalMs, turnMax.Milliseconds()) + grace.Milliseconds()
}

// begin starts a chain whose first tick is due now, and ends any other chain.
func (s *State) begin(interval time.Duration, nowMs int64) {
	s.Version = stateVersion
	s.Generation++
	s.Sequence++
	s.Running, s.IntervalMs = true, interval.Milliseconds()
	s.SlotMs, s.DueMs = nowMs, nowMs
}

// end ends the chain.
func (s *State) end() {
	s.Version = stateVersion
	s.Generation++
	s.Running, s.SlotMs, s.DueMs, s.NextTick = false, 0, 0, ""
}

// takes reports whether the chain is waiting for this tick.
func (s *State) takes(t Tick) bool {
	return s.Running && t.Generation == s.Generation && t.Sequence == s.Sequence
}

// advance moves on from a tick that was accepted at nowMs to the next slot: the first slot of the grid that is not
// past. A tick before its slot does not move the slot.
func (s *State) advance(nowMs int64) {
	if s.DueMs == s.SlotMs {
		s.SlotMs += s.IntervalMs
	}
	if late := nowMs - s.SlotMs; late >= 0 {
		s.SlotMs += (late/s.IntervalMs + 1) * s.IntervalMs
	}
	s.DueMs = s.SlotMs
	s.Sequence++
}

// hurry makes the next tick due now, and reports whether it was due later. The grid stays.
func (s *State) hurry(nowMs int64) bool {
	if !s.Running || s.DueMs <= nowMs {
		return false
	}
	s.DueMs = nowMs
	s.Sequence++
	return true
}

// record adds a run to the history and the totals.
func (s *State) record(r Run) {
	s.Version = stateVersion
	s.Runs++
	if r.Error != "" {
		s.Errors++
	}
	for name, n := range r.Report.Counts {
		if s.Totals == nil {
			s.Totals = map[string]int64{}
		}
		s.Totals[name] += n
	}
	s.History = append([]Run{r}, s.History[:min(len(s.History), historyMax-1)]...)
}
