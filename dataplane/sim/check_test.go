package sim

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Every check finds the fault that it is there for, and names it.
func TestChecksFindPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		plant  plant
		change func(w *world)
		want   violation
	}{
		"an origin that loses increments": {
			plant: plant{origin: func(o store.Origin) store.Origin { return &lossyOrigin{Origin: o} }},
			want:  violationLost,
		},
		"an origin that counts twice": {
			plant: plant{origin: func(o store.Origin) store.Origin { return doublingOrigin{o} }},
			want:  violationCounted,
		},
		"a count store that inflates rows": {
			plant: plant{counts: func(c store.CountStore) store.CountStore { return inflating{c} }},
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
			set := tuning.Default()
			set.DigestInterval = 0 // rows are imported as they are published
			r := simulate(t, s, Options{Duration: 70 * time.Second, plant: c.plant, Tuning: &set})
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

// lossyOrigin answers as if it had counted, and forgets one send in ten.
type lossyOrigin struct {
	store.Origin
	sends int
}

func (o *lossyOrigin) Add(ctx context.Context, adds []store.Add) []store.Added {
	if o.sends++; o.sends%10 != 0 {
		return o.Origin.Add(ctx, adds)
	}
	added := make([]store.Added, len(adds))
	for i, a := range adds {
		totals, err := o.Origin.Read(ctx, cellsOf(adds[i:i+1]))
		if err != nil {
			return o.Origin.Add(ctx, adds)
		}
		added[i].Total = totals[0] + a.Cost
	}
	return added
}

func cellsOf(adds []store.Add) (cells []window.Cell) {
	for _, a := range adds {
		cells = append(cells, a.Cell)
	}
	return cells
}

// doublingOrigin counts every increment twice, and admits it.
type doublingOrigin struct{ store.Origin }

func (o doublingOrigin) Add(ctx context.Context, adds []store.Add) []store.Added {
	o.Origin.Add(ctx, adds)
	return o.Origin.Add(ctx, adds)
}

// inflating tells each region that it has published more than it has.
type inflating struct{ store.CountStore }

func (c inflating) Import(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (store.Cursor, error) {
	return c.CountStore.Import(ctx, region, nowMs, after, func(in store.Imported) {
		in.Own += 10
		yield(in)
	})
}

// What a node may publish ends with what its region accepted and what may have been
// sent twice.
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
	l.repeatable(0, []store.Add{{Cell: cell, Cost: 5}})
	if got := l.ceiling(0, cell); got != 12 {
		t.Errorf("the ceiling is %d of 7 accepted and 5 that may come again", got)
	}
	if got := l.ceiling(1, cell); got != 0 {
		t.Errorf("the other region's ceiling is %d", got)
	}
}

// A delay is what passed between a region's accepting and another's node being handed
// as much; what is never handed over is counted as unknown.
func TestDelaysAreMeasured(t *testing.T) {
	l := newLedger(time.Now().Add(-10*time.Second), 2, 2)
	a := l.open("all", request("a", 10, time.Minute), 0, 1)
	reset := time.Now().Truncate(time.Minute).Add(time.Minute)
	for range 9 {
		l.enter(a, 0, 1, &dataplane.Decision{Allowed: true, ResetAt: reset})
	}
	c := a.cells[0]
	for i := range c.lines[0].marks {
		c.lines[0].marks[i].at = time.Duration(i) * time.Second // accepted at 0 s to 8 s
	}
	cell := window.Cell{Key: a.key, Sequence: c.sequence}
	l.told(1, 1, cell, []int64{3, -1})
	l.told(1, 1, cell, []int64{3, -1}) // nothing new
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
