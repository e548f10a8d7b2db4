package dataplane

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// Retry-after is exact to the millisecond: a caller that retries in time is allowed, also if the cached time is late.
func TestALateCachedTimeDeniesNoCallerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, Duration: time.Second, Cost: 10}
		for _, ask := range map[string]func() (allowed bool, after time.Duration){
			"single": func() (bool, time.Duration) { d := l.Allow(t.Context(), r); return d.Allowed, d.RetryAfter },
			"batch": func() (bool, time.Duration) {
				b := l.AllowMany(t.Context(), []Request{r})
				return b.Allowed, b.Decisions[0].RetryAfter
			},
		} {
			for allowed, after := ask(); !allowed; allowed, after = ask() {
				time.Sleep(after)
			}
			for range 3 {
				_, after := ask()
				for _, late := range []time.Duration{time.Millisecond, clock.StaleMax - time.Millisecond} {
					time.Sleep(after - time.Millisecond)
					l.engine.clock.Cache(time.Now().Add(-late).UnixMilli())
					if allowed, after := ask(); allowed || after != time.Millisecond {
						t.Fatalf("a millisecond early: %v, again after %v", allowed, after)
					}
					time.Sleep(time.Millisecond)
					if allowed, after := ask(); !allowed {
						t.Fatalf("in time by a time %v late: again after %v", late, after)
					}
					l.engine.clock.Cache(0)
					_, after = ask()
				}
			}
		}
	})
}
