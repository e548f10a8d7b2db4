package guides

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// call runs a request to a partner when the limit has room for it, within 30 s.
func call(ctx context.Context, limiter *dataplane.Limiter, request func() error) error {
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	d := limiter.Wait(wait, dataplane.Request{
		Workspace: "acme", Namespace: "partner", Identifier: "api", Limit: 10, Duration: time.Second,
	})
	switch {
	case d.Err != nil:
		return d.Err
	case !d.Allowed:
		return fmt.Errorf("the partner's limit has no room, try again in %v", d.RetryAfter)
	}
	return request()
}

// A thousand calls at once: ten pass at once, some 300 pass in time, and the others are denied.
func TestCallsWaitForThePartnersLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, began := alone(t), time.Now()
		var mu sync.Mutex
		var atOnce, passed, denied int
		var all sync.WaitGroup
		for range 1_000 {
			all.Go(func() {
				err := call(t.Context(), limiter, func() error { return nil })
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && time.Since(began) == 0:
					atOnce++
				case err == nil:
					passed++
				case strings.Contains(err.Error(), "no room"):
					denied++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); atOnce != 10 || passed < 280 || passed > 310 || denied != 990-passed || took > 31*time.Second {
			t.Errorf("%d, %d and %d after %v", atOnce, passed, denied, took)
		}
	})
	if err := call(t.Context(), alone(t), func() error { return errors.New("partner") }); err == nil {
		t.Error("the request's error is lost")
	}
}
