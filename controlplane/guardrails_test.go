package controlplane

import (
	"math"
	"strings"
	"testing"
)

// Of several guardrails that are broken the one that is told is broken most, by times of its bound, wherever it stands.
func TestTheGuardrailThatIsBrokenMost(t *testing.T) {
	g := DefaultGuardrails()
	for says, now := range map[string]HealthRates{
		"errors of relay": {ErrorsPerMinute: ptr(60.0), LatencyUs: ptr(2000.0), DeniedShare: ptr(0.5)},
		"latency":         {ErrorsPerMinute: ptr(12.0), LatencyUs: ptr(9000.0), DeniedShare: ptr(0.5)},
		"denied":          {ErrorsPerMinute: ptr(12.0), LatencyUs: ptr(2000.0), DeniedShare: ptr(0.9)},
		"dropped":         {ErrorsPerMinute: ptr(9999.0), DroppedCost: 1},
		"MySQL rows of a": {RowsPerSecond: ptr(1001.0), ErrorsPerMinute: ptr(6.0), DeniedShare: ptr(0.2)},
	} {
		if why, by := g.broken(HealthRates{}, now); !strings.Contains(why, says) || by <= 1 {
			t.Errorf("%q by %v, want %q", why, by, says)
		}
	}
}

// "Up or down": callers that are denied no more have lost their limits.
func TestAShareOfDenialsThatFallsIsABreach(t *testing.T) {
	g := DefaultGuardrails()
	before := HealthRates{DeniedShare: ptr(0.5)}
	for now, broken := range map[float64]bool{0: true, 0.25: true, 0.375: false, 0.5: false, 0.625: false, 0.75: true} {
		if why, _ := g.broken(before, HealthRates{DeniedShare: &now}); (why != "") != broken {
			t.Errorf("%v after 0.5: %q", now, why)
		}
	}
	g.DeniedShareShift = 1
	if why, _ := g.broken(HealthRates{DeniedShare: ptr(1.0)}, HealthRates{DeniedShare: ptr(0.0)}); why != "" {
		t.Errorf("turned off: %q", why)
	}
}

// A bound is a number: one without an end bounds nothing.
func TestABoundIsANumber(t *testing.T) {
	for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		g := DefaultGuardrails()
		g.LatencyUs.Least = v
		wantInvalid(t, g.Validate(), "guardrail latency_us: least is")
		g = DefaultGuardrails()
		g.LatencyUs.Factor = v
		wantInvalid(t, g.Validate(), "guardrail latency_us: factor is")
		for _, q := range []QueryRail{{Above: &v}, {Below: &v}, {TimesBaseline: &v}} {
			q.Name, q.Query = "errors", "x"
			wantInvalid(t, q.validate(), "the bound of errors is")
		}
	}
}
