package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane"
)

// A chain with an interval of a minute, as a transcript: when ticks are accepted, and the grid afterwards.
func TestSlots(t *testing.T) {
	const minute = int64(60_000)
	s := State{}
	s.begin(time.Minute, 0)
	for _, turn := range []struct {
		name      string
		at        int64 // the tick is accepted
		moreAt    int64 // the run ended with work left; 0: it did not
		slot, due int64 // afterwards
	}{
		{name: "the first", at: 0, slot: minute, due: minute},
		{name: "in time", at: minute, slot: 2 * minute, due: 2 * minute},
		{name: "late, the grid stays", at: 2*minute + 30_000, slot: 3 * minute, due: 3 * minute},
		{name: "early, by another clock", at: 3*minute - 10, slot: 4 * minute, due: 4 * minute},
		{name: "five slots missed: one run", at: 9*minute + 1, slot: 10 * minute, due: 10 * minute},
		{name: "on a later slot to the millisecond", at: 12 * minute, slot: 13 * minute, due: 13 * minute},
		{name: "work left: at once, the grid stays", at: 13 * minute, moreAt: 13*minute + 20_000, slot: 14 * minute, due: 13*minute + 20_000},
		{name: "work left again", at: 13*minute + 20_000, moreAt: 13*minute + 40_000, slot: 14 * minute, due: 13*minute + 40_000},
		{name: "the last of it ends after its slot", at: 13*minute + 40_000, slot: 14 * minute, due: 14 * minute},
		{name: "back on the grid", at: 14 * minute, moreAt: 15*minute + 1, slot: 15 * minute, due: 15 * minute},
	} {
		tick := Tick{s.Generation, s.Sequence}
		if !s.takes(tick) {
			t.Fatalf("%s: its own tick is refused", turn.name)
		}
		s.advance(turn.at)
		if s.takes(tick) {
			t.Fatalf("%s: a tick is taken twice", turn.name)
		}
		if turn.moreAt != 0 {
			s.hurry(turn.moreAt)
		}
		if s.SlotMs != turn.slot || s.DueMs != turn.due {
			t.Fatalf("%s: slot %d, due %d; want %d, %d", turn.name, s.SlotMs, s.DueMs, turn.slot, turn.due)
		}
	}
}

// These hold in any history of starts, ensures, pauses, resumes, ticks (late, repeated, lost) and time:
//
//   - no two ticks that were sent both belong to the chain;
//   - while the chain runs and no tick was lost, one tick is under way;
//   - only resume ends a pause;
//   - slots of a generation only move forward, by whole intervals;
//   - Ensure revives a chain that has lost its tick, once grace is over.
func TestOneChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const grace = 10 * time.Second
		var s State
		var sent []Tick // every tick ever: any of them can arrive, also again
		nowMs := int64(1_000_000)
		lost := false
		interval := time.Minute
		send := func() { sent = append(sent, Tick{s.Generation, s.Sequence}); lost = false }
		begin := func() { s.begin(interval, nowMs); send() }

		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				alive := 0
				for _, tick := range sent {
					if s.takes(tick) {
						alive++
					}
				}
				if alive > 1 {
					t.Fatalf("%d ticks are the chain's", alive)
				}
				if s.Running && alive == 0 {
					t.Fatal("the chain runs and waits for a tick that was never sent")
				}
				if s.Pause != nil && s.Running {
					t.Fatal("paused and running")
				}
			},
			"time": func(t *rapid.T) { nowMs += rapid.Int64Range(0, 200_000).Draw(t, "ms") },
			"start": func(t *rapid.T) {
				interval = time.Duration(rapid.IntRange(1, 3).Draw(t, "minutes")) * time.Minute
				if paused := s.Pause != nil; s.wantsChain(interval) {
					begin()
					if paused {
						t.Fatal("a pause was ended")
					}
				}
			},
			"ensure": func(t *rapid.T) {
				if !s.wantsChain(interval) && !s.dead(nowMs, grace) {
					if lost && s.Running && nowMs > s.DueMs+lateMax(s.IntervalMs, grace) {
						t.Fatal("a dead chain is left dead")
					}
					return
				}
				if s.Pause != nil {
					t.Fatal("a pause was ended")
				}
				begin()
			},
			"pause": func(*rapid.T) {
				if s.Pause == nil {
					s.end()
					s.Pause = &Pause{AtMs: nowMs}
				}
			},
			"resume": func(*rapid.T) {
				if s.Pause != nil {
					s.Pause = nil
					if s.IntervalMs > 0 {
						begin()
					}
				}
			},
			"lose": func(*rapid.T) { lost = true },
			"tick": func(t *rapid.T) {
				if len(sent) == 0 {
					return
				}
				tick := sent[rapid.IntRange(0, len(sent)-1).Draw(t, "tick")]
				if !s.takes(tick) || lost {
					return
				}
				slot := s.SlotMs
				s.advance(nowMs)
				send()
				if s.SlotMs < slot || (s.SlotMs-slot)%s.IntervalMs != 0 {
					t.Fatalf("slot %d after %d", s.SlotMs, slot)
				}
				if s.SlotMs <= nowMs {
					t.Fatalf("next slot %d is past at %d", s.SlotMs, nowMs)
				}
				if rapid.Bool().Draw(t, "work is left") && s.hurry(nowMs) {
					send()
				}
			},
		})
	})
}

// A chain is given up only when its tick cannot be under way any more.
func TestDead(t *testing.T) {
	const grace, due = 10 * time.Second, int64(1_000_000_000)
	minutes := func(n int64) int64 { return n * 60_000 }
	for name, tc := range map[string]struct {
		intervalMs, nowMs int64
		dead              bool
	}{
		"on its way":                      {minutes(1), due - minutes(1), false},
		"due":                             {minutes(1), due, false},
		"behind a run":                    {minutes(1), due + minutes(2) + 10_000, false},
		"lost":                            {minutes(1), due + minutes(2) + 10_001, true},
		"lost, though its next is far":    {minutes(60), due + minutes(2) + 10_001, true},
		"lost, with a short interval":     {1000, due + 12_001, true},
		"the clock was set back a little": {minutes(1), due - minutes(1) - 10_000, false},
		"the clock was set back far":      {minutes(1), due - minutes(1) - 10_001, true},
	} {
		s := State{Running: true, IntervalMs: tc.intervalMs, SlotMs: due, DueMs: due}
		if got := s.dead(tc.nowMs, grace); got != tc.dead {
			t.Errorf("%s: dead is %v", name, got)
		}
		if s.Running = false; s.dead(tc.nowMs, grace) {
			t.Errorf("%s: a chain that is not running is dead", name)
		}
	}
}

// The history is bounded, newest first, and the totals outlive it.
func TestRecord(t *testing.T) {
	s := State{}
	for i := range historyMax + 5 {
		r := Run{StartedMs: int64(i), Report: Report{Counts: map[string]int64{"rows": 2, fmt.Sprint(i): 1}}}
		if i%5 == 0 {
			r.Error = "boom"
		}
		s.record(r)
	}
	if len(s.History) != historyMax || s.History[0].StartedMs != historyMax+4 || s.History[historyMax-1].StartedMs != 5 {
		t.Errorf("history of %d from %d to %d", len(s.History), s.History[0].StartedMs, s.History[len(s.History)-1].StartedMs)
	}
	if s.Runs != historyMax+5 || s.Errors != 5 || s.Totals["rows"] != 2*(historyMax+5) || s.Totals["0"] != 1 {
		t.Errorf("runs %d, errors %d, totals %v", s.Runs, s.Errors, s.Totals)
	}
}

// "A build may only add fields; if the meaning of a field changes, Version must change", and a newer version is
// rejected. Replays compare the document, so this test pins its form.
func TestStateDocument(t *testing.T) {
	s := State{Totals: map[string]int64{"b": 2, "a": 1}}
	s.begin(time.Minute, 1000)
	s.NextTick = "inv_1"
	s.record(Run{StartedMs: 1, TookMs: 2, Trigger: "ann", Report: Report{Counts: map[string]int64{"a": 1}, Readings: map[string]int64{"lag_ms": 3}, Note: "slow", More: true}, Error: "boom"})
	s.Pause = &Pause{AtMs: 4}
	s.Pause.Actor, s.Pause.Reason = "bob", "deploy"
	got, err := json.Marshal(s)
	want := `{"version":1,"generation":1,"sequence":1,"running":true,"interval_ms":60000,"slot_ms":1000,"due_ms":1000,"next_tick":"inv_1",` +
		`"pause":{"actor":"bob","reason":"deploy","at_ms":4},"runs":1,"errors":1,"totals":{"a":2,"b":2},` +
		`"history":[{"started_ms":1,"took_ms":2,"trigger":"ann","report":{"counts":{"a":1},"readings":{"lag_ms":3},"note":"slow","more":true},"error":"boom"}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	newer := State{Version: stateVersion + 1}
	if err := newer.check(); err == nil || !strings.Contains(err.Error(), "run the newer weir-control") {
		t.Errorf("a newer document: %v", err)
	}
}

// Of the orders to pause and to resume in Restate and MySQL, the latest counts, in whichever order they are adopted,
// and a chain never runs through a pause.
func TestTheLatestOrderCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		if rapid.Bool().Draw(t, "runs") {
			s.begin(time.Minute, 1)
		}
		if at := rapid.Int64Range(0, 9).Draw(t, "paused by a build that saves nothing"); at > 0 {
			s.end()
			s.Pause = &Pause{AtMs: at}
		}
		latest := s.order()
		for _, at := range rapid.SliceOf(rapid.Int64Range(1, 12)).Draw(t, "orders") {
			o := controlplane.PauseOrder{OrderedMs: at, Paused: rapid.Bool().Draw(t, "pause"), Generation: s.Generation}
			o.Actor = fmt.Sprint("order ", at)
			if adopted := s.adopt(o); adopted != (at > latest.OrderedMs) {
				t.Fatalf("order of %d after one of %d: adopted %v", at, latest.OrderedMs, adopted)
			}
			if at > latest.OrderedMs {
				if o.Paused && latest.Paused { // it is paused since, and by, the first
					o.By = latest.By
				}
				latest = o
			}
			if got := s.order(); got.OrderedMs != latest.OrderedMs || got.Paused != latest.Paused {
				t.Fatalf("%+v, want %+v", got, latest)
			}
			if s.Pause != nil && s.Running {
				t.Fatalf("it runs while it is paused: %+v", s)
			}
		}
	})
}

// An earlier build saves no orders and drops unknown fields of the state. If it runs for a while, its orders still
// count when a build that saves orders runs again.
func TestAnOrderOfAnEarlierBuildCounts(t *testing.T) {
	saved := controlplane.PauseOrder{By: operator, OrderedMs: 5, Paused: true, Generation: 2}
	resumed := State{Version: 1, Generation: 3, Running: true, IntervalMs: 1000}
	if resumed.adopt(saved) || resumed.Pause != nil || !resumed.Running || resumed.ordered() <= saved.OrderedMs {
		t.Errorf("a resume by the earlier build: %+v", resumed)
	}
	paused := State{Version: 1, Generation: 4, Pause: &Pause{By: operator, AtMs: 9}}
	if paused.adopt(controlplane.PauseOrder{OrderedMs: 7, Generation: 3}) || paused.Pause == nil {
		t.Errorf("a pause by the earlier build: %+v", paused)
	}
	backup := State{Version: 1, Generation: 1, Running: true, IntervalMs: 1000}
	if !backup.adopt(saved) || backup.Pause == nil || backup.Running {
		t.Errorf("an older backup: %+v", backup)
	}
}
