package dataplane_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// inOutage returns a node whose namespace "api" has an outage policy, and the node's origin.
func inOutage(t *testing.T, policy string) (*dataplane.Limiter, *memstore.Origin) {
	t.Helper()
	l, origin, _ := inOutageWith(t, policy)
	return l, origin
}

func inOutageWith(t *testing.T, policy string) (*dataplane.Limiter, *memstore.Origin, *memstore.Counts) {
	t.Helper()
	origin, counts := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: policy})
	l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: origin, Settings: counts})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, origin, counts
}

// Outage policy per namespace: local (default: keep deciding from local state), open, closed. Decision.Source reports
// that it applied.
func TestOutagePolicies(t *testing.T) {
	type want struct {
		allowed    bool
		source     dataplane.Source
		retryAfter time.Duration
		count      int64
	}
	local := want{true, dataplane.SourceDegraded, 0, 8}
	for policy, wants := range map[string][]want{
		"":      {local, {false, dataplane.SourceLocal, time.Minute, 8}},
		"local": {local, {false, dataplane.SourceLocal, time.Minute, 8}},
		"open": {
			{true, dataplane.SourceDegradedOpen, 0, 8},
			{true, dataplane.SourceDegradedOpen, 0, 12}, // past the limit, and counted
		},
		"closed": {
			{false, dataplane.SourceDegradedClosed, 300 * time.Millisecond, 0},
			{false, dataplane.SourceDegradedClosed, 300 * time.Millisecond, 0},
		},
	} {
		for _, how := range []string{"single", "batch"} {
			t.Run(policy+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, origin := inOutage(t, policy)
					origin.Faults.Fail(errDown)
					var pending int64
					for i, cost := range []int64{8, 4} {
						var d dataplane.Decision
						if how == "single" {
							d = l.Allow(t.Context(), ask("k", cost, 10))
						} else {
							d = l.AllowMany(t.Context(), []dataplane.Request{ask("k", cost, 10)}).Decisions[0]
						}
						w := wants[i]
						if w.retryAfter == time.Minute { // a denial by the counts in memory: any exact time
							w.retryAfter = d.RetryAfter
						}
						if d.Allowed != w.allowed || d.Source != w.source || d.RetryAfter != w.retryAfter {
							t.Errorf("cost %d: %+v, want %+v", cost, d, w)
						}
						if pending = l.Health().PendingCost; pending != w.count {
							t.Errorf("cost %d: %d counted, want %d", cost, pending, w.count)
						}
					}
					origin.Faults.Fail(nil)
					if err := l.ReplayOnce(t.Context()); err != nil {
						t.Fatal(err)
					}
					var total int64
					for _, n := range totals(origin) {
						total += n
					}
					if total != pending {
						t.Errorf("the origin holds %d after the outage, %d were accepted", total, pending)
					}
				})
			})
		}
	}
}

// A cost above its limit never passes, and a limit of 0 blocks, also in a namespace with the policy open.
func TestOpenLetsNothingPassThatNeverCould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, origin := inOutage(t, "open")
		origin.Faults.Fail(errDown)
		l.Allow(t.Context(), ask("k", 1, 10))
		for _, limit := range []int64{0, 10} {
			if d := l.Allow(t.Context(), ask("k", 11, limit)); d.Allowed || d.RetryAfter != 0 {
				t.Errorf("limit %d: %+v", limit, d)
			}
		}
	})
}

// While the origin answers, policies change nothing: a request that local state denies stays denied without any I/O.
func TestPoliciesRestWhileTheOriginAnswers(t *testing.T) {
	for _, policy := range []string{"local", "open", "closed"} {
		synctest.Test(t, func(t *testing.T) {
			l, origin := inOutage(t, policy)
			if d := l.Allow(t.Context(), ask("k", 10, 10)); !d.Allowed || d.Source != dataplane.SourceOrigin {
				t.Errorf("%s: %+v", policy, d)
			}
			before := origin.Stats().Calls()
			if d := l.Allow(t.Context(), ask("k", 1, 10)); d.Allowed || d.Source != dataplane.SourceLocal || origin.Stats().Calls() != before {
				t.Errorf("%s: %+v", policy, d)
			}
		})
	}
}

// closed: "deny with a retry-after of the breaker's end", and without an effect on counts.
func TestClosedTellsWhenTheBreakerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, origin := inOutage(t, "closed")
		origin.Faults.Fail(errDown)
		for i := range 5 {
			l.Allow(t.Context(), ask(strings.Repeat("x", i+1), 1, 10))
		}
		time.Sleep(400 * time.Millisecond)
		key := windowKey(ask("new", 1, 10))
		d := l.Allow(t.Context(), ask("new", 1, 10))
		if d.Allowed || d.RetryAfter != 600*time.Millisecond || d.Source != dataplane.SourceDegradedClosed {
			t.Errorf("%+v", d)
		}
		if l.StrictUntil(key) != 0 {
			t.Error("a refusal in an outage made the key strict")
		}
		m := gather(t, l)
		if got := m[`weir_decisions_total{outcome="denied",source="degraded-closed"}`]; got != 6 {
			t.Errorf("%v refusals counted", got)
		}
		if _, there := m[`weir_decisions_total{outcome="allowed",source="degraded-open"}`]; !there {
			t.Error("not published at 0")
		}
	})
}

// An invalid outage policy is reported, and the default applies.
func TestUnknownOutagePolicyIsReported(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: "shut", Shadow: true})
	if err := n.LoadSettings(t.Context()); err == nil || !strings.Contains(err.Error(), `outage is "shut" (local, open or closed)`) {
		t.Errorf("%v", err)
	}
	w.origin("eu").Faults.Fail(errDown)
	if d := n.take("k", 1, 0); !d.Shadowed {
		t.Errorf("the rest of the row was not applied: %+v", d)
	}
	if d := n.take("k", 1, 10); d.Source != dataplane.SourceDegraded {
		t.Errorf("%+v", d)
	}
}
