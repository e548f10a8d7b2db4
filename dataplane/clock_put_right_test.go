package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// asks is the ways to ask a node about one request.
var asks = map[string]func(*node, dataplane.Request) dataplane.Decision{
	"single": func(n *node, r dataplane.Request) dataplane.Decision { return n.Allow(context.Background(), r) },
	"batch": func(n *node, r dataplane.Request) dataplane.Decision {
		return n.AllowMany(context.Background(), []dataplane.Request{r}).Decisions[0]
	},
	"handle": func(n *node, r dataplane.Request) dataplane.Decision {
		return n.handle(r.Identifier).Allow(context.Background(), r.Limit, dataplane.Cost(r.Cost))
	},
}

// A clock that was ahead, for some seconds or for a day, and is put right returns no budget, and locks nobody out for
// longer than two windows: a caller who is at the limit is still denied, promised a time that holds, and gets the limit
// afterwards, window by window.
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

// What a node does not have room for is judged by a sketch, which a step of the clock neither fills nor empties.
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

// A caller who brings times of its own, ahead of the clock or behind it, is no clock that was set: the key stays in its
// cell, and each cell has one limit.
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
