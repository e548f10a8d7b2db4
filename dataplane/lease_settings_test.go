package dataplane_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// queued is a limiter whose key has an override, with requests that wait for a lease of the key.
type queued struct {
	*dataplane.Limiter
	t      *testing.T
	counts *memstore.Counts
	tokens bool // the requests are for tokens
}

// eachWay runs a test with a single process and in a fleet, with leases of this process and with tokens.
func eachWay(t *testing.T, test func(t *testing.T, w *queued)) {
	for _, fleet := range []bool{false, true} {
		for _, tokens := range []bool{false, true} {
			t.Run(fmt.Sprintf("fleet %v, tokens %v", fleet, tokens), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					counts := memstore.NewCounts(memstore.CountsOptions{})
					cfg := dataplane.Config{Region: "eu", Settings: counts}
					if fleet {
						cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
					}
					w := &queued{acquirer(t, cfg), t, counts, tokens}
					time.Sleep(11 * time.Second)
					test(t, w)
				})
			})
		}
	}
}

// override sets the key's limit with an override.
func (w *queued) override(limit int64) {
	w.t.Helper()
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "jobs", Pattern: "export", Limit: limit})
	if err := w.RefreshSettings(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// acquire waits for a lease until ctx ends.
func (w *queued) acquire(ctx context.Context, limit int64) dataplane.ConcurrencyDecision {
	r := jobs(limit)
	r.TTL = dataplane.LeaseTTLMax
	if w.tokens {
		_, d := w.AcquireToken(ctx, r, "", true)
		return d
	}
	_, d := w.AcquireWait(ctx, r)
	return d
}

// A raised limit serves waiting requests at once, although no lease is released.
func TestARaisedLimitServesThoseWhoWait(t *testing.T) {
	eachWay(t, func(t *testing.T, w *queued) {
		w.override(1)
		if d := w.acquire(t.Context(), 1); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		var waiters sync.WaitGroup
		began := time.Now()
		for range 3 {
			waiters.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if d := w.acquire(ctx, 1); !d.Allowed || d.Limit != 10 || d.Override != "export" {
					t.Errorf("%+v", d)
				}
			})
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		w.override(10)
		waiters.Wait()
		if took := time.Since(began); took > 10100*time.Millisecond {
			t.Errorf("served after %v, of which 10 s at a limit of 1", took)
		}
		if d := w.acquire(t.Context(), 1); !d.Allowed {
			t.Errorf("the fifth of ten: %+v", d)
		}
	})
}

// A limit of 0 denies waiting requests at once, and shadow mode lets them pass.
func TestALimitOfNothingDeniesThoseWhoWait(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		eachWay(t, func(t *testing.T, w *queued) {
			w.override(1)
			if d := w.acquire(t.Context(), 1); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			var waiters sync.WaitGroup
			began := time.Now()
			for range 3 {
				waiters.Go(func() {
					d := w.acquire(t.Context(), 1)
					if d.Err != nil || d.Allowed != shadow || d.Shadowed != shadow {
						t.Errorf("%+v", d)
					}
				})
			}
			synctest.Wait()
			if shadow {
				w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Shadow: true})
				w.override(1)
			} else {
				w.override(0)
			}
			waiters.Wait()
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("after %v", took)
			}
		})
	}
}

// A waiting request with a small limit of its own does not delay a request with a larger limit, and is served when
// its own limit has room.
func TestASmallLimitHoldsUpNobody(t *testing.T) {
	for _, small := range []int64{0, 1} {
		eachWay(t, func(t *testing.T, w *queued) {
			lease, d := w.Acquire(t.Context(), jobs(10))
			if !d.Allowed {
				t.Fatalf("%+v", d)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var waiters sync.WaitGroup
			waiters.Go(func() {
				if d := w.acquire(ctx, small); d.Allowed != (small > 0) {
					t.Errorf("a limit of %d: %+v", small, d)
				}
			})
			synctest.Wait()
			other, d := w.Acquire(t.Context(), jobs(10))
			if !d.Allowed {
				t.Errorf("one of 10 is held: %+v", d)
			}
			waits, d := w.AcquireWait(ctx, jobs(10))
			if !d.Allowed {
				t.Errorf("two of 10 are held: %+v", d)
			}
			for _, l := range []dataplane.Lease{lease, other, waits} {
				l.Release()
			}
			waiters.Wait()
		})
	}
}

// Changes of settings keep the order of waiting requests.
func TestThoseWhoWaitKeepTheirOrder(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			counts := memstore.NewCounts(memstore.CountsOptions{})
			l := acquirer(t, dataplane.Config{Region: "eu", Settings: counts,
				Origin: memstore.NewOrigin(memstore.OriginOptions{}).Client()})
			w := &queued{l, t, counts, tokens}
			time.Sleep(11 * time.Second)
			w.override(0)
			w.override(1)
			first, d := l.Acquire(t.Context(), jobs(1))
			if !d.Allowed {
				t.Fatalf("%+v", d)
			}
			var order strings.Builder
			var mu sync.Mutex
			var waiters sync.WaitGroup
			for i := range 8 {
				waiters.Go(func() {
					var release func()
					if tokens {
						token, _ := l.AcquireToken(t.Context(), jobs(1), "", true)
						release = func() { l.ReleaseTokens(t.Context(), token) }
					} else {
						lease, _ := l.AcquireWait(t.Context(), jobs(1))
						release = lease.Release
					}
					mu.Lock()
					fmt.Fprint(&order, i)
					mu.Unlock()
					release()
				})
				synctest.Wait()
			}
			counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Outage: "open"})
			w.override(1)
			synctest.Wait()
			first.Release()
			waiters.Wait()
			if got := order.String(); got != "01234567" {
				t.Errorf("tokens %v: served in the order %s", tokens, got)
			}
		})
	}
}

// In shadow mode a request that would have to wait passes at once.
func TestNobodyWaitsInShadowMode(t *testing.T) {
	eachWay(t, func(t *testing.T, w *queued) {
		w.override(1)
		if d := w.acquire(t.Context(), 1); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Shadow: true})
		w.override(1)
		began := time.Now()
		if d := w.acquire(t.Context(), 1); !d.Shadowed || time.Since(began) > 0 {
			t.Errorf("after %v: %+v", time.Since(began), d)
		}
	})
}
