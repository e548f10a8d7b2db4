package dataplane_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Retry-after: if the clock is advanced by exactly that much, the same request passes; a millisecond less, and it
// does not. That holds for all counts (this node's own, the region's, other regions', in both cells), for a time in
// this window, the next, or the window after it, and for singles and for items of a batch.
func TestRetryAfterIsExactWhateverTheCountsAre(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newInformed(t, rt)
		r := c.ask(rapid.Int64Range(0, 60).Draw(rt, "limit"), rapid.Int64Range(0, 60).Draw(rt, "cost"))
		d := c.n.Allow(t.Context(), r)
		if d.Allowed || r.Cost > r.Limit {
			if d.RetryAfter != 0 || d.NeverPasses == d.Allowed {
				rt.Fatalf("%+v: retry after %v, never %v, of what passes now or never", r, d.RetryAfter, d.NeverPasses)
			}
			return
		}
		c.wantExact(rt, r, d)
	})
}

// 10 and 45, "The retry time is exact for the truncated form too, in this cell and in the next", each by hand: the
// counts of the previous and of this window, and the first millisecond at which the weighted previous count has
// fallen far enough.
func TestRetryAfterInThisWindowTheNextAndTheOneAfter(t *testing.T) {
	for _, c := range []struct {
		name              string
		previous, current int64
		elapsed           time.Duration
		cost, limit       int64
		duration, at      time.Duration // since the start of this window
	}{
		{"this: 10 carry less than 5 past the half", 10, 5, 0, 1, 10, time.Minute, 30*time.Second + time.Millisecond},
		{"this: 9 carry less than 5 at four ninths", 9, 5, time.Second, 1, 10, time.Minute, 26*time.Second + 667*time.Millisecond},
		{"this: 1 carries less than 1 at once", 1, 0, 0, 1, 1, time.Minute, time.Millisecond},
		{"this: only once nothing is carried", 59_999, 0, 0, 10, 10, time.Minute, 59*time.Second + 999*time.Millisecond},
		{"next: a full window", 0, 10, 30 * time.Second, 1, 10, time.Minute, time.Minute + time.Millisecond},
		{"next: half of it has to go", 3, 10, 0, 5, 10, time.Minute, time.Minute + 24*time.Second + time.Millisecond},
		{"next: limit 1 an hour", 0, 1, 400 * time.Millisecond, 1, 1, time.Hour, time.Hour + time.Millisecond},
		{"after it: two thousand in a second carry 2 in its last millisecond", 0, 2000, 0, 10, 10, time.Second, 2 * time.Second},
		{"after it: from this window's end", 7, 1000, 999 * time.Millisecond, 1, 1, time.Second, 2 * time.Second},
	} {
		w := newWorld(t)
		n := w.alone()
		ask := func(limit, cost int64) dataplane.Decision {
			return n.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: c.duration, Limit: limit, Cost: cost, ZeroCost: cost == 0})
		}
		ask(window.LimitMax, c.previous)
		w.clock.set(c.duration)
		ask(window.LimitMax, c.current)
		w.clock.set(c.duration + c.elapsed)
		d := ask(c.limit, c.cost)
		if d.Allowed || d.RetryAfter != c.at-c.elapsed {
			t.Errorf("%s: allowed %v, retry after %v, want %v", c.name, d.Allowed, d.RetryAfter, c.at-c.elapsed)
		}
		w.clock.set(c.duration + c.at - time.Millisecond)
		if d := ask(c.limit, c.cost); d.Allowed || d.RetryAfter != time.Millisecond {
			t.Errorf("%s: a millisecond too early: %+v", c.name, d)
		}
		w.clock.set(c.duration + c.at)
		if d := ask(c.limit, c.cost); !d.Allowed {
			t.Errorf("%s: in time: %+v", c.name, d)
		}
	}
}

// "In a batch, it is the time until the item would pass together with the earlier items on its key." So a denied
// batch passes when the longest of its items' times is over, and not a millisecond before. A batch with an item that
// has no time never passes.
func TestRetryAfterOfItemsIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newInformed(t, rt)
		limit, before := rapid.Int64Range(0, 60).Draw(rt, "limit"), rapid.Int64Range(0, 60).Draw(rt, "before")
		r := c.ask(limit, rapid.Int64Range(0, 60).Draw(rt, "cost"))
		free := c.ask(window.LimitMax, 1)
		free.Identifier = "free"
		requests := []dataplane.Request{free, c.ask(window.LimitMax, before), free, r}
		b := c.n.AllowMany(t.Context(), requests)
		d := b.Decisions[3]
		for i := range 3 {
			if got := b.Decisions[i]; !got.Allowed || got.RetryAfter != 0 {
				rt.Fatalf("item %d passes, and should not be tried again after %v", i, got.RetryAfter)
			}
		}
		if d.Allowed || before+r.Cost > r.Limit {
			if d.RetryAfter != 0 || d.NeverPasses == d.Allowed {
				rt.Fatalf("%+v: retry after %v, never %v, of what passes now or never", r, d.RetryAfter, d.NeverPasses)
			}
			return
		}
		if d.NeverPasses || d.RetryAfter < time.Millisecond {
			rt.Fatalf("%+v: retry after %v", r, d.RetryAfter)
		}
		c.w.clock.advance(d.RetryAfter - time.Millisecond)
		if early := c.n.AllowMany(t.Context(), requests); early.Allowed || early.Decisions[3].RetryAfter != time.Millisecond {
			rt.Fatalf("%+v a millisecond too early: %+v", r, early.Decisions[3])
		}
		c.w.clock.advance(time.Millisecond)
		if !c.n.AllowMany(t.Context(), requests).Allowed {
			rt.Fatalf("%+v is denied in time", r)
		}
	})
}

// If an item can never pass together with the earlier items on its key, it has no retry time, even if a single with
// the same amounts would have a time.
func TestAnItemThatCannotFollowThoseBeforeItHasNoRetryTime(t *testing.T) {
	for _, item := range []struct{ limit, before, cost int64 }{{0, 1, 0}, {5, 3, 3}, {5, 6, 1}} {
		n := newWorld(t).alone()
		n.take("k", 4, window.LimitMax)
		b := n.AllowMany(t.Context(), []dataplane.Request{ask("k", item.before, window.LimitMax), ask("k", item.cost, item.limit)})
		if d := b.Decisions[1]; d.Allowed || d.RetryAfter != 0 {
			t.Errorf("cost %d of %d after %d: %+v", item.cost, item.limit, item.before, d)
		}
	}
}

// informed is a node that has cost from everywhere in the current and the previous cell of a key.
type informed struct {
	w        *world
	n        *node
	duration time.Duration
	foreign  map[window.Cell]int64
}

func newInformed(t *testing.T, rt *rapid.T) *informed {
	ms := rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.Int64Range(1000, window.DurationMax.Milliseconds()), rapid.Just[int64](60_000)).Draw(rt, "duration")
	c := &informed{w: newWorld(t), duration: time.Duration(ms) * time.Millisecond, foreign: make(map[window.Cell]int64)}
	c.w.flushes() // no loop runs here, so a decision must not wait for a flush
	c.n = c.w.node("eu", "a")
	into := func(sequence, elapsedMs int64) {
		c.w.clock.advance(time.UnixMilli(sequence*ms + elapsedMs).Sub(c.w.clock.Now()))
	}
	previous := window.Sequence(c.w.clock.Now().UnixMilli(), ms) + 1
	into(previous, 0)
	c.fill(rt, previous)
	into(previous+1, rapid.Int64Range(0, ms-1).Draw(rt, "elapsed"))
	c.fill(rt, previous+1)
	c.n.listen()
	// A denial makes the key strict, and a strict key is read before it is allowed: now the node has all counts.
	c.n.Allow(t.Context(), c.ask(0, 0))
	c.n.Allow(t.Context(), c.ask(window.LimitMax, 0))
	return c
}

// fill counts cost in the clock's current cell: the node's own, the region's, and other regions'.
func (c *informed) fill(rt *rapid.T, sequence int64) {
	draw := func(who string) int64 { return rapid.Int64Range(0, 25).Draw(rt, who) }
	cell := window.Cell{Key: c.key(), Sequence: sequence}
	if cost := draw("own"); cost > 0 {
		c.n.Allow(context.Background(), c.ask(window.LimitMax, cost))
	}
	if rapid.Bool().Draw(rt, "sent") {
		c.n.replay()
	}
	if cost := draw("region"); cost > 0 {
		if _, err := add(c.w.origin("eu"), cell, cost); err != nil {
			rt.Fatal(err)
		}
	}
	for _, region := range []string{"us", "ap"} {
		if cost := draw(region); cost > 0 {
			c.foreign[cell] += cost
			if _, err := c.w.origin("eu").Apply(context.Background(), 0, []store.Foreign{{Cell: cell, Count: c.foreign[cell]}}); err != nil {
				rt.Fatal(err)
			}
		}
	}
}

func (c *informed) key() window.Key {
	return window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: c.duration}
}

func (c *informed) ask(limit, cost int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: c.duration, Limit: limit, Cost: cost, ZeroCost: cost == 0}
}

// wantExact tries r again at moments before it may pass, the last of them a millisecond too early, and then in time.
func (c *informed) wantExact(rt *rapid.T, r dataplane.Request, d dataplane.Decision) {
	at := c.w.clock.Now().Add(d.RetryAfter)
	if d.RetryAfter < time.Millisecond || d.NeverPasses {
		rt.Fatalf("%+v: retry after %v, never %v", r, d.RetryAfter, d.NeverPasses)
	}
	for range 3 {
		if left := at.Sub(c.w.clock.Now()) - time.Millisecond; left > 0 {
			c.w.clock.advance(time.Duration(rapid.Int64Range(0, left.Milliseconds()).Draw(rt, "early ms")) * time.Millisecond)
		}
		if d := c.n.Allow(context.Background(), r); d.Allowed || !c.w.clock.Now().Add(d.RetryAfter).Equal(at) {
			rt.Fatalf("%+v at %v: %+v, expected to pass at %v", r, c.w.clock.Now(), d, at)
		}
	}
	c.w.clock.advance(at.Sub(c.w.clock.Now()) - time.Millisecond)
	if d := c.n.Allow(context.Background(), r); d.Allowed || d.RetryAfter != time.Millisecond {
		rt.Fatalf("%+v a millisecond too early: %+v", r, d)
	}
	c.w.clock.advance(time.Millisecond)
	if d := c.n.Allow(context.Background(), r); !d.Allowed {
		rt.Fatalf("%+v in time: %+v", r, d)
	}
}

// Retry-after is also exact for a limit that must not be reached: a moment earlier, the cost would reach the limit.
func TestRetryAfterOfALimitThatMustNotBeReached(t *testing.T) {
	for _, knobs := range []string{`{"test":">="}`, `{"test":">"}`} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		if d := n.take("k", 9, 10); !d.Allowed {
			t.Fatalf("%s: %+v", knobs, d)
		}
		w.clock.advance(10 * time.Second)
		d := n.take("k", 3, 10)
		if d.Allowed || d.RetryAfter < time.Millisecond {
			t.Fatalf("%s: %+v", knobs, d)
		}
		w.clock.advance(d.RetryAfter - time.Millisecond)
		if early := n.take("k", 3, 10); early.Allowed {
			t.Errorf("%s: it passes before its retry time: %+v", knobs, early)
		}
		w.clock.advance(time.Millisecond)
		if in := n.take("k", 3, 10); !in.Allowed {
			t.Errorf("%s: it does not pass at its retry time: %+v", knobs, in)
		}
	}
}
