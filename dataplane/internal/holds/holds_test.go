package holds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// charged has the charge of each hold, by owner. It grants all holds.
type charged map[string]int64

func (c charged) Expired(window.Cell) bool { return false }

func (c charged) Used(*window.Cell, *Cell) int64 { return 0 }

func (c charged) Grant(_ int, h *store.Hold, _ *store.HoldAnswer) (Charge, bool) {
	c[h.Owner] = h.Amount
	return charge{c, h.Owner}, true
}

type charge struct {
	of    charged
	owner string
}

func (c charge) Set(cost int64) { c.of[c.owner] = cost }

func (c charged) want(t *testing.T, when string, want charged) {
	t.Helper()
	if !maps.Equal(c, want) {
		t.Errorf("%s: %v is charged, want %v", when, c, want)
	}
}

var minute = window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Minute}}

func statement(as store.HoldAs, owner string, amount, after int64, ttl time.Duration) store.Hold {
	return store.Hold{Cell: minute, Owner: owner, Amount: amount, After: after, TTL: ttl, Limit: 1000, As: as}
}

// calls applies statements in a single call.
func calls(g *Group, c Counts, nowMs int64, holds ...store.Hold) store.HoldReply {
	return g.Apply(&store.HoldCall{Group: minute.Key, Stream: 1, Holds: holds}, c, 0, nowMs)
}

// Each hold is charged the amount that it counts, also when it ends by its time. A refused call changes no charge.
func TestAHoldIsChargedItsCount(t *testing.T) {
	g := NewGroup(false)
	c := make(charged)
	calls(g, c, 1000, statement(store.HoldNew, "a", 60, 10, time.Second), statement(store.HoldNew, "b", 40, 40, time.Minute))
	c.want(t, "made", charged{"a": 60, "b": 40})
	calls(g, c, 1001, statement(store.HoldState, "a", 70, 20, 2*time.Second))
	c.want(t, "raised", charged{"a": 70, "b": 40})
	calls(g, c, 1002, statement(store.HoldState, "b", 5, 5, 0))
	c.want(t, "ended", charged{"a": 70, "b": 5})
	if reply := calls(g, c, 1003, statement(store.HoldState, "a", 90, 90, time.Minute),
		statement(store.HoldNew, "b", 1, 1, time.Second)); !reply.Refused {
		t.Errorf("a hold that has ended is made again: %+v", reply)
	}
	c.want(t, "refused", charged{"a": 70, "b": 5})
	if nextMs, ok := g.NextMs(); nextMs != 3001 || !ok {
		t.Errorf("the next end is at %d, %v", nextMs, ok)
	}
	g.End(3000)
	c.want(t, "a millisecond before its end", charged{"a": 70, "b": 5})
	g.End(3001)
	c.want(t, "at its end", charged{"a": 20, "b": 5})
}

// Holds end in the order of their times, whatever the order in which they were made, changed and ended.
func TestHoldsEndInTheirOrder(t *testing.T) {
	g := NewGroup(false)
	c, rnd := make(charged), rand.New(rand.NewPCG(1, 2))
	ends := make(map[string]int64)
	for i := range 2000 {
		owner := fmt.Sprint(rnd.IntN(500))
		ttl := time.Duration(1+rnd.IntN(5000)) * time.Millisecond
		switch _, known := ends[owner]; {
		case !known:
			calls(g, c, 0, statement(store.HoldNew, owner, 1, 0, ttl))
			ends[owner] = ttl.Milliseconds()
		case i%5 == 0 && ends[owner] > 0:
			calls(g, c, 0, statement(store.HoldState, owner, 0, 0, 0))
			ends[owner] = 0
		default:
			calls(g, c, 0, statement(store.HoldState, owner, 1, 0, ttl))
			if ends[owner] > 0 {
				ends[owner] = max(ends[owner], ttl.Milliseconds())
			}
		}
	}
	for nowMs := range int64(5001) {
		if g.End(nowMs); nowMs == 2500 {
			g.Trim(nowMs)
		}
		for owner, at := range ends {
			if open := c[owner] == 1; open != (at > nowMs) {
				t.Fatalf("at %d ms the hold that ends at %d ms is open: %v", nowMs, at, open)
			}
		}
	}
	if nextMs, ok := g.NextMs(); !ok || nextMs < store.HoldKeptFor.Milliseconds() {
		t.Errorf("the next is forgotten at %d, %v", nextMs, ok)
	}
}

// A lean group keeps no cell without holds. Trim leaves open holds.
func TestALeanGroupIsEmptyAfterItsHolds(t *testing.T) {
	g, c := NewGroup(true), make(charged)
	calls(g, c, 0, statement(store.HoldNew, "a", 60, 10, time.Second), statement(store.HoldNew, "b", 40, 40, time.Minute))
	calls(g, c, 1, statement(store.HoldState, "unknown", 1, 1, time.Minute))
	g.Trim(1000)
	if _, held := g.Counts(new(statement(store.HoldState, "b", 0, 0, 0))); !held || len(g.due) != 1 || len(g.cells) != 1 {
		t.Errorf("b is held: %v; %d holds, %d cells", held, len(g.due), len(g.cells))
	}
	g.End(2 * time.Minute.Milliseconds())
	if len(g.due) != 0 || len(g.cells) != 0 {
		t.Errorf("%d holds, %d cells", len(g.due), len(g.cells))
	}
}

// Changes of a clone do not affect the original.
func TestACloneSharesNothing(t *testing.T) {
	g := NewGroup(false)
	c := make(charged)
	a := statement(store.HoldNew, "a", 60, 10, time.Minute)
	calls(g, c, 0, a)
	clone := g.Clone()
	calls(g, c, 1, statement(store.HoldState, "a", 7, 7, 0))
	if counts, held := clone.Counts(&a); counts != 60 || !held || clone.Cell(minute).Sum != 60 || g.Cell(minute).Sum != 7 {
		t.Errorf("%d, held %v; sums %d and %d", counts, held, clone.Cell(minute).Sum, g.Cell(minute).Sum)
	}
	clone.End(time.Minute.Milliseconds())
	if counts, _ := clone.Counts(&a); counts != 10 || clone.Cell(minute).Sum != 10 {
		t.Errorf("after its end %d counts, of %d", counts, clone.Cell(minute).Sum)
	}
}
