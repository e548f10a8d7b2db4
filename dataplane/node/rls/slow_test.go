package rls

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// A call of several decisions waits for a slow origin no longer than a single decision may. Meanwhile it holds a slot.
func TestACallWaitsNoLongerThanOneDecision(t *testing.T) {
	const readTimeout = 50 * time.Millisecond
	calls := map[string]func(context.Context, Kuadrant, *rlsv3.RateLimitRequest) error{
		"should": func(ctx context.Context, k Kuadrant, call *rlsv3.RateLimitRequest) error {
			_, err := k.Service.ShouldRateLimit(ctx, call)
			return err
		},
		"check": func(ctx context.Context, k Kuadrant, call *rlsv3.RateLimitRequest) error {
			_, err := k.CheckRateLimit(ctx, call)
			return err
		},
		"report": func(ctx context.Context, k Kuadrant, call *rlsv3.RateLimitRequest) error {
			_, err := k.Report(ctx, call)
			return err
		},
	}
	for _, kind := range []string{"shadow_mode: false", "shadow_mode: true", "quota_mode: true", "charged: true"} {
		for name, call := range calls {
			t.Run(name+" of "+kind, func(t *testing.T) {
				for _, keys := range []int{2, manyItems - 1, manyItems, dataplane.BatchMax} {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: origin, RegionNodes: 2,
							ReadTimeout: readTimeout})
						if err != nil {
							t.Fatal(err)
						}
						defer func() { _ = limiter.Stop(context.Background()) }() // it waits for the reads that are under way
						source := new(Source)
						source.now.Store(parsed(t, "domain: shop\ndescriptors:\n"+
							"  - {key: k, "+kind+", rate_limit: {unit: year, requests_per_unit: 100}}\n"))
						k := Kuadrant{&Service{Limiter: limiter, Rules: source, Workspace: "envoy", ReadTimeout: readTimeout}}
						m := &rlsv3.RateLimitRequest{Domain: "shop"}
						for i := range keys {
							m.Descriptors = append(m.Descriptors, describe("k", fmt.Sprint(i))...)
						}
						origin.Faults.Delay(40 * time.Millisecond)
						began := time.Now()
						if err := call(t.Context(), k, m); err != nil {
							t.Fatal(err)
						}
						if took := time.Since(began); took > readTimeout {
							t.Errorf("%d keys: it has waited for %v", keys, took)
						}
					})
				}
			})
		}
	}
}

// A panic of an item reaches its call, so that the server sees it.
func TestAPanicBesideOthers(t *testing.T) {
	defer func() {
		if p := recover(); p != "odd" {
			t.Errorf("%v", p)
		}
	}()
	together(make([]item, 100), func(*item) { panic("odd") })
	t.Error("it goes on")
}
