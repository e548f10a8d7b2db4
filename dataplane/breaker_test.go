package dataplane_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// breakerState reads weir_origin_breaker_state of a shard, for a kind of call.
func breakerState(t *testing.T, l *dataplane.Limiter, shard int, calls string) string {
	t.Helper()
	state := gather(t, l)[fmt.Sprintf(`weir_origin_breaker_state{calls="%s",shard="%d"}`, calls, shard)]
	return map[float64]string{0: "closed", 1: "half-open", 2: "open"}[state]
}

// With a failing origin, the caller gets no error. After 100 cold requests against a dead origin, the next 100 cause
// far fewer than 100 calls (breaker). The breaker is open, then half-open, then closed, at the configured times; a
// failure while it is half-open opens it again.
func TestABreakerSparesADeadOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin,
			Breaker: dataplane.Breaker{FailureRatio: 0.5, CallsMin: 20, OpenFor: 2 * time.Second, HalfOpenCalls: 3}})
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		cold := func(n int) (calls int64) {
			before := origin.Stats().Calls()
			for range n {
				asked++
				d := l.Allow(t.Context(), ask(fmt.Sprint("cold", asked), 1, 10))
				if d.Err != nil || !d.Allowed {
					t.Fatalf("%+v", d)
				}
			}
			return origin.Stats().Calls() - before
		}
		want := func(when, state string) {
			t.Helper()
			if got := breakerState(t, l, 0, "asks"); got != state {
				t.Errorf("%s: the breaker is %s, want %s", when, got, state)
			}
		}
		origin.Faults.Fail(errDown)
		want("at first", "closed")
		if calls := cold(100); calls != 20 {
			t.Errorf("%d calls for the first 100, want CallsMin", calls)
		}
		want("after 20 failures", "open")
		if calls := cold(100); calls != 0 {
			t.Errorf("%d calls for the next 100", calls)
		}
		if l.Health().BreakersOpen != 1 {
			t.Errorf("%+v", l.Health())
		}
		time.Sleep(2 * time.Second)
		want("for OpenFor", "open")
		time.Sleep(time.Millisecond)
		want("after OpenFor", "half-open")
		if calls := cold(100); calls != 1 {
			t.Errorf("%d calls when a probe fails", calls)
		}
		want("after a failed probe", "open")
		time.Sleep(2*time.Second + time.Millisecond)
		origin.Faults.Fail(nil)
		if calls := cold(2); calls != 2 {
			t.Errorf("%d calls of 2 probes", calls)
		}
		want("after 2 of 3 probes", "half-open")
		cold(1)
		want("after 3 probes", "closed")
		if calls := cold(100); calls != 100 {
			t.Errorf("%d calls when all is well", calls)
		}
		if err := l.ReplayOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(totals(origin)); got != asked {
			t.Errorf("%d keys at the origin, want %d: what was accepted meanwhile is kept", got, asked)
		}
		l.AwaitCalls()
	})
}

// While a breaker is open, decisions are local and don't wait, although each call would hang. Replay neither sends
// nor drops anything.
func TestAnOpenBreakerDoesNotDelayRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(time.Hour)
		l := liveNode(t, origin)
		for i := range 5 {
			l.Allow(t.Context(), ask(fmt.Sprint(i), 1, 10))
		}
		synctest.Wait() // the decision and its call end at the same instant: the breaker has counted all five
		began, calls := time.Now(), origin.Stats().Calls()
		for i := range 100 {
			if d := l.Allow(t.Context(), ask(fmt.Sprint("k", i), 1, 10)); d.Source != dataplane.SourceDegraded || !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		b := l.AllowMany(t.Context(), []dataplane.Request{ask("x", 1, 10), ask("y", 1, 10)})
		if !b.Allowed || b.Decisions[1].Source != dataplane.SourceDegraded {
			t.Errorf("%+v", b)
		}
		if took := time.Since(began); took != 0 || origin.Stats().Calls() != calls {
			t.Errorf("waited %v, %d calls", took, origin.Stats().Calls()-calls)
		}
		for range 5 {
			if err := l.ReplayOnce(t.Context()); err == nil {
				t.Error("replay did not say that it sent nothing")
			}
		}
		calls = origin.Stats().Calls()
		if err := l.ReplayOnce(t.Context()); err == nil || origin.Stats().Calls() != calls {
			t.Errorf("a send past the breaker: %v", err)
		}
		if got := l.Health().PendingCost; got != 107 {
			t.Errorf("%d pending, want 107", got)
		}
	})
}

// An origin that answers for most of its cells counts as up.
func TestOneRefusedCellOpensNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := &poisoned{Origin: memstore.NewOrigin(memstore.OriginOptions{}), identifier: "bad"}
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			l.Allow(t.Context(), ask("bad", 1, 1000))
			l.Allow(t.Context(), ask("good", 1, 1000))
			if err := l.ReplayOnce(t.Context()); err == nil {
				t.Fatal("a refused increment was not reported")
			}
		}
		if got := breakerState(t, l, 0, "sends"); got != "closed" {
			t.Errorf("the breaker is %s", got)
		}
	})
}

// The error names the field of Config and its bound.
func TestBreakerBounds(t *testing.T) {
	for field, b := range map[string]dataplane.Breaker{
		"FailureRatio":  {FailureRatio: math.NaN()},
		"CallsMin":      {CallsMin: -1},
		"Interval":      {Interval: time.Millisecond},
		"OpenFor":       {OpenFor: 2 * time.Hour},
		"HalfOpenCalls": {HalfOpenCalls: 1001},
	} {
		if _, err := dataplane.New(dataplane.Config{Breaker: b}); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "Config.Breaker."+field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// An origin that is slower than ReadTimeout delays no decision for long, and still receives the accepted cost.
func TestASlowOriginIsStillSentTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(200 * time.Millisecond)
		l := started(t, "eu", "a", origin, nil)
		for i := range 100 {
			if d := l.Allow(t.Context(), ask(fmt.Sprint("k", i), 1, 10)); !d.Allowed || d.Source != dataplane.SourceDegraded {
				t.Fatalf("%+v", d)
			}
		}
		time.Sleep(2 * time.Second)
		if got := breakerState(t, l, 0, "asks"); got == "closed" {
			t.Error("reads that all took too long have opened no breaker")
		}
		if got := breakerState(t, l, 0, "sends"); got != "closed" {
			t.Errorf("the breaker of sends is %s", got)
		}
		if got := len(totals(origin)); got != 100 {
			t.Errorf("%d cells have arrived, of 100", got)
		}
		origin.Faults.Delay(0)
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
