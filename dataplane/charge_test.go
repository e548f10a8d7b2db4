package dataplane_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// Spent cost counts past the limit, on each node of the region, in both modes, from the next request on. Overrides
// and outage policies cannot prevent that.
func TestAChargeCountsWhateverTheLimitSays(t *testing.T) {
	for _, row := range []store.NamespaceRow{{}, {Outage: "closed"}, {Shadow: true}, {NodeShare: "wait"},
		{Mode: "estimate"}} {
		t.Run(fmt.Sprintf("%s%s%s%v", row.Mode, row.Outage, row.NodeShare, row.Shadow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := region(t, 2, memstore.NewOrigin(memstore.OriginOptions{Shards: 2}), row)
				defer stopAll(nodes)
				r := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "i", Limit: 10, Duration: time.Hour}
				for _, cost := range []int64{8, 7, 100} {
					r.Cost = cost
					if n, err := nodes[0].Charge(r); n != cost || err != nil {
						t.Errorf("charged %d, %v, want %d", n, err, cost)
					}
				}
				time.Sleep(2 * time.Second) // the cost is sent
				r.Cost = 1
				nodes[1].Allow(t.Context(), r) // in the estimate mode the first request queues a sync
				time.Sleep(2 * time.Second)
				for i, n := range nodes {
					d := n.Peek(t.Context(), r)
					if d.Current < 115 || d.Allowed != row.Shadow {
						t.Errorf("node %d: %+v after 115", i, d)
					}
				}
			})
		})
	}
}

// A charge counts in the cell of its time: also for a key that was idle for several windows, and for a key that is
// evicted meanwhile.
func TestAChargeLandsInTheCurrentCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := dataplane.New(dataplane.Config{EntriesMax: 256})
		if err != nil {
			t.Fatal(err)
		}
		r := dataplane.Request{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 10, Duration: time.Minute, Cost: 1}
		l.Allow(t.Context(), r)
		time.Sleep(time.Hour)
		var flood sync.WaitGroup
		other := r
		flood.Go(func() {
			for i := range 2000 {
				other.Identifier = fmt.Sprint("other", i)
				l.Allow(t.Context(), other)
			}
		})
		r.Cost = 12
		if n, err := l.Charge(r); n != 12 || err != nil {
			t.Errorf("charged %d, %v", n, err)
		}
		flood.Wait()
		r.Cost = 1
		if d := l.Allow(t.Context(), r); d.Allowed || d.Current < 13 {
			t.Errorf("after 12 of 10: %+v", d)
		}
		r.Cost = -1
		if _, err := l.Charge(r); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("a negative cost: %v", err)
		}
	})
}

// Metrics count the outcomes of reservations.
func TestMetricsOfReservations(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		r := dataplane.Request{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 10, Duration: time.Hour, Cost: 6}
		wantReserved(t, a, reserveFor("one", time.Minute, r), true)
		wantReserved(t, a, reserveFor("one", time.Minute, r), true)  // the same reservation again
		wantReserved(t, a, reserveFor("two", time.Minute, r), false) // 12 of 10
		got, err := a.Settle(t.Context(), "one", 7)
		wantSettled(t, "past", got, err, true, false, 7)
		got, err = a.Settle(t.Context(), "one", 7)
		wantSettled(t, "again", got, err, true, true, 7)
		if _, err := a.Settle(t.Context(), "none", 7); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Errorf("an unknown id: %v", err)
		}
		all := gather(t, a)
		for name, want := range map[string]float64{
			`weir_reservations{origin="region"}`:                   0, // both have ended
			`weir_reservations{origin="process"}`:                  0,
			`weir_reservation_requests_total{result="granted"}`:    1,
			`weir_reservation_requests_total{result="refused"}`:    1,
			"weir_reservations_settled_total":                      1,
			"weir_reservations_exceeded_total":                     1,
			`weir_reservation_calls_failed_total{cause="late"}`:    1,
			`weir_reservation_calls_failed_total{cause="unknown"}`: 1,
			`weir_reservation_calls_failed_total{cause="origin"}`:  0,
		} {
			if got, ok := all[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}
