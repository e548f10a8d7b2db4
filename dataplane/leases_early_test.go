package dataplane_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// A limiter decides as soon as New returns: before Start it grants leases, serves waiting requests, and calls the
// origin for them. After Start, it also renews the leases that were granted before.
func TestLeasesBeforeStart(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dataplane.Config{Region: "eu"}
			if fleet {
				cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
			}
			l, err := dataplane.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			token, d := l.AcquireToken(t.Context(), jobs(2), "", false)
			if token == "" || l.ReleaseTokens(t.Context(), token)[0] != nil {
				t.Fatalf("fleet %v: %+v", fleet, d)
			}
			first, d := l.Acquire(t.Context(), jobs(2))
			if !d.Allowed || d.Source.Degraded() {
				t.Fatalf("fleet %v: %+v", fleet, d)
			}
			short := jobs(2)
			short.TTL, short.RenewedByHolder = time.Second, true
			if _, d := l.Acquire(t.Context(), short); !d.Allowed {
				t.Fatalf("fleet %v: %+v", fleet, d)
			}
			if _, d := l.Acquire(t.Context(), jobs(2)); d.Allowed {
				t.Errorf("fleet %v: three of two: %+v", fleet, d)
			}
			var waiting sync.WaitGroup
			for range 2 {
				waiting.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					lease, d := l.AcquireWait(ctx, jobs(2))
					if !d.Allowed {
						t.Errorf("fleet %v: one who waits where a lease of 1 s ends: %+v", fleet, d)
					}
					time.Sleep(time.Second)
					lease.Release()
				})
			}
			waiting.Wait()
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if err := first.Err(); err != nil {
				t.Errorf("fleet %v: a minute after Start: %v", fleet, err)
			}
			if err := l.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A request that waits before Start does not delay Stop, which answers it.
func TestStopBeforeStartAnswersThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}).Client()})
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { l.AcquireWait(t.Context(), jobs(1)) }) // the origin is new, and grants no lease
		time.Sleep(time.Second)
		began := time.Now()
		if err := l.Stop(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		waiting.Wait()
	})
}
