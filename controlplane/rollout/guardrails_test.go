package rollout

import (
	"math"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
)

// If several guardrails are broken, the reason names the guardrail that is exceeded by the largest factor, in any
// order.
func TestTheGuardrailThatIsBrokenMost(t *testing.T) {
	g := DefaultGuardrails()
	figures := func(errors, denied, dropped int64) fleet.Tally {
		return tally(errors, 10_000, denied, 0, dropped)
	}
	for says, c := range map[string]struct {
		since     fleet.Tally
		latencyUs float64
	}{
		"errors of relay": {figures(60, 5000, 0), 2000},
		"latency":         {figures(24, 5000, 0), 9000},
		"denied":          {figures(24, 9999, 0), 2000},
		"dropped":         {figures(9999, 0, 1), 0},
	} {
		n := spans("a", figures(0, 0, 0), c.since)
		n.LatencyUs = &c.latencyUs
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{n}}
		if why := breachIn(g, &w, 1, 0); !strings.Contains(why, says) {
			t.Errorf("%q, want %q", why, says)
		}
	}
}

// "Up or down": if callers are no longer denied, they have lost their limits.
func TestAShareOfDenialsThatFallsIsABreach(t *testing.T) {
	g := DefaultGuardrails()
	for now, broken := range map[int64]bool{0: true, 1500: true, 3750: false, 5000: false, 6250: false, 8500: true} {
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{
			spans("a", tally(0, 10_000, 5000, 0, 0), tally(0, 10_000, now, 0, 0))}}
		if why := breachIn(g, &w, 0, 0); (why != "") != broken {
			t.Errorf("%v of 10,000 after 5,000: %q", now, why)
		}
		off := g
		off.DeniedShareShift = 1
		if why := breachIn(off, &w, 0, 0); why != "" {
			t.Errorf("turned off: %q", why)
		}
	}
}

// Without a baseline a share is not judged, because there is nothing to compare it with.
func TestAShareWithoutABaselineIsNotJudged(t *testing.T) {
	w := RegionWatch{Region: "eu", Nodes: []WatchedNode{{ID: "a", Came: true}}}
	w.Nodes[0].Window = spans("a", fleet.Tally{}, tally(0, 10_000, 9000, 0, 0)).Window
	if why := breachIn(DefaultGuardrails(), &w, 0, 0); why != "" {
		t.Error(why)
	}
}

// A bound must be finite, because an infinite bound allows everything.
func TestABoundIsANumber(t *testing.T) {
	for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		g := DefaultGuardrails()
		g.LatencyUs.Least = v
		controltest.WantInvalid(t, g.Validate(), "guardrail latency_us: least is")
		g = DefaultGuardrails()
		g.LatencyUs.Factor = v
		controltest.WantInvalid(t, g.Validate(), "guardrail latency_us: factor is")
		for _, q := range []queries.Rail{{Above: &v}, {Below: &v}, {TimesBaseline: &v}} {
			q.Name, q.Query = "errors", "x"
			controltest.WantInvalid(t, q.Validate(), "the bound of errors is")
		}
	}
}
