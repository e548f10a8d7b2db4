package sim

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Every check finds the fault that it is made for, and names it.
//
//weir:unraced
func TestChecksFindPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		plant  plant
		change func(w *world)
		want   violation
	}{
		"an origin that loses increments": {
			plant: plant{origin: func(h store.FullOrigin) store.FullOrigin { return &lossyOrigin{FullOrigin: h} }},
			want:  violationLost,
		},
		"an origin that counts twice": {
			plant: plant{origin: func(h store.FullOrigin) store.FullOrigin { return doublingOrigin{h} }},
			want:  violationCounted,
		},
		"a relay that tells too much": {
			plant: plant{origin: func(h store.FullOrigin) store.FullOrigin { return inflating{h} }},
			want:  violationPublished,
		},
		"a request that no limiter takes": {
			change: func(w *world) { w.ledger.order[0].limit = -1 },
			want:   violationError,
		},
		"a table with too many keys": {
			change: func(w *world) { w.shape.EntriesMax = 1 },
			want:   violationTable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := lookup(t, "steady")
			if c.change != nil {
				plan := s.plan
				s.plan = func(w *world, d time.Duration) agenda {
					g := plan(w, d)
					c.change(w)
					return g
				}
			}
			r := simulate(t, s, Options{Duration: 70 * time.Second, plant: c.plant})
			if !promised(r, c.want) {
				t.Errorf("%q is not found: %+v", c.want, r.Violations)
			}
			if c.want == violationLost && r.LostCost == 0 || c.want == violationCounted && r.DoubledCost == 0 {
				t.Errorf("lost %d, doubled %d", r.LostCost, r.DoubledCost)
			}
		})
	}
}

func promised(r Report, v violation) bool {
	for _, found := range r.Violations {
		if found.Promise == string(v) && found.Times > 0 && found.First != "" {
			return true
		}
	}
	return false
}

// lossyOrigin answers as if it had counted, but forgets the costs of one send in ten. It stores the chunk's number,
// because otherwise the stream would notice that a whole chunk is missing, and send it again.
type lossyOrigin struct {
	store.FullOrigin
	sends atomic.Int64
}

func (h *lossyOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if h.sends.Add(1)%10 != 0 || chunk.Bounded() {
		return h.FullOrigin.Send(ctx, chunk)
	}
	costs := chunk.Costs
	chunk.Costs = slices.Clone(costs)
	for i := range chunk.Costs {
		chunk.Costs[i].Add = 0
	}
	reply, err := h.FullOrigin.Send(ctx, chunk)
	for i := range reply.Totals {
		reply.Totals[i].Region += costs[i].Add
	}
	return reply, err
}

// doublingOrigin counts every chunk twice, and returns the doubled totals.
type doublingOrigin struct{ store.FullOrigin }

func (h doublingOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	again := chunk
	again.Stream = ^chunk.Stream
	if _, err := h.FullOrigin.Send(ctx, again); err != nil {
		return store.Reply{}, err
	}
	return h.FullOrigin.Send(ctx, chunk)
}

// inflating raises a region's foreign totals above the cost that the others have accepted.
type inflating struct{ store.FullOrigin }

func (h inflating) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	for i := range totals {
		totals[i].Count += 1000
	}
	return h.FullOrigin.Apply(ctx, shard, totals)
}

// A region may publish at most the cost that it accepted, plus the cost that may have been sent twice.
func TestCeiling(t *testing.T) {
	l := newLedger(time.Now(), 2, 2)
	r := request("a", 100, time.Minute)
	a := l.open("all", r, 0, 1)
	reset := time.Now().Truncate(time.Minute).Add(time.Minute)
	l.enter(a, 0, 7, &dataplane.Decision{Allowed: true, ResetAt: reset})
	l.enter(a, 0, 7, &dataplane.Decision{Allowed: false, ResetAt: reset})
	cell := window.Cell{Key: a.key, Sequence: reset.UnixMilli()/60_000 - 1}
	if got := l.ceiling(0, cell); got != 7 {
		t.Errorf("the ceiling is %d of 7 accepted", got)
	}
	l.repeatable(0, cell, 5)
	if got := l.ceiling(0, cell); got != 12 {
		t.Errorf("the ceiling is %d of 7 accepted and 5 that may come again", got)
	}
	if got := l.ceiling(1, cell); got != 0 {
		t.Errorf("the other region's ceiling is %d", got)
	}
}

// A delay is the time from a region's acceptance of a cost until a node of another region receives as much. A cost that
// is never received counts as unknown.
func TestDelaysAreMeasured(t *testing.T) {
	l := newLedger(time.Now().Add(-10*time.Second), 2, 2)
	a := l.open("all", request("a", 10, time.Minute), 0, 1)
	reset := time.Now().Truncate(time.Minute).Add(time.Minute)
	for range 9 {
		l.enter(a, 0, 1, &dataplane.Decision{Allowed: true, ResetAt: reset})
	}
	c := a.cells[0]
	for i := range c.marks {
		c.marks[i].at = time.Duration(i) * time.Second // accepted at 0 s to 8 s
	}
	c.used[1] = 0
	cell := window.Cell{Key: a.key, Sequence: c.sequence}
	l.applied(1, 1, cell, 3)
	l.applied(1, 1, cell, 3) // nothing new
	all := l.all.summary()
	if all.Samples != 3 || all.P50 < 9000 || all.P99 < 10_000 || all.P99 > 12_000 {
		t.Errorf("%+v of three units, 10, 9 and 8 s old", all)
	}
	l.missed(a, c, func(region int) []int { return []int{region} })
	if all = l.all.summary(); all.UnknownShare != 0.6667 {
		t.Errorf("unknown share %v of 6 in 9", all.UnknownShare)
	}
	if hot := l.hot.summary(); hot.Samples != 0 || hot.UnknownShare != 1 {
		t.Errorf("the two past 80 %%: %+v", hot)
	}
}

// A region that begins to use a key should have received the others' cost by then, or soon afterwards. So no delay
// begins before that time, and a cost that has arrived by then has no delay.
func TestDelaysBeginWithTheUseOfTheKey(t *testing.T) {
	l := newLedger(time.Now(), 2, 2)
	a := l.open("all", request("a", 10, time.Minute), 0, 1)
	let := &dataplane.Decision{Allowed: true, ResetAt: time.Now().Truncate(time.Minute).Add(time.Minute)}
	for range 3 {
		l.enter(a, 0, 1, let)
	}
	c := a.cells[0]
	cell := window.Cell{Key: a.key, Sequence: c.sequence}
	l.applied(1, 1, cell, 1)
	if before := l.all.summary(); before.Samples != 0 || l.fromAccepted.summary().Samples != 1 {
		t.Errorf("before the region uses the key: %+v", before)
	}
	l.began = l.began.Add(-20 * time.Second) // 20 s pass
	l.enter(a, 1, 1, let)
	l.began = l.began.Add(-time.Second)
	l.applied(1, 1, cell, 2)
	if due, all := l.all.summary(), l.fromAccepted.summary(); due.Samples != 1 || due.P99 < 1000 || due.P99 > 5000 || all.P99 < 21_000 {
		t.Errorf("a second after the region began to use it, and 21 s after the cost: %+v, %+v", due, all)
	}
	l.missed(a, c, func(region int) []int { return []int{region} })
	if due, all := l.all.summary(), l.fromAccepted.summary(); due.UnknownShare != 0.6667 || all.UnknownShare != 0.5 {
		t.Errorf("one cost of each region is unknown to the other: %+v, %+v", due, all)
	}
}
