package httplimit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// began lies in the middle of a minute's cell.
var began = time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)

// bench is a real limiter with a clock that the test moves, and a Guard over it.
type bench struct {
	t       testing.TB
	now     time.Time
	guard   *httplimit.Guard
	passed  int // requests that came through
	handler http.Handler
}

func newBench(t testing.TB, config httplimit.Config) *bench {
	t.Helper()
	b := &bench{t: t, now: began}
	if config.Limiter == nil {
		limiter, err := dataplane.New(dataplane.Config{Clock: b.clock})
		if err != nil {
			t.Fatal(err)
		}
		config.Limiter = limiter
	}
	config.Clock = b.clock
	guard, err := httplimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	b.guard = guard
	b.handler = guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.passed++ }))
	return b
}

func (b *bench) clock() time.Time { return b.now }

// ask sends a request as a caller.
func (b *bench) ask(caller string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "/things", nil)
	if caller != "" {
		r.Header.Set("X-Api-Key", caller)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func (b *bench) problem(w *httptest.ResponseRecorder) (p httplimit.Problem) {
	b.t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		b.t.Errorf("Content-Type is %q", got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		b.t.Fatalf("%v in %s", err, w.Body)
	}
	if p.Status != w.Code {
		b.t.Errorf("status %d in the body, %d on the answer", p.Status, w.Code)
	}
	return p
}

// policy allows limit requests a minute for each API key.
func policy(name string, limit int64, duration time.Duration) httplimit.Policy {
	return httplimit.Policy{
		Name: name, Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
		Quota: httplimit.Quota{Limit: limit, Duration: duration},
	}
}

// scripted returns the test's decisions.
type scripted func(dataplane.Request) dataplane.Decision

func (s scripted) Allow(_ context.Context, r dataplane.Request) dataplane.Decision { return s(r) }

func (s scripted) AppendAllowMany(_ context.Context, decisions []dataplane.Decision, requests []dataplane.Request) dataplane.Batch {
	b := dataplane.Batch{Allowed: true, Decisions: decisions}
	for _, r := range requests {
		d := s(r)
		b.Allowed = b.Allowed && d.Allowed
		b.Decisions = append(b.Decisions, d)
	}
	return b
}
