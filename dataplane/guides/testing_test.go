package guides

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/memstore"
)

var errTooManyCodes = errors.New("too many codes")

// sendCode sends a code to a telephone number, at most three per hour.
func sendCode(ctx context.Context, limiter *dataplane.Limiter, number string, send func() error) error {
	d := limiter.Allow(ctx, dataplane.Request{
		Workspace: "acme", Namespace: "codes", Identifier: number, Limit: 3, Duration: time.Hour,
	})
	if d.Err != nil {
		return d.Err
	}
	if !d.Allowed {
		return fmt.Errorf("%w: try again in %v", errTooManyCodes, d.RetryAfter)
	}
	return send()
}

func TestAFourthCodeWaitsForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := dataplane.New(dataplane.Config{})
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		send := func() error { sent++; return nil }
		for range 3 {
			if err := sendCode(t.Context(), limiter, "+15550100", send); err != nil {
				t.Error(err)
			}
		}
		if err := sendCode(t.Context(), limiter, "+15550100", send); !errors.Is(err, errTooManyCodes) || sent != 3 {
			t.Errorf("%v, %d codes are sent", err, sent)
		}
		time.Sleep(time.Hour + time.Millisecond) // takes no time
		if err := sendCode(t.Context(), limiter, "+15550100", send); err != nil || sent != 4 {
			t.Errorf("%v, %d codes are sent", err, sent)
		}
	})
}

func TestRetryAfterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := dataplane.New(dataplane.Config{})
		if err != nil {
			t.Fatal(err)
		}
		code := dataplane.Request{
			Workspace: "acme", Namespace: "codes", Identifier: "+15550100", Limit: 3, Duration: time.Hour, Cost: 3,
		}
		limiter.Allow(t.Context(), code)
		code.Cost = 1
		denied := limiter.Allow(t.Context(), code)
		time.Sleep(denied.RetryAfter - time.Millisecond)
		if d := limiter.Peek(t.Context(), code); d.Allowed {
			t.Error("it passes a millisecond earlier")
		}
		time.Sleep(time.Millisecond)
		if d := limiter.Allow(t.Context(), code); !d.Allowed {
			t.Errorf("it does not pass after %v", denied.RetryAfter)
		}
	})
}

func TestAnAPIAnswersTheSameEveryTime(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	clock := func() time.Time { return now }
	limiter, err := dataplane.New(dataplane.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Clock:   clock,
		Policies: []httplimit.Policy{{
			Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
			Quota: httplimit.Quota{Limit: 1, Duration: time.Minute},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	api := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	ask := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Api-Key", "k1")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != http.StatusNoContent || w.Header().Get("RateLimit") != `"key";r=0;t=30` {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	if w := ask(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "31" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	now = now.Add(31 * time.Second)
	if w := ask(); w.Code != http.StatusNoContent {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

// region returns two started limiters of a region, and stops them when the test ends.
func region(t *testing.T) (nodes [2]*dataplane.Limiter, origins [2]*memstore.Origin) {
	t.Helper()
	shared := memstore.NewOrigin(memstore.OriginOptions{})
	for i := range nodes {
		origins[i] = shared.Client()
		node, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origins[i], RegionNodes: len(nodes)})
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := node.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		nodes[i] = node
	}
	return nodes, origins
}

func TestTwoNodesShareTheCodesOfANumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := region(t)
		send := func() error { return nil }
		for i := range 3 {
			if err := sendCode(t.Context(), nodes[i%2], "+15550100", send); err != nil {
				t.Error(err)
			}
		}
		for _, node := range nodes {
			if err := sendCode(t.Context(), node, "+15550100", send); !errors.Is(err, errTooManyCodes) {
				t.Errorf("a fourth code: %v", err)
			}
		}
	})
}

func TestCodesAreSentDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, origins := region(t)
		origins[0].Faults.Fail(errors.New("connection refused"))
		defer origins[0].Faults.Fail(nil) // before Stop, which sends the counts
		sent := false
		err := sendCode(t.Context(), nodes[0], "+15550100", func() error { sent = true; return nil })
		if err != nil || !sent {
			t.Errorf("%v", err)
		}
	})
}

// scripted returns the decision of a test.
type scripted struct{ decision dataplane.Decision }

func (s scripted) Allow(context.Context, dataplane.Request) dataplane.Decision { return s.decision }

func (s scripted) AppendAllowMany(_ context.Context, to []dataplane.Decision,
	requests []dataplane.Request) dataplane.Batch {
	for range requests {
		to = append(to, s.decision)
	}
	return dataplane.Batch{Allowed: s.decision.Allowed, Decisions: to}
}

func TestACallerSeesThatTheLimiterCannotDecide(t *testing.T) {
	guard, err := httplimit.New(httplimit.Config{
		Limiter: scripted{dataplane.Decision{Source: dataplane.SourceDegradedClosed, RetryAfter: 2 * time.Second}},
		Policies: []httplimit.Policy{{
			Name: "all", Workspace: "acme", Key: httplimit.Everybody, Quota: httplimit.Quota{Limit: 1, Duration: time.Minute},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	guard.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}
