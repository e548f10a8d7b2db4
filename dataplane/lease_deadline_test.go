package dataplane_test

import (
	"context"
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

// A call about a token waits for a hung origin no longer than Config.ReadTimeout, and no longer than its context,
// also if its tokens are in several shards.
func TestAHungOriginHoldsUpNoToken(t *testing.T) {
	calls := map[string]func(ctx context.Context, l *dataplane.Limiter, tokens []string){
		"acquire": func(ctx context.Context, l *dataplane.Limiter, _ []string) { l.AcquireToken(ctx, jobs(1), "", false) },
		"wait":    func(ctx context.Context, l *dataplane.Limiter, _ []string) { l.AcquireToken(ctx, jobs(1), "", true) },
		"renew":   func(ctx context.Context, l *dataplane.Limiter, tokens []string) { l.RenewTokens(ctx, 0, tokens...) },
		"release": func(ctx context.Context, l *dataplane.Limiter, tokens []string) { l.ReleaseTokens(ctx, tokens...) },
	}
	for name, call := range calls {
		for _, within := range []time.Duration{20 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " within ", within), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					way := memstore.NewOrigin(memstore.OriginOptions{Shards: 4}).Client()
					l := acquirer(t, dataplane.Config{Region: "eu", Origin: way})
					time.Sleep(11 * time.Second)
					var tokens []string
					for i := range 8 {
						r := jobs(1)
						r.Identifier = fmt.Sprint(i)
						token, d := l.AcquireToken(t.Context(), r, "", false)
						if token == "" {
							t.Fatal(d)
						}
						tokens = append(tokens, token)
					}
					way.Faults.Delay(time.Hour)
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					began := time.Now()
					call(ctx, l, tokens)
					most := within
					if name != "wait" {
						most = min(within, 50*time.Millisecond)
					}
					if took := time.Since(began); took > most {
						t.Errorf("took %v, at most %v", took, most)
					}
				})
			})
		}
	}
}

// A call goes on after its caller has left. A slot that it is granted under a drawn id, which no caller has, is
// handed back.
func TestALateGrantIsHandedBack(t *testing.T) {
	for _, wait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
			l := acquirer(t, dataplane.Config{Region: "eu", Origin: way})
			time.Sleep(11 * time.Second)
			way.Faults.Delay(200 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			r := jobs(1)
			r.TTL = dataplane.LeaseTTLMax
			if token, d := l.AcquireToken(ctx, r, "", wait); token != "" {
				t.Fatalf("wait %v: %+v", wait, d)
			}
			way.Faults.Delay(0)
			time.Sleep(time.Second)
			if token, d := l.AcquireToken(t.Context(), r, "", false); token == "" {
				t.Errorf("wait %v: a second later: %+v", wait, d)
			}
		})
	}
}

// A waiting request whose first calls are answered too late keeps the lease that a later call is granted.
func TestALateGrantOfOneWhoWaitsIsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
		l := acquirer(t, dataplane.Config{Region: "eu", Origin: way})
		time.Sleep(11 * time.Second)
		way.Faults.Delay(200 * time.Millisecond)
		time.AfterFunc(100*time.Millisecond, func() { way.Faults.Delay(0) })
		token, d := l.AcquireToken(t.Context(), jobs(1), "", true)
		if token == "" {
			t.Fatalf("%+v", d)
		}
		time.Sleep(time.Second)
		if err := l.RenewTokens(t.Context(), 0, token)[0]; err != nil {
			t.Error(err)
		}
	})
}

// An origin that answers no call hangs, however many requests wait to call it: it is an outage, and the node is not
// busy.
func TestAHungOriginIsNotABusyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Outage: "open"})
		way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
		l := acquirer(t, dataplane.Config{Region: "eu", Origin: way, Settings: counts})
		time.Sleep(11 * time.Second)
		way.Faults.Delay(time.Hour)
		var calls sync.WaitGroup
		for i := range 500 {
			calls.Go(func() {
				_, d := l.AcquireToken(t.Context(), jobs(5), fmt.Sprint(i), false)
				if !d.Allowed || d.Source != dataplane.SourceDegradedOpen {
					t.Errorf("%+v", d)
				}
				if err := l.ReleaseTokens(t.Context(), "x")[0]; errors.Is(err, dataplane.ErrBusy) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	})
}

// A wait that ends during a call ends without a lease. It is no outage, so an open namespace does not let it pass.
func TestAWaitThatEndsDuringACallIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Outage: "open"})
		way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
		l := acquirer(t, dataplane.Config{Region: "eu", Origin: way, Settings: counts})
		time.Sleep(11 * time.Second)
		r := jobs(1)
		r.TTL = dataplane.LeaseTTLMax
		if token, d := l.AcquireToken(t.Context(), r, "first", false); token == "" {
			t.Fatalf("%+v", d)
		}
		way.Faults.Delay(30 * time.Millisecond)
		for ms := range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			if _, d := l.AcquireToken(ctx, r, "second", true); d.Allowed || d.Err != nil {
				t.Errorf("after %d ms: %+v", ms, d)
			}
			cancel()
		}
	})
}
