package guides

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// guesses makes many guesses at once. It returns how many pass, and when the next guess would pass.
func guesses(ctx context.Context, limiter *dataplane.Limiter, account string) (passed int, next time.Duration, err error) {
	guess := dataplane.Request{Workspace: "acme", Namespace: "login", Identifier: account, Limit: 10, Duration: 15 * time.Minute}
	for range 100 {
		d := limiter.Allow(ctx, guess)
		if d.Err != nil {
			return passed, 0, d.Err
		}
		if !d.Allowed {
			return passed, d.RetryAfter, nil
		}
		passed++
	}
	return passed, 0, nil
}

// With a limit of 1 a minute and a precise window, a caller with exactly one request a minute gets every second
// request, and a caller with a request every 62 seconds gets all.
func TestASmallLimitThatIsUsedExactly(t *testing.T) {
	for every, want := range map[time.Duration]int{time.Minute: 50, 62 * time.Second: 100} {
		synctest.Test(t, func(t *testing.T) {
			counts := memstore.NewCounts(memstore.CountsOptions{})
			counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "login", Window: store.WindowPrecise})
			limiter, err := dataplane.New(dataplane.Config{Region: "here", Settings: counts})
			if err != nil {
				t.Fatal(err)
			}
			if err := limiter.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = limiter.Stop(context.Background()) }()
			synctest.Wait() // for the settings
			once := dataplane.Request{Workspace: "acme", Namespace: "login", Identifier: "ann", Limit: 1, Duration: time.Minute}
			passed := 0
			for range 100 {
				if limiter.Allow(t.Context(), once).Allowed {
					passed++
				}
				time.Sleep(every)
			}
			if passed != want {
				t.Errorf("%d of 100 requests pass, one every %v, want %d", passed, every, want)
			}
		})
	}
}

func TestGuesses(t *testing.T) {
	passed, next, err := guesses(t.Context(), alone(t), "ann")
	if err != nil || passed != 10 || next <= 0 {
		t.Errorf("%d pass, the next after %v, %v; want 10 and a time", passed, next, err)
	}
}
