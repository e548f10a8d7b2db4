package handlers

import (
	"context"
	"errors"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// A handler of the lock waits for an object (askOf) whose step fails, as it does while MySQL is down. Restate cannot
// call the object again, because Shutdown accepts no new invocations. "After endShare of the time … the next process
// continues": a waiting invocation is in no step, so Shutdown need not wait for it.
func TestShutdownDoesNotWaitForWhatWaits(t *testing.T) {
	t.Parallel()
	failed := make(chan struct{}, 1000)
	down := errors.New("MySQL is down")
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job {
		return map[string]Job{
			"caller": {Run: func(ctx restate.ObjectContext) (Report, error) {
				_, err := restate.Object[Run](ctx, CronService, "called", "TriggerNow").Request(
					controlplane.By{Actor: "ann", Reason: "test"})
				return Report{}, err
			}},
			"called": {Run: func(ctx restate.ObjectContext) (Report, error) {
				_, err := controlplane.Do(s.on(ctx), "fails", func(context.Context) (bool, error) {
					failed <- struct{}{}
					return false, down
				})
				return Report{}, err
			}},
		}
	})
	if _, err := c.client.Start(t.Context(), "caller", time.Hour); err != nil {
		t.Fatal(err)
	}
	<-failed
	<-failed
	const most = 9 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	began := time.Now()
	err := c.endpoint.Shutdown(ctx)
	if served := <-c.served; served != nil {
		t.Error(served)
	}
	c.endpoint = nil
	t.Logf("Shutdown took %v of %v", time.Since(began).Round(100*time.Millisecond), most)
	if err != nil {
		t.Error(err)
	}
}
