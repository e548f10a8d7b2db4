package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// asks has the ways to send a request to a node.
var asks = map[string]func(*node, dataplane.Request) dataplane.Decision{
	"single": func(n *node, r dataplane.Request) dataplane.Decision { return n.Allow(context.Background(), r) },
	"batch": func(n *node, r dataplane.Request) dataplane.Decision {
		return n.AllowMany(context.Background(), []dataplane.Request{r}).Decisions[0]
	},
	"handle": func(n *node, r dataplane.Request) dataplane.Decision {
		return n.handle(r.Identifier).Allow(context.Background(), r.Limit, dataplane.Cost(r.Cost))
	},
}

// A clock that was ahead, for some seconds or for a day, and is corrected, returns no budget and blocks no caller for
// longer than two windows. A caller at its limit is still denied, with an exact RetryAfter, and afterwards gets the
// limit in each window.
func TestAClockThatWasAheadLocksNobodyOut(t *testing.T) {
	const window = time.Minute
	for _, ahead := range []time.Duration{time.Second, 5 * time.Second, 61 * time.Second, 90 * time.Second, 10 * time.Minute,
		time.Hour, 24 * time.Hour} {
		for _, at := range []time.Duration{0, time.Second, 30 * time.Second, 59 * time.Second} { // in its cell
			for how, ask1 := range asks {
				for _, kind := range []string{"alone", "fleet", "estimate", "swept"} {
					t.Run(fmt.Sprintf("%v/%v/%s/%s", ahead, at, how, kind), func(t *testing.T) {
						w := newWorld(t)
						var n *node
						switch kind {
						case "fleet":
							// This test is about the node's own memory. With wait, the counts would be at the origin, in the cell of the
							// wrong clock, and would count when that cell comes. The same holds for counts that a flushing node sent
							// before the clock was corrected.
							w.flushes()
							n = w.node("eu", "a")
						case "estimate":
							w.estimates(`{}`)
							n = w.node("eu", "a", withoutOrigin)
						default:
							n = w.alone()
						}
						w.clock.set(at)
						w.clock.step(ahead)
						r := ask("k", 1, 3)
						for i := range 4 {
							if d := ask1(n, r); d.Allowed != (i < 3) {
								t.Fatalf("request %d of 3 a minute: %+v", i, d)
							}
						}
						w.clock.step(-ahead)
						if kind == "swept" {
							n.Sweep()
						}
						whole := r
						whole.Cost = 3
						d := ask1(n, whole)
						if d.Allowed || d.RetryAfter > 2*window || d.RetryAfter <= 0 {
							t.Fatalf("3 of 3 were used up a moment ago: %+v", d)
						}
						w.clock.advance(d.RetryAfter)
						if kind == "fleet" && ahead == time.Second {
							w.clock.advance(ahead) // its time stood still for as long
						}
						if d := ask1(n, whole); !d.Allowed {
							t.Errorf("at the promised time: %+v", d)
						}
						for minute := range 4 {
							w.clock.advance(2 * window)
							if d := ask1(n, whole); !d.Allowed {
								t.Errorf("%d windows later: %+v", 2*minute+2, d)
							}
						}
					})
				}
			}
		}
	}
}

// Keys without room in the node's table are judged by a sketch. A step of the clock must neither fill nor empty the
// sketch.
func TestAClockThatWasAheadLocksNoKeyWithoutRoomOut(t *testing.T) {
	for _, ahead := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		w := newWorld(t)
		n := w.fullTable("api", withoutOrigin)
		w.clock.step(ahead)
		r := ask("without room", 3, 3)
		if d := n.Allow(context.Background(), r); !d.Allowed {
			t.Fatalf("%v ahead: %+v", ahead, d)
		}
		w.clock.step(-ahead)
		if d := n.Allow(context.Background(), r); d.Allowed && ahead <= time.Minute || d.RetryAfter > 2*time.Minute {
			t.Errorf("was %v ahead, right after: %+v", ahead, d)
		}
		for range 4 {
			w.clock.advance(2 * time.Minute)
			if d := n.Allow(context.Background(), r); !d.Allowed {
				t.Errorf("was %v ahead, two windows later: %+v", ahead, d)
			}
		}
	}
}

// Times that a caller passes, ahead of the clock or behind it, are no steps of the clock: the key stays in its cell,
// and each cell has one limit.
func TestTimesOfCallersAreNoStepsOfTheClock(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	w.clock.advance(50 * time.Second)
	at := func(by time.Duration, cost int64) dataplane.Decision {
		return n.AllowAt(context.Background(), w.clock.Now().Add(by), ask("k", cost, 10))
	}
	if d := at(30*time.Second, 10); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	for i, by := range []time.Duration{0, -30 * time.Second, 30 * time.Second, 0} {
		if d := at(by, 10); d.Allowed || d.RetryAfter > 2*time.Minute {
			t.Errorf("%d: 10 of 10 were used in the cell that is current: %+v", i, d)
		}
	}
	n.Sweep()
	if d := at(30*time.Second, 1); d.Allowed {
		t.Errorf("after a sweep: %+v", d)
	}
}

// The first round of the sweep after a clock was corrected moves all entries to the clock's cell, also idle entries.
// So they have no cost left when the clock reaches the cells in which they were counted.
func TestAClockThatWasAheadLeavesNoEntryAhead(t *testing.T) {
	const keys = 40_000 // more than a round of the sweep examines
	for _, fleet := range []bool{false, true} {
		w := newWorld(t)
		n := w.alone()
		if fleet {
			n = w.node("eu", "a")
		}
		w.clock.step(time.Hour)
		for i := range keys {
			n.take(fmt.Sprint("k", i), 2, 2)
		}
		n.SweepTurn()
		w.clock.step(-time.Hour)
		n.take("another", 1, 2) // its answer has the origin's time
		n.SweepTurn()
		w.clock.advance(time.Hour)
		for i := range keys {
			if x := n.Cell(minuteCellOf(w, fmt.Sprint("k", i))); x.Held && x.Count+x.Foreign > 0 {
				t.Fatalf("fleet %v: of k%d %+v are counted in the cell that has just begun", fleet, i, x)
			}
		}
		if d := n.take("k7", 2, 2); !d.Allowed {
			t.Errorf("fleet %v: an hour later: %+v", fleet, d)
		}
	}
}

// Cost that nodes counted while their origin's clock was ahead denies nothing when the clock reaches those cells,
// whichever node is called, and whatever was lost in between.
func TestAnOriginThatWasAheadLocksNobodyOut(t *testing.T) {
	for _, ahead := range []time.Duration{90 * time.Second, time.Hour, 24 * time.Hour} {
		for _, wipe := range []bool{false, true} {
			w := newWorld(t)
			a, b := w.node("eu", "a"), w.node("eu", "b")
			w.clock.step(ahead)
			for range 10 {
				a.take("k", 3, 3)
				a.replay()
				w.clock.advance(time.Minute)
			}
			w.clock.step(-ahead)
			a.take("another", 1, 3)
			for _, n := range []*node{a, b} {
				n.replay()
				n.Sweep()
			}
			if wipe {
				w.origin("eu").Wipe()
			}
			w.clock.advance(2 * time.Minute)
			for minute := range int((ahead + 15*time.Minute) / time.Minute) {
				c := w.node("eu", fmt.Sprint("c", minute)) // a node that has only the origin's counts
				if x := w.origin("eu").Totals()[minuteCellOf(w, "k")]; x.Region != 0 {
					t.Fatalf("%v ahead, emptied %v, %d min later: the origin has %+v", ahead, wipe, minute+2, x)
				}
				for _, n := range []*node{a, b, c}[minute%3 : minute%3+1] {
					if d := n.take("k", 1, 3); !d.Allowed {
						t.Fatalf("%v ahead, emptied %v, %d min later: %+v", ahead, wipe, minute+2, d)
					}
				}
				a.replay()
				b.replay()
				w.clock.advance(time.Minute)
			}
		}
	}
}

// minuteCellOf returns the current one-minute cell of a key, by the clock.
func minuteCellOf(w *world, identifier string) window.Cell {
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}
	return window.Cell{Key: key, Sequence: window.Sequence(w.clock.Now().UnixMilli(), key.DurationMs())}
}
