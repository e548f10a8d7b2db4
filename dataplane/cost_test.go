package dataplane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
)

// A cost that is left out is 1, in every form of a request.
func TestACostLeftOutIsOne(t *testing.T) {
	r := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, Duration: time.Minute}
	for name, ask := range map[string]func(n *node) dataplane.Decision{
		"Allow":     func(n *node) dataplane.Decision { return n.Allow(t.Context(), r) },
		"AllowMany": func(n *node) dataplane.Decision { return n.AllowMany(t.Context(), []dataplane.Request{r}).Decisions[0] },
		"Reserve": func(n *node) dataplane.Decision {
			held, d := n.AllowUpTo(t.Context(), r)
			if want := int64(1); d.Allowed && held.Held() != want {
				t.Errorf("Reserve holds %d, want %d", held.Held(), want)
			}
			return d
		},
		"Key": func(n *node) dataplane.Decision {
			key, err := n.Handle(r.Workspace, r.Namespace, r.Identifier, r.Duration)
			if err != nil {
				t.Fatal(err)
			}
			return key.Allow(t.Context(), r.Limit, 0)
		},
	} {
		n := newWorld(t).alone()
		for left := int64(9); left >= 0; left-- {
			wantAllowed(t, name, ask(n), true, left)
		}
		wantAllowed(t, name+", the eleventh", ask(n), false, 0)
		if back, err := n.Refund(r); back != 1 || err != nil {
			t.Errorf("Refund gave back %d, %v: want what %s took", back, err, name)
		}
	}
}

// At 10 of 10, a request with ZeroCost → allowed, remaining 0. Over the limit it is denied.
func TestZeroCostCountsNothing(t *testing.T) {
	n := newWorld(t).alone()
	n.take("k", 10, 10)
	free := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, Duration: time.Minute, ZeroCost: true}
	for range 3 {
		wantAllowed(t, "at the limit", n.Allow(t.Context(), free), true, 0)
	}
	if back, err := n.Refund(free); back != 0 || err != nil {
		t.Errorf("gave back %d, %v", back, err)
	}
	free.Limit = 9
	wantAllowed(t, "over the limit", n.Allow(t.Context(), free), false, 0)
	free.Cost = 2
	if d := n.Allow(t.Context(), free); !errors.Is(d.Err, dataplane.ErrInvalid) || !strings.Contains(d.Err.Error(), "cost is 2 and ZeroCost is set") {
		t.Errorf("both: %v", d.Err)
	}
}

// Peek uses a cost of 1 by default: if nothing remains, it is denied, and it counts nothing.
func TestPeekCountsNothing(t *testing.T) {
	n := newWorld(t).alone()
	n.take("k", 9, 10)
	key, err := n.Handle("acme", "api", "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, Duration: time.Minute}
	for range 3 {
		wantAllowed(t, "of one that is left", n.Peek(t.Context(), r), true, 0)
		wantAllowed(t, "by a handle", key.Peek(t.Context(), 10, 0), true, 0)
		wantAllowed(t, "of two", n.Peek(t.Context(), ask("k", 2, 10)), false, 1)
	}
	n.take("k", 1, 10)
	if d := n.Peek(t.Context(), r); d.Allowed || d.RetryAfter != time.Minute+time.Millisecond {
		t.Errorf("with nothing left: %+v", d)
	}
	if n.StrictUntil(n.w.cell("k").Key) != 0 {
		t.Error("a denied peek made the key strict")
	}
	if d := n.Peek(t.Context(), ask("k", 11, 10)); !d.NeverPasses {
		t.Errorf("more than the limit: %+v", d)
	}
}

// "Peek returns the decision that Allow would make", whatever the counts and their sources, in both modes: the next
// Allow returns the same, and any number of peeks changes nothing.
func TestPeekAnswersWhatAllowWould(t *testing.T) {
	for _, mode := range []string{"exact", "estimate"} {
		t.Run(mode, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c := newInformed(t, rt)
				if mode == "estimate" {
					c.w.estimates("")
					c.n = c.w.node("eu", "b")
				}
				for range rapid.IntRange(1, 8).Draw(rt, "requests") {
					c.w.clock.advance(time.Duration(rapid.Int64Range(0, c.duration.Milliseconds()).Draw(rt, "ms")) * time.Millisecond)
					r := c.ask(rapid.Int64Range(0, 60).Draw(rt, "limit"), rapid.Int64Range(0, 60).Draw(rt, "cost"))
					c.n.Peek(t.Context(), c.ask(r.Limit, 60))
					peeked := c.n.Peek(t.Context(), r)
					allowed := c.n.Allow(t.Context(), r)
					peeked.Source, allowed.Source = 0, 0 // a peek may have read the origin for both
					if peeked != allowed {
						rt.Fatalf("%+v:\n  Peek %+v\n Allow %+v", r, peeked, allowed)
					}
				}
			})
		})
	}
}
