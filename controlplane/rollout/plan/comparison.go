package plan

import (
	"fmt"

	"github.com/weirhq/weir/controlplane"
)

// Comparison compares regions with the tuning to regions without it, at the same moment: a canary against a control. It
// compares each region with the tuning, and all regions of a stage together. If a stage takes in a part of a region's
// nodes, it also compares these nodes with the region's other nodes. Changes that all regions share, such as the time
// of day, have no influence.
//
// The test can be evaluated at every look without losing its error rate: see package sequential. If a stage leaves no
// region, and no node of its regions, without the tuning, there is no control. Then only the other guardrails judge the
// stage, by comparing it with the past.
type Comparison struct {
	// ErrorRate is the probability that a harmless rollout is rolled back by a guardrail on counts, over all figures,
	// regions and looks, 0.0001 to 0.1; default 0.01. At 0.01, for example, these guardrails roll back at most 1 in 100
	// harmless rollouts.
	ErrorRate float64 `json:"error_rate"`

	// The most that a tuning may add. These bound the true difference, so a measured difference can be larger as long as
	// chance can explain it.
	RowsTimes       float64 `json:"rows_times"`        // MySQL rows of relays per decision, 1 to 1,000; default 1.25
	DeniedShift     float64 `json:"denied_shift"`      // share of decisions denied, up or down, 0 to 1; default 0.02
	DegradedShift   float64 `json:"degraded_shift"`    // share of decisions without the origin, 0 to 1; default 0.005
	ErrorsPerMinute float64 `json:"errors_per_minute"` // of a node's relay and settings, 0 or more; default 2

	Off bool `json:"off,omitempty"`
}

// DefaultComparison returns the defaults named at the fields.
func DefaultComparison() Comparison {
	return Comparison{ErrorRate: 0.01, RowsTimes: 1.25, DeniedShift: 0.02, DegradedShift: 0.005, ErrorsPerMinute: 2}
}

// Validate reports the first field outside its bounds.
func (c Comparison) Validate() error {
	if c.Off {
		return nil
	}
	for _, f := range []struct {
		name            string
		is, least, most float64
	}{
		{"error_rate", c.ErrorRate, 0.0001, 0.1},
		{"rows_times", c.RowsTimes, 1, 1000},
		{"denied_shift", c.DeniedShift, 0, 1},
		{"degraded_shift", c.DegradedShift, 0, 1},
		{"errors_per_minute", c.ErrorsPerMinute, 0, 1e6},
	} {
		if !(f.is >= f.least && f.is <= f.most) { // also refuses NaN
			return fmt.Errorf("%w: guardrail comparison: %s is %v (%v to %v)", controlplane.ErrInvalid, f.name, f.is, f.least,
				f.most)
		}
	}
	return nil
}
