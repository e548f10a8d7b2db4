package held_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A history is a few steps of two nodes that share an origin, and of the origin itself. Each history is played from its
// start with the real packages, and then all nodes have time to state lost reservations again.
const (
	exploreLimit = 100
	exploreCost  = 40 // so that two of three reservations fit
	exploreSpent = 10
)

// exploreStep is a step of a history.
type exploreStep struct {
	name string
	do   func(w *exploreWorld)
}

func exploreSteps() (steps []exploreStep) {
	for _, r := range []struct {
		node int
		id   string
	}{{0, "a"}, {1, "a"}, {1, "b"}, {0, "c"}} {
		steps = append(steps, exploreStep{fmt.Sprint("reserve ", r.id, " at ", r.node), func(w *exploreWorld) { w.reserve(r.node, r.id) }})
	}
	for _, r := range []struct {
		node int
		id   string
	}{{0, "a"}, {1, "a"}, {0, "b"}} {
		steps = append(steps, exploreStep{fmt.Sprint("settle ", r.id, " at ", r.node), func(w *exploreWorld) { w.settle(r.node, r.id) }})
	}
	return append(steps,
		exploreStep{"lose a call", func(w *exploreWorld) { w.loseCall = true }},
		exploreStep{"lose an answer", func(w *exploreWorld) { w.loseAnswer = true }},
		exploreStep{"promote a replica that lacks a call", func(w *exploreWorld) { w.promote(1) }},
		exploreStep{"promote a replica that lacks three calls", func(w *exploreWorld) { w.promote(3) }},
		exploreStep{"send", func(w *exploreWorld) { w.send() }},
	)
}

// exploreWorld is the state of a history.
type exploreWorld struct {
	t      *testing.T
	at     time.Time
	origin *memstore.Origin
	one    sync.Mutex // a call at a time
	nodes  [2]*held.Reservations
	states []memstore.OriginState // before each call

	loseCall, loseAnswer bool // the next call or answer
	promoted             bool

	by     map[uint64]*explored // granted reservations, by MadeBy
	failed map[string]int       // by ID: number of calls without an answer
}

// explored is a reservation as its callers see it.
type explored struct {
	id      string
	settled bool // a caller was told that it is settled
	mayBe   bool // it may be settled: an answer was lost
}

func newExploreWorld(t *testing.T) *exploreWorld {
	w := &exploreWorld{t: t, at: time.UnixMilli(1_000_000_000_000), by: make(map[uint64]*explored), failed: make(map[string]int)}
	w.origin = memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return w.at }})
	w.origin.Totals() // draws the epoch, which no promotion changes
	for i := range w.nodes {
		w.nodes[i] = &held.Reservations{
			Origin:  w.origin,
			NowMs:   func() int64 { return w.at.UnixMilli() },
			Heard:   func(int, []store.Hold, []store.Total) {},
			Go:      func(f func()) bool { f(); return true },
			Stopped: errors.New("stopped"), Busy: errors.New("busy"),
			NotBegun: func(int) func(error) error { return func(err error) error { return err } },
			Call: func(ctx context.Context, _ int, _ held.What, _ int, call func(context.Context) (store.Reply, error)) error {
				return w.call(ctx, call)
			},
		}
		if _, _, err := w.nodes[i].Change(context.Background(), "none", held.Change{}); !errors.Is(err, held.ErrNone) {
			t.Fatal(err) // the node's first call, after which it knows the epoch
		}
	}
	w.states = nil
	return w
}

var errExplored = errors.New("lost")

func (w *exploreWorld) call(ctx context.Context, call func(context.Context) (store.Reply, error)) error {
	w.one.Lock()
	defer w.one.Unlock()
	if w.loseCall {
		w.loseCall = false
		return errExplored
	}
	w.states = append(w.states, w.origin.State())
	w.origin.Faults.LoseReplies(w.loseAnswer)
	w.loseAnswer = false
	_, err := call(ctx)
	w.origin.Faults.LoseReplies(false)
	return err
}

// promote sets the origin back to its state before its last calls.
func (w *exploreWorld) promote(calls int) {
	if calls = min(calls, len(w.states)); calls == 0 {
		return
	}
	at := len(w.states) - calls
	w.origin.Rollback(w.states[at])
	w.states, w.promoted = w.states[:at], true
}

func (w *exploreWorld) reserve(node int, id string) {
	w.at = w.at.Add(30 * time.Millisecond) // later than a node remembers a refusal
	r := &held.Record{Returned: true, MadeMs: w.at.UnixMilli(), EndsMs: w.at.Add(time.Hour).UnixMilli(),
		MadeBy: uint64(w.at.UnixNano()), Items: []held.Item{{Workspace: "w", Namespace: "n", Identifier: "k",
			DurationMs: window.DurationMax.Milliseconds(), Limit: exploreLimit, Held: exploreCost, Sequence: window.Sequence(
				w.at.UnixMilli(), window.DurationMax.Milliseconds())}}}
	judge := func(answers []store.HoldAnswer, _ bool) (bool, error) {
		return !slices.ContainsFunc(answers, func(a store.HoldAnswer) bool { return !a.Fits }), nil
	}
	is, ok, err := w.nodes[node].Reserve(context.Background(), id, r, judge)
	if errors.As(err, new(held.Away)) {
		w.failed[id]++
	}
	if ok && w.by[is.MadeBy] == nil {
		w.by[is.MadeBy] = &explored{id: id}
		w.wantWithinLimit()
	}
}

// wantWithinLimit checks that the granted cost is within the limit, as long as the origin has lost nothing.
func (w *exploreWorld) wantWithinLimit() {
	total := 0
	for _, is := range w.by {
		switch {
		case is.settled || is.mayBe:
			total += exploreSpent
		default:
			total += exploreCost
		}
	}
	if total > exploreLimit && !w.promoted {
		w.t.Errorf("%d of %d are granted", total, exploreLimit)
	}
}

func (w *exploreWorld) settle(node int, id string) {
	r, late, err := w.nodes[node].Change(context.Background(), id, held.Change{Spent: []int64{exploreSpent}, Settled: true})
	switch {
	case errors.Is(err, held.ErrNone):
	case err != nil:
		w.failed[id]++
		for _, is := range w.by {
			is.mayBe = is.mayBe || is.id == id
		}
	case w.by[r.MadeBy] == nil: // the answer to its maker was lost
		w.by[r.MadeBy] = &explored{id: id, settled: true}
	default:
		is := w.by[r.MadeBy]
		if late && !is.mayBe && !is.settled {
			w.t.Errorf("%s was settled before it was", id)
		}
		is.settled = true
	}
}

func (w *exploreWorld) send() {
	w.at = w.at.Add(time.Second)
	for _, n := range w.nodes {
		_ = n.Send(context.Background())
	}
}

// wantCounted checks that the origin's counts in the end agree with the answers that callers got.
func (w *exploreWorld) wantCounted() {
	w.loseCall, w.loseAnswer = false, false
	for range 3 {
		w.send()
	}
	low, high := int64(0), int64(0)
	for _, n := range w.failed {
		if n > 1 { // one caller may have found the other's reservation: then it is not withdrawn, and ends by itself
			high += exploreCost
		}
	}
	for _, is := range w.by {
		switch {
		case is.settled:
			low, high = low+exploreSpent, high+exploreSpent
		case is.mayBe:
			low, high = low+exploreSpent, high+exploreCost
		default:
			low, high = low+exploreCost, high+exploreCost
		}
	}
	cell := window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "k", Duration: window.DurationMax},
		Sequence: window.Sequence(w.at.UnixMilli(), window.DurationMax.Milliseconds())}
	reply, err := w.origin.Hold(context.Background(), store.HoldCall{Group: cell.Key, Stream: 1,
		Holds: []store.Hold{{Owner: "probe", Cell: cell, TTL: time.Minute}}})
	if err != nil {
		w.t.Fatal(err)
	}
	if used := reply.Answers[0].Used; used < low || used > high {
		w.t.Errorf("%d are counted, want %d to %d: %+v", used, low, high, w.by)
	}
}

// In all histories of four steps, and all of five that begin with a reservation, whatever is lost or repeated, the
// limit holds. In the end the origin's counts agree with the answers that callers got.
//
//weir:unraced
func TestAllShortHistoriesOfReservations(t *testing.T) {
	steps := exploreSteps()
	n := 0
	var history []exploreStep
	var explore func(depth int)
	explore = func(depth int) {
		if t.Failed() {
			return
		}
		if depth == 0 {
			n++
			w := newExploreWorld(t)
			for _, s := range history {
				s.do(w)
			}
			w.wantCounted()
			if t.Failed() {
				var names []string
				for _, s := range history {
					names = append(names, s.name)
				}
				t.Log(strings.Join(names, ", "))
			}
			return
		}
		for _, s := range steps {
			history = append(history, s)
			explore(depth - 1)
			history = history[:len(history)-1]
		}
	}
	for _, first := range steps[:4] {
		history = append(history[:0], first)
		explore(4)
	}
	t.Logf("%d histories", n)
}
