package controlplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// step runs at 0 s and every 30 s. After errors it runs after 1, 2, 4, … s, but never later than after the interval,
// however long the errors last.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		down := func() bool { at := time.Since(start); return at >= 30*time.Second && at < 7*24*time.Hour }
		var at []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Every(ctx, 30*time.Second, func(context.Context) error {
				at = append(at, time.Since(start))
				if down() {
					return errors.New("down")
				}
				return nil
			})
		}()
		<-time.After(7*24*time.Hour + time.Minute) // virtual
		cancel()
		<-done
		for i, want := range []time.Duration{0, 30, 31, 33, 37, 45, 61, 91, 121, 151} {
			if at[i] != want*time.Second {
				t.Fatalf("step %d at %v, want %v", i, at[i], want*time.Second)
			}
		}
		for i := 8; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap != 30*time.Second {
				t.Fatalf("step %d came %v after the one before", i, gap)
			}
		}
	})
}

func TestEveryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	Every(ctx, time.Hour, func(context.Context) error { steps++; cancel(); return nil })
	if steps != 1 {
		t.Errorf("%d steps", steps)
	}
}
