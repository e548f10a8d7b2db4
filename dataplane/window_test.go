package dataplane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Behaviours 1 to 10 of the exact mode, quoted in the names.

func TestSlidingWindow(t *testing.T) {
	for _, c := range []struct {
		name       string
		prev, cur  int64
		elapsed    time.Duration
		cost       int64
		allowed    bool
		remaining  int64
		current    float64
		retryAfter time.Duration
	}{
		{"1: cur 0, prev 0, e 0, cost 1 → allowed, remaining 9", 0, 0, 0, 1, true, 9, 1, 0},
		{"2: cur 9, cost 1 → allowed, remaining 0", 0, 9, 0, 1, true, 0, 10, 0},
		{"2: cur 10, a request that is marked to count nothing → allowed, remaining 0", 0, 10, 0, 0, true, 0, 10, 0},
		{"2: cur 10, cost 1 → denied, remaining 0", 0, 10, 0, 1, false, 0, 11, 60*time.Second + time.Millisecond},
		{"3: cur 5, prev 10, e 0.5, cost 1 → 11 > 10, denied", 10, 5, 30 * time.Second, 1, false, 0, 11, time.Millisecond},
		{"3: cur 5, prev 10, e 0.99, cost 1 → allowed, remaining 4", 10, 5, 59400 * time.Millisecond, 1, true, 4, 6, 0},
	} {
		w := newWorld(t)
		n := w.alone()
		if c.prev > 0 {
			n.take("k", c.prev, 1000)
		}
		w.clock.set(time.Minute)
		if c.cur > 0 {
			n.take("k", c.cur, 1000)
		}
		w.clock.set(time.Minute + c.elapsed)
		d := n.take("k", c.cost, 10)
		wantAllowed(t, c.name, d, c.allowed, c.remaining)
		if d.Current != c.current {
			t.Errorf("%s: current %v, want %v", c.name, d.Current, c.current)
		}
		if d.RetryAfter != c.retryAfter {
			t.Errorf("%s: retry after %v, want %v", c.name, d.RetryAfter, c.retryAfter)
		}
		if want := epoch.Add(2 * time.Minute); !d.ResetAt.Equal(want) {
			t.Errorf("7: reset = end of the fixed window that holds the request, on denial too: %v, want %v", d.ResetAt, want)
		}
	}
}

// Cost 100 on an empty key → denied, no state changes, a following cost 1 passes; no retry-after.
func TestOversizedCostIsACleanDenial(t *testing.T) {
	n := newWorld(t).alone()
	d := n.take("k", 100, 10)
	wantAllowed(t, "cost 100 on an empty key", d, false, 10)
	if d.RetryAfter != 0 || !d.NeverPasses {
		t.Errorf("retry after %v, never %v, for what never passes", d.RetryAfter, d.NeverPasses)
	}
	if n.Entries() != 0 {
		t.Error("a cold oversized denial was remembered")
	}
	wantAllowed(t, "a following cost 1 passes", n.take("k", 1, 10), true, 9)
	d = n.take("k", 100, 10)
	wantAllowed(t, "cost 100 on a known key", d, false, 9)
	if n.StrictUntil(n.w.cell("k").Key) != 0 {
		t.Error("an oversized cost says nothing about the key, and made it strict")
	}
}

// Same identifier, other duration → independent. Other limit, same duration → the same counter.
func TestDurationIsPartOfTheKeyAndTheLimitIsNot(t *testing.T) {
	n := newWorld(t).alone()
	n.take("k", 6, 10)
	hour := ask("k", 6, 10)
	hour.Duration = time.Hour
	wantAllowed(t, "other duration", n.Allow(t.Context(), hour), true, 4)
	wantAllowed(t, "other limit", n.take("k", 1, 20), true, 13)
	wantAllowed(t, "smaller limit", n.take("k", 1, 7), false, 0)
}

// Names with any characters never collide in memory.
func TestNamesNeverCollide(t *testing.T) {
	n := newWorld(t).alone()
	names := []string{"a", "A", "a ", " a", "a-b", "a:b", "a/b", "a\x00b", "a\x00", "😀", "é", "e\u0301", "\xff", "a,b", "{a}", "*"}
	seen := 0
	for _, workspace := range names {
		for _, namespace := range names {
			for _, identifier := range names {
				r := dataplane.Request{Workspace: workspace, Namespace: namespace, Identifier: identifier, Limit: 1, Duration: time.Minute, Cost: 1}
				if d := n.Allow(t.Context(), r); !d.Allowed {
					t.Fatalf("%q/%q/%q was counted before", workspace, namespace, identifier)
				}
				seen++
			}
		}
	}
	if n.Entries() != seen {
		t.Errorf("%d entries for %d keys", n.Entries(), seen)
	}
}

// 8 and 9: invalid input is an error that names the field and the bound, and leaves no state. "Limit 0 means block:
// denied, not an error."
func TestBadInputIsRefusedAtTheDoor(t *testing.T) {
	n := newWorld(t).alone()
	for _, c := range []struct {
		change func(*dataplane.Request)
		want   string
	}{
		{func(r *dataplane.Request) { r.Workspace = "" }, "workspace is empty (1 to 191 bytes)"},
		{func(r *dataplane.Request) { r.Namespace = "" }, "namespace is empty (1 to 255 bytes)"},
		{func(r *dataplane.Request) { r.Identifier = "" }, "identifier is empty (1 to 255 bytes)"},
		{func(r *dataplane.Request) { r.Workspace = strings.Repeat("w", 192) }, "workspace is 192 bytes long (1 to 191)"},
		{func(r *dataplane.Request) { r.Namespace = strings.Repeat("n", 256) }, "namespace is 256 bytes long (1 to 255)"},
		{func(r *dataplane.Request) { r.Identifier = strings.Repeat("i", 256) }, "identifier is 256 bytes long (1 to 255)"},
		{func(r *dataplane.Request) { r.Limit = -1 }, "limit is -1 (0 to 9007199254740991)"},
		{func(r *dataplane.Request) { r.Limit = window.LimitMax + 1 }, "limit is 9007199254740992"},
		{func(r *dataplane.Request) { r.Cost = -1 }, "cost is -1 (0 to 9007199254740991)"},
		{func(r *dataplane.Request) { r.Cost = 1 << 62 }, "cost is 4611686018427387904"},
		{func(r *dataplane.Request) { r.Duration = 999 * time.Millisecond }, "duration is 999ms (1s to 8784h0m0s)"},
		{func(r *dataplane.Request) { r.Duration = window.DurationMax + 1 }, "duration is"},
		{func(r *dataplane.Request) { r.Duration = -1 }, "duration is"},
	} {
		r := ask("k", 1, 10)
		c.change(&r)
		d := n.Allow(t.Context(), r)
		if !errors.Is(d.Err, dataplane.ErrInvalid) || !strings.Contains(d.Err.Error(), c.want) || d.Allowed {
			t.Errorf("want %q, got %+v", c.want, d)
		}
		b := n.AllowMany(t.Context(), []dataplane.Request{ask("k", 1, 10), r})
		if !errors.Is(b.Err, dataplane.ErrInvalid) || !strings.Contains(b.Err.Error(), "requests[1]: ") || b.Allowed || b.Decisions != nil {
			t.Errorf("batch: want %q, got %+v", c.want, b)
		}
	}
	if n.Entries() != 0 {
		t.Errorf("bad input left %d entries", n.Entries())
	}
	wantAllowed(t, "limit 0 blocks", n.take("k", 1, 0), false, 0)
	longest := dataplane.Request{Workspace: strings.Repeat("w", 191), Namespace: strings.Repeat("n", 255), Identifier: strings.Repeat("é", 127),
		Limit: window.LimitMax, Duration: window.DurationMax, Cost: window.LimitMax}
	if d := n.Allow(t.Context(), longest); !d.Allowed || d.Err != nil || d.Remaining != 0 {
		t.Errorf("the largest valid request: %+v", d)
	}
}

func TestBatchSizeIsBounded(t *testing.T) {
	n := newWorld(t).alone()
	for _, size := range []int{0, dataplane.BatchMax + 1} {
		if b := n.AllowMany(t.Context(), make([]dataplane.Request, size)); !errors.Is(b.Err, dataplane.ErrInvalid) || !strings.Contains(b.Err.Error(), "1 to 1000") {
			t.Errorf("%d items: %+v", size, b)
		}
	}
}

// A caller's timestamp far in the past or future is an error, not a dead cell.
func TestFarTimesAreErrors(t *testing.T) {
	n := newWorld(t).alone()
	for _, off := range []time.Duration{-time.Minute - time.Millisecond, time.Minute + time.Millisecond, 1000 * time.Hour} {
		if d := n.AllowAt(t.Context(), epoch.Add(off), ask("k", 1, 10)); !errors.Is(d.Err, dataplane.ErrInvalid) || !strings.Contains(d.Err.Error(), "at most 1m0s") {
			t.Errorf("%v: %+v", off, d)
		}
		if b := n.AllowManyAt(t.Context(), epoch.Add(off), []dataplane.Request{ask("k", 1, 10)}); b.Err == nil {
			t.Errorf("batch at %v passed", off)
		}
	}
	if d := n.AllowAt(t.Context(), epoch.Add(59*time.Second), ask("k", 1, 10)); !d.Allowed {
		t.Errorf("a minute's skew: %+v", d)
	}
}

// A clock that steps back must not resurrect budget or panic.
func TestTimeGoingBackResurrectsNothing(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	w.clock.set(3 * time.Minute)
	n.take("k", 10, 10)
	for _, at := range []time.Duration{3*time.Minute - time.Millisecond, 2 * time.Minute, 0, -90 * 24 * time.Hour} {
		w.clock.set(at)
		d := n.take("k", 1, 10)
		wantAllowed(t, at.String(), d, false, 0)
		want := time.Minute + time.Millisecond // from the start of the clock's current cell
		if at == 3*time.Minute-time.Millisecond {
			want += time.Millisecond // the allowed difference of clock readings: the clock stands still
		}
		if d.RetryAfter != want {
			t.Errorf("at %v retry after %v, want %v", at, d.RetryAfter, want)
		}
	}
	w.clock.set(5 * time.Minute)
	wantAllowed(t, "two windows on", n.take("k", 10, 10), true, 0)
}

// Retry-after: if the clock is advanced by exactly that much, the same request passes; a millisecond less, and it
// does not.
func TestRetryAfterIsExact(t *testing.T) {
	for _, c := range []struct{ prev, cur, cost, limit int64 }{
		{10, 5, 1, 10}, {10, 5, 5, 10}, {0, 10, 1, 10}, {7, 10, 10, 10}, {1000, 999, 3, 1000}, {3, 3, 1, 3}, {9, 10, 4, 10},
	} {
		for _, early := range []time.Duration{0, time.Millisecond} {
			w := newWorld(t)
			n := w.alone()
			n.take("k", c.prev, 1<<40)
			w.clock.set(time.Minute + 7*time.Second + 13*time.Millisecond)
			n.take("k", c.cur, 1<<40)
			d := n.take("k", c.cost, c.limit)
			if d.Allowed {
				t.Fatalf("%+v passes at once", c)
			}
			w.clock.advance(d.RetryAfter - early)
			if again := n.take("k", c.cost, c.limit); again.Allowed != (early == 0) {
				t.Errorf("%+v after %v less %v: allowed %v", c, d.RetryAfter, early, again.Allowed)
			}
		}
	}
}
