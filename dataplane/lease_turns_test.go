package dataplane_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// A node whose own callers always want more leaves slots to requests that the origin refuses: to holders by id, and
// to another node, also if no relay reports the number of nodes. They wait at most 2 s longer than their turn.
func TestABusyNodeStarvesNobody(t *testing.T) {
	type waiter func(ctx context.Context, other *dataplane.Limiter, r dataplane.ConcurrencyRequest) (release func(), ok bool)
	waiters := map[string]waiter{
		"by id": func(ctx context.Context, other *dataplane.Limiter, r dataplane.ConcurrencyRequest) (func(), bool) {
			token, _ := other.AcquireToken(ctx, r, "", true)
			return func() { other.ReleaseTokens(ctx, token) }, token != ""
		},
		"another node": func(ctx context.Context, other *dataplane.Limiter, r dataplane.ConcurrencyRequest) (func(), bool) {
			lease, d := other.AcquireWait(ctx, r)
			return lease.Release, d.Allowed
		},
	}
	for name, wait := range waiters {
		for _, waits := range []bool{false, true} {
			for taken := range 2 { // slots that others hold for long
				t.Run(fmt.Sprintf("%s, the busy wait %v, %d taken", name, waits, taken), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						busy := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
						other := acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
						time.Sleep(11 * time.Second)
						r := jobs(int64(1 + 4*taken))
						long := r
						long.TTL = dataplane.LeaseTTLMax
						for range 3 * taken {
							if token, d := other.AcquireToken(t.Context(), long, "", false); token == "" {
								t.Fatalf("%+v", d)
							}
						}
						ctx, cancel := context.WithCancel(t.Context())
						var workers sync.WaitGroup
						defer workers.Wait()
						defer cancel()
						for range 8 {
							workers.Go(func() {
								for ctx.Err() == nil {
									acquire := busy.Acquire
									if waits {
										acquire = busy.AcquireWait
									}
									lease, d := acquire(ctx, r)
									if !d.Allowed {
										time.Sleep(time.Millisecond)
										continue
									}
									time.Sleep(20 * time.Millisecond)
									lease.Release()
								}
							})
						}
						time.Sleep(5 * time.Second)
						for i := range 20 {
							began := time.Now()
							within, cancel := context.WithTimeout(t.Context(), time.Minute)
							release, ok := wait(within, other, r)
							if took := time.Since(began); !ok || took > 2400*time.Millisecond {
								t.Fatalf("%d: served %v after %v", i, ok, took)
							}
							time.Sleep(20 * time.Millisecond)
							release()
							cancel()
						}
					})
				})
			}
		}
	}
}
