package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// The tests below run the real limiter behind the server.

func newLimiter(t testing.TB, origin store.Origin) *dataplane.Limiter {
	t.Helper()
	config := dataplane.Config{Origin: origin, Logger: slog.New(slog.DiscardHandler)}
	if origin != nil {
		config.Region = "eu"
	}
	return limiterOf(t, config)
}

// limiterOf returns a limiter that stops when the test ends.
func limiterOf(t testing.TB, config dataplane.Config) *dataplane.Limiter {
	t.Helper()
	limiter, err := dataplane.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Stop(context.Background()) })
	return limiter
}

// ask sends a Limit with a cost of 1 and a window of a day for an identifier.
func ask(ctx context.Context, client weirv1connect.RateLimitServiceClient, identifier string, limit int64) (*weirv1.LimitResponse, error) {
	response, err := client.Limit(ctx, connect.NewRequest(&weirv1.LimitRequest{
		Workspace: "acme", Namespace: "api", Identifier: identifier,
		Limit: limit, DurationMs: (24 * time.Hour).Milliseconds(),
	}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// All allowed cost is at the origin after a drain, even if the drain begins during the load, and the origin has no
// other cost.
func TestDrainUnderLoadLosesNothing(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	origin.Faults.Delay(2 * time.Millisecond)
	h := start(t, newLimiter(t, origin))

	var allowed, unanswered atomic.Int64
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i, door := range doors {
		client := door.open(t, h)
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				response, err := ask(t.Context(), client, fmt.Sprint("user_", (i+n)%20), 1e9)
				switch {
				case err != nil:
					unanswered.Add(1) // refused, or cut off after it was counted
				case response.Allowed:
					allowed.Add(1)
				}
			}
		})
	}
	await.True(t, "there is load", func() bool { return allowed.Load() > 500 })
	if err := h.Drain(); err != nil {
		t.Errorf("drain: %v", err)
	}
	stop()
	load.Wait()

	var held int64
	for _, total := range origin.Totals() {
		held += total.Region
	}
	if held < allowed.Load() || held > allowed.Load()+unanswered.Load() {
		t.Errorf("the origin holds %d; %d were allowed, %d went unanswered", held, allowed.Load(), unanswered.Load())
	}
}

// A rolling restart grants no fresh budget, because the next node counts the cost that the previous node allowed and
// drained.
func TestRestartHandsOutNoFreshBudget(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	allowedBy := func(h *harness, asked int) (allowed int) {
		client := doors[0].open(t, h)
		for range asked {
			response, err := ask(t.Context(), client, "user_42", 10)
			if err != nil {
				t.Fatal(err)
			}
			if response.Allowed {
				allowed++
			}
		}
		return allowed
	}
	first := start(t, newLimiter(t, origin))
	if got := allowedBy(first, 6); got != 6 {
		t.Fatalf("first node allowed %d of 6", got)
	}
	if err := first.Drain(); err != nil {
		t.Fatal(err)
	}
	if got := allowedBy(start(t, newLimiter(t, origin)), 10); got != 4 {
		t.Errorf("second node allowed %d more of a limit of 10, want 4", got)
	}
}

// A full table is a second line of /readyz: the node decides on, and stays ready.
func TestReadyTellsOfAFullTable(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{EntriesMax: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) }) // sends nothing to anybody
	h := start(t, l)
	for i := range 3 { // each at its limit
		l.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("user_", i), Limit: 1, Duration: time.Hour, Cost: 1})
	}
	status, answer := get(t, h.adminBase+"/readyz")
	if status != 200 || !strings.HasPrefix(answer, "serving\nthe table of keys is full") {
		t.Errorf("/readyz %d %q", status, answer)
	}
}

// A node starts, is ready and decides during an outage of its origin. Each response shows that, and the node uses the
// origin again when it is back.
func TestServingWithoutItsOrigin(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	origin.Faults.Fail(errors.New("connection refused"))
	h := start(t, newLimiter(t, origin))
	client := doors[0].open(t, h)

	response, err := ask(t.Context(), client, "user_1", 10)
	if err != nil || !response.Allowed || response.Source != weirv1.Source_SOURCE_DEGRADED {
		t.Errorf("without the origin: %v, %v", response, err)
	}
	if status, answer := get(t, h.adminBase+"/readyz"); status != 200 {
		t.Errorf("without the origin: /readyz %d %q", status, answer)
	}
	origin.Faults.Fail(nil)
	n := 0
	await.True(t, "a new key is read from the origin", func() bool {
		n++
		response, err := ask(t.Context(), client, fmt.Sprint("user_", n), 10)
		return err == nil && response.Allowed && response.Source == weirv1.Source_SOURCE_ORIGIN
	})
	await.True(t, "what was allowed in the meantime arrives", func() bool {
		for cell, total := range origin.Totals() {
			if cell.Identifier == "user_1" && total.Region > 0 {
				return true
			}
		}
		return false
	})
}
