package dataplane_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A node that already makes as many calls as it may has not lost its origin. It denies with ErrBusy, whatever the
// outage policy is, and the leases of all nodes together stay within the limit.
func TestABusyNodeDenies(t *testing.T) {
	for _, outage := range []string{"local", "open", "closed"} {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 30
				counts := memstore.NewCounts(memstore.CountsOptions{})
				counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Outage: outage})
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				var nodes []*dataplane.Limiter
				for range 3 {
					way := origin.Client()
					way.Faults.Delay(400 * time.Millisecond)
					nodes = append(nodes, acquirer(t, dataplane.Config{Region: "eu", Origin: way, Settings: counts,
						ReadTimeout: time.Second}))
				}
				time.Sleep(11 * time.Second) // after that a new origin grants leases
				var granted, busy atomic.Int64
				var calls sync.WaitGroup
				for n, l := range nodes {
					for i := range 50 * runtime.GOMAXPROCS(0) {
						calls.Go(func() {
							_, d := l.AcquireToken(t.Context(), jobs(limit), fmt.Sprint(n, "-", i), false)
							switch {
							case d.Allowed:
								granted.Add(1)
							case errors.Is(d.Err, dataplane.ErrBusy):
								busy.Add(1)
								if d.RetryAfter <= 0 {
									t.Errorf("a busy node names no time: %+v", d)
								}
							case d.Err != nil || d.Source.Degraded():
								t.Errorf("%+v", d)
							}
						})
					}
				}
				calls.Wait()
				if granted.Load() > limit || busy.Load() == 0 {
					t.Errorf("%d of %d granted, and %d calls denied as busy", granted.Load(), limit, busy.Load())
				}
			})
		})
	}
}
