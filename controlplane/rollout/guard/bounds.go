package guard

import (
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// decisionsMin is how many decisions a share of decisions needs at least.
const decisionsMin = 100

// bounds are the guardrails of a plan, which judge figures.
type bounds struct{ plan.Guardrails }

// held is a ceiling with the figures that are compared with it; nil: not measured.
type held struct {
	field, words  string
	ceiling       plan.Ceiling
	baseline, now *float64
}

func (g bounds) ceilings(baseline, now fleet.HealthRates) []held {
	return []held{
		{"errors_per_minute", "errors of relays and settings a node and minute", g.ErrorsPerMinute, baseline.ErrorsPerMinute,
			now.ErrorsPerMinute},
		{"rows_per_second", "MySQL rows of a region's relays a second", g.RowsPerSecond, baseline.RowsPerSecond,
			now.RowsPerSecond},
		{"degraded_share", "share of decisions without the origin", g.DegradedShare, baseline.DegradedShare,
			now.DegradedShare},
		{"convergence_ms", "convergence delay in ms", g.ConvergenceMs, baseline.ConvergenceMs, now.ConvergenceMs},
		{"latency_us", "decision latency in µs", g.LatencyUs, baseline.LatencyUs, now.LatencyUs},
	}
}

// bound returns the figure before the stage, 0 if it was not measured, and the most that it may be now.
func (h held) bound() (was, most float64) {
	most = h.ceiling.Least
	if h.baseline != nil {
		was = *h.baseline
		most = max(most, h.ceiling.Factor*was)
	}
	return was, most
}
