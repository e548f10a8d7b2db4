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
	turnMax     = 2 * time.Minute // a run under way may keep a tick waiting for as long
)

// State is everything a job's object knows: one document under one key, so that no
// half of it can be seen. Fields are only ever added; a change of meaning is a new
// version.
//
// The methods below are its transitions. They are pure, and what the handlers add is
// the clock and the messages.
type State struct {
	Version int `json:"version"` // 0: nothing is recorded yet

	// The chain. A tick is the chain's iff it carries both numbers; each tick that is
	// taken raises Sequence, each new or ended chain Generation.
	Generation int64 `json:"generation"`
	Sequence   int64 `json:"sequence"`
	Running    bool  `json:"running"` // a tick is on its way, or should be
	IntervalMs int64 `json:"interval_ms"`

	// SlotMs is the next slot of the grid, DueMs when the next tick is due: the slot,
	// or earlier after a run that left work behind. Unix ms; 0 while not running.
	SlotMs   int64  `json:"slot_ms"`
	DueMs    int64  `json:"due_ms"`
	NextTick string `json:"next_tick,omitempty"` // its invocation, to be cancelled when it is not wanted any more

	Pause *Pause `json:"pause,omitempty"`

	// OrderedMs is when an operator last paused or resumed the job, in Unix ms: see ordered. MySQL
	// keeps that order too.
	OrderedMs int64 `json:"ordered_ms,omitempty"`

	Runs    int64            `json:"runs"`
	Errors  int64            `json:"errors"` // of the runs
	Totals  map[string]int64 `json:"totals,omitempty"`
	History []Run            `json:"history,omitempty"` // newest first, at most historyMax
}

// Pause is who wants the job not to run by itself, why, and since when.
type Pause struct {
	controlplane.By
	AtMs int64 `json:"at_ms"`
}

// Run is one run of the job.
type Run struct {
	StartedMs int64  `json:"started_ms"`
	TookMs    int64  `json:"took_ms"`
	Trigger   string `json:"trigger"` // cleanup.TriggerSchedule or an actor
	Report    Report `json:"report"`
	Error     string `json:"error,omitempty"`
}

// check refuses a document of a newer build: writing it back would lose what this
// one does not know.
func (s *State) check() error {
	if s.Version > stateVersion {
		return fmt.Errorf("the job's state is version %d and this build knows %d: run the newer weir-control", s.Version,
			stateVersion)
	}
	return nil
}

// wantsChain tells whether a chain must be begun: there is none, or it has another
// interval. Never while paused.
func (s *State) wantsChain(interval time.Duration) bool {
	return s.Pause == nil && (!s.Running || s.IntervalMs != interval.Milliseconds())
}

// ordered returns when an operator last paused or resumed the job, or 0. Builds without OrderedMs
// only stored the time of a pause.
func (s *State) ordered() int64 {
	if s.Pause != nil {
		return max(s.OrderedMs, s.Pause.AtMs)
	}
	return s.OrderedMs
}

// order returns the newest order to pause or resume the job. The zero value means that there was
// none.
func (s *State) order() controlplane.PauseOrder {
	o := controlplane.PauseOrder{OrderedMs: s.ordered(), Paused: s.Pause != nil, Generation: s.Generation}
	if s.Pause != nil {
		o.By = s.Pause.By
	}
	return o
}

// adopt applies an order from MySQL if it is newer than the state, and reports whether it was. It
// is newer if Restate has lost its data, or was restored from a backup. If a build that saves no
// orders has resumed the job since, the resumption counts, and gets a later time than the order.
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

// dead tells whether the chain has lost its tick: it is later than runs that are under
// way and two clocks can explain, or further ahead than any tick is sent.
func (s *State) dead(nowMs int64, grace time.Duration) bool {
	late := lateMax(s.IntervalMs, grace)
	return s.Running && (nowMs > s.DueMs+late || s.DueMs > nowMs+s.IntervalMs+grace.Milliseconds())
}

// lateMax is how late, in ms, a tick may be that is only waiting for its turn.
func lateMax(intervalMs int64, grace time.Duration) int64 {
	return min(2*intervalMs, turnMax.Milliseconds()) + grace.Milliseconds()
}

// begin starts a chain whose first tick is due now, and ends any other.
func (s *State) begin(interval time.Duration, nowMs int64) {
	s.Version = stateVersion
	s.Generation++
	s.Sequence++
	s.Running, s.IntervalMs = true, interval.Milliseconds()
	s.SlotMs, s.DueMs = nowMs, nowMs
}

// end stops the chain.
func (s *State) end() {
	s.Version = stateVersion
	s.Generation++
	s.Running, s.SlotMs, s.DueMs, s.NextTick = false, 0, 0, ""
}

// takes tells whether a tick is the one that the chain waits for.
func (s *State) takes(t Tick) bool {
	return s.Running && t.Generation == s.Generation && t.Sequence == s.Sequence
}

// advance moves on from a tick that was taken at now to the next slot: the first one
// of the grid that is not past. A tick that came before its slot leaves it where it is.
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

// hurry makes the next tick due now, unless it is due already. The grid stays.
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
