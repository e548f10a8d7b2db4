package dataplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// Stop may come while Start runs: it ends what Start has begun, and nothing begins afterwards.
func TestStopWhileStartRuns(t *testing.T) {
	for range 100 {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
			Settings: settingsOf("", "")})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = l.Start(context.Background()) })
		running.Go(func() { _ = l.Stop(context.Background()) })
		running.Wait()
	}
}

// Without a context a decision waits for the origin as long as ReadTimeout lets it.
func TestADecisionWithoutAContext(t *testing.T) {
	var none context.Context
	for _, nodeShare := range []string{"flush", "wait"} {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
			Settings: settingsOf("", nodeShare), ReadTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.LoadSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		h, err := l.Handle("acme", "api", "handle", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if d := l.Allow(none, ask("single", 6, 10)); !d.Allowed {
			t.Errorf("%s: %+v", nodeShare, d)
		}
		if b := l.AllowMany(none, []dataplane.Request{ask("batch", 6, 10)}); !b.Allowed {
			t.Errorf("%s: %+v", nodeShare, b)
		}
		if d := h.Allow(none, 10, 6); !d.Allowed {
			t.Errorf("%s: %+v", nodeShare, d)
		}
		l.AwaitCalls()
	}
}

// A Handle that nobody has made decides nothing, and says so.
func TestAZeroHandleIsAnError(t *testing.T) {
	var h dataplane.Handle
	for i, d := range []dataplane.Decision{h.Allow(t.Context(), 10, 1), h.AllowAt(t.Context(), time.Now(), 10, 1), h.Peek(t.Context(), 10, 1)} {
		if d.Allowed || !errors.Is(d.Err, dataplane.ErrInvalid) {
			t.Errorf("%d: %+v", i, d)
		}
	}
}
