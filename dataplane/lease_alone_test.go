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
)

// A process without an origin answers AcquireToken as an origin does: the same id again returns the same lease, its
// time to live, and the number of held leases.
func TestARepeatedTokenIsTheSameLease(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dataplane.Config{Region: "eu"}
			if fleet {
				cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
			}
			l := acquirer(t, cfg)
			time.Sleep(11 * time.Second)
			r := jobs(5)
			r.TTL = 10 * time.Second
			for _, id := range []string{"a", "b", "c"} {
				if token, d := l.AcquireToken(t.Context(), r, id, false); token == "" {
					t.Fatalf("fleet %v: %+v", fleet, d)
				}
			}
			for _, wait := range []bool{false, true} {
				time.Sleep(time.Second)
				token, d := l.AcquireToken(t.Context(), r, "a", wait)
				if token == "" || d.TTL != 10*time.Second || d.Held != 3 || d.Remaining != 2 {
					t.Errorf("fleet %v, wait %v: %+v", fleet, wait, d)
				}
			}
		})
	}
}

// Concurrent calls with the same id share one slot, whether they wait or not and however few slots there are, and a
// single release frees it.
func TestCallsWithOneIDHaveOneSlot(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		for limit := int64(1); limit <= 2; limit++ {
			synctest.Test(t, func(t *testing.T) {
				cfg := dataplane.Config{Region: "eu"}
				if fleet {
					cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
				}
				l := acquirer(t, cfg)
				time.Sleep(11 * time.Second)
				r := jobs(limit)
				r.TTL = dataplane.LeaseTTLMax
				var held []dataplane.Lease
				for range limit {
					lease, d := l.Acquire(t.Context(), r)
					if !d.Allowed {
						t.Fatalf("%+v", d)
					}
					held = append(held, lease)
				}
				tokens := make([]string, 3)
				var calls sync.WaitGroup
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for i := range tokens {
					calls.Go(func() {
						var d dataplane.ConcurrencyDecision
						if tokens[i], d = l.AcquireToken(ctx, r, "job", true); tokens[i] == "" {
							t.Errorf("fleet %v, limit %d: %+v", fleet, limit, d)
						}
					})
				}
				synctest.Wait()
				if token, d := l.AcquireToken(ctx, r, "job", false); token != "" || d.Err != nil {
					t.Errorf("fleet %v, limit %d: one that does not wait: %+v", fleet, limit, d)
				}
				for _, lease := range held {
					lease.Release()
				}
				calls.Wait()
				time.Sleep(time.Second)
				for i := range limit - 1 {
					if token, d := l.AcquireToken(ctx, r, fmt.Sprint(i), false); token == "" {
						t.Errorf("fleet %v: one id has two slots: %+v", fleet, d)
					}
				}
				if err := l.ReleaseTokens(t.Context(), tokens[1])[0]; err != nil {
					t.Error(err)
				}
				if token, d := l.AcquireToken(ctx, r, "other", false); token == "" {
					t.Errorf("fleet %v, limit %d: after the release: %+v", fleet, limit, d)
				}
			})
		}
	}
}

// If the first call with an id gives up, another waiting call with the id goes on by itself.
func TestACallOutlivesAnotherWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		r := jobs(1)
		first, d := l.Acquire(t.Context(), r)
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if token, d := l.AcquireToken(ctx, r, "job", true); token != "" || d.Allowed {
				t.Errorf("the first call: %+v", d)
			}
		})
		synctest.Wait()
		calls.Go(func() {
			if token, d := l.AcquireToken(t.Context(), r, "job", true); token == "" {
				t.Errorf("the second call: %+v", d)
			}
		})
		time.Sleep(2 * time.Second)
		first.Release()
		calls.Wait()
	})
}

// Neither renewing a token nor acquiring it again ever shortens its lease.
func TestRenewingNeverShortens(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dataplane.Config{Region: "eu"}
			if fleet {
				cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
			}
			l := acquirer(t, cfg)
			time.Sleep(11 * time.Second)
			r := jobs(1)
			r.TTL = time.Minute
			token, d := l.AcquireToken(t.Context(), r, "job", false)
			if token == "" {
				t.Fatalf("%+v", d)
			}
			if err := l.RenewTokens(t.Context(), time.Second, token)[0]; err != nil {
				t.Error(err)
			}
			r.TTL = 2 * time.Second
			if token, d := l.AcquireToken(t.Context(), r, "job", false); token == "" {
				t.Errorf("%+v", d)
			}
			time.Sleep(59 * time.Second)
			if _, d := l.Acquire(t.Context(), r); d.Allowed {
				t.Errorf("fleet %v: the lease has ended too early", fleet)
			}
			if err := l.RenewTokens(t.Context(), time.Minute, token)[0]; err != nil {
				t.Errorf("fleet %v: %v", fleet, err)
			}
		})
	}
}

// An origin that was emptied accepts nodes' statements about their leases. Nodes must not renew there a lease that
// they have released, or that the origin has reported as lost.
func TestAnEndedTokenIsNotRevived(t *testing.T) {
	for _, released := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			l := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
			time.Sleep(11 * time.Second)
			token, d := l.AcquireToken(t.Context(), jobs(1), "job", false)
			if token == "" {
				t.Fatalf("%+v", d)
			}
			if released {
				if err := l.ReleaseTokens(t.Context(), token)[0]; err != nil {
					t.Fatal(err)
				}
			} else {
				time.Sleep(11 * time.Second)
				if err := l.RenewTokens(t.Context(), 0, token)[0]; !errors.Is(err, dataplane.ErrLeaseLost) {
					t.Fatal(err)
				}
			}
			origin.Wipe()
			time.Sleep(2 * time.Second)
			if err := l.RenewTokens(t.Context(), 0, token)[0]; !errors.Is(err, dataplane.ErrLeaseLost) {
				t.Errorf("released %v: %v", released, err)
			}
			time.Sleep(9 * time.Second)
			if _, d := l.AcquireToken(t.Context(), jobs(1), "other", false); !d.Allowed {
				t.Errorf("released %v: %+v", released, d)
			}
		})
	}
}

// A held lease survives the loss of the origin's data, also at nodes that have not used it for long.
func TestAHeldTokenOutlivesTheOriginsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		a := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
		b := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
		time.Sleep(11 * time.Second)
		token, d := a.AcquireToken(t.Context(), jobs(1), "job", false)
		if token == "" {
			t.Fatalf("%+v", d)
		}
		for range 10 {
			time.Sleep(5 * time.Second)
			if err := b.RenewTokens(t.Context(), 0, token)[0]; err != nil {
				t.Fatal(err)
			}
		}
		origin.Wipe()
		if err := a.RenewTokens(t.Context(), 0, token)[0]; err != nil {
			t.Error(err)
		}
	})
}

// Renewing all leases of a key takes as long for each as acquiring it.
func TestRenewalsOfAKeyAreNotQuadratic(t *testing.T) {
	l := acquirer(t, dataplane.Config{})
	const n = 50_000
	r := jobs(n)
	r.TTL, r.RenewedByHolder = dataplane.LeaseTTLMax, true
	leases := make([]dataplane.Lease, n)
	began := time.Now()
	for i := range leases {
		leases[i], _ = l.Acquire(t.Context(), r)
	}
	acquired := time.Since(began)
	began = time.Now()
	for i := range leases {
		if err := leases[i].Renew(dataplane.LeaseTTLMax); err != nil {
			t.Fatal(err)
		}
	}
	if renewed := time.Since(began); renewed > 20*acquired {
		t.Errorf("%d leases were acquired in %v, and renewed in %v", n, acquired, renewed)
	}
}

// A lost lease can be acquired again under its id, at any node, and can then be renewed at all of them.
func TestALostIDIsAcquiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		a := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
		b := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
		time.Sleep(11 * time.Second)
		first, d := a.AcquireToken(t.Context(), jobs(1), "job", false)
		if first == "" {
			t.Fatalf("%+v", d)
		}
		time.Sleep(11 * time.Second)
		if err := a.RenewTokens(t.Context(), 0, first)[0]; !errors.Is(err, dataplane.ErrLeaseLost) {
			t.Fatal(err)
		}
		second, d := b.AcquireToken(t.Context(), jobs(1), "job", false)
		if second == "" {
			t.Fatalf("%+v", d)
		}
		if err := a.RenewTokens(t.Context(), 0, second)[0]; err != nil {
			t.Error(err)
		}
	})
}
