package plan

import (
	"fmt"
	"math"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/shared/settings"
)

// RestartsPerHourMax turns the guardrail of restarts off.
const RestartsPerHourMax = 10

// Guardrails bound how much worse a region or a node may do than before its stage. Each region that has the tuning, and
// each of its nodes, is judged from when its trial is written until the rollout ends or rolls back. That includes times
// when the rollout is paused or waits for an approval. The figures are those of the window: the newest five minutes, or
// the length of the bake if that is shorter.
//
// A single bad figure does not break a guardrail, because among many looks some figure is always bad by chance:
//
//   - Errors, rows, and shares of decisions are counts. They break a bound only if a statistical test over the window
//     finds it exceeded; see package sequential. Comparison.ErrorRate is the probability that a rollout that keeps all
//     bounds is rolled back, however often it is judged. Half of it is for these bounds and half for the comparison.
//   - Latency and the convergence delay are measured. They break a bound by exceeding it for two minutes, or for half
//     the bake if that is shorter.
type Guardrails struct {
	// ErrorsPerMinute bounds the failed rounds of a node's relay, and its failed readings of settings, per minute.
	// Default: twice the baseline, and at least 6. (Heartbeats count failures and not attempts, so there is no ratio.)
	ErrorsPerMinute Ceiling `json:"errors_per_minute"`

	// RowsPerSecond bounds the rows that a region's relays write to and read from MySQL per second, whichever nodes they
	// run on. Default: three times the baseline, and at least 1,000.
	RowsPerSecond Ceiling `json:"rows_per_second"`

	// DegradedShare bounds the share of decisions that needed an answer of the origin and did not get it, 0 to 1. Default:
	// twice the baseline, and at least 0.01.
	DegradedShare Ceiling `json:"degraded_share"`

	// ConvergenceMs bounds the convergence delay of a region: the age of other regions' changes when one of its relays
	// reads them (99th percentile, of the slowest relay). Default: three times the baseline, and at least 30,000 ms. A
	// region also breaks it if for 30 s no node relays a shard of its origin, or if for 30 s no node measures a delay that
	// was measured before the stage.
	ConvergenceMs Ceiling `json:"convergence_ms"`

	// LatencyUs bounds the decision latency (99th percentile) of the slowest node that reports it. Default: three times
	// the baseline, and at least 1,000 µs.
	LatencyUs Ceiling `json:"latency_us"`

	// DeniedShareShift bounds how much the share of denied decisions may differ from the baseline, up or down, 0 to 1;
	// default 0.2. 1 turns it off. Without a baseline it is not judged.
	DeniedShareShift float64 `json:"denied_share_shift"`

	// NodesLostShare bounds the share of the region's nodes from before the stage that have stopped sending heartbeats, 0
	// to 1; default 0: no node may stop. It is not broken if as large a share of the nodes without the tuning has stopped,
	// for example in a deploy of the whole fleet. Raise it for a planned scale-down of one region. With 1, a stage can
	// begin in a region without live nodes. Two things always roll back: a region that loses its last node, and cost that
	// nodes dropped.
	NodesLostShare float64 `json:"nodes_lost_share"`

	// RestartsPerHour is how often a node may restart within an hour, 0 to RestartsPerHourMax, which turns it off. The
	// default 1 allows for a deploy.
	RestartsPerHour int `json:"restarts_per_hour"`

	// Comparison compares regions with the tuning to regions without it.
	Comparison Comparison `json:"comparison"`

	// Queries are Prometheus queries to watch in addition to heartbeats, for example the error rate of callers. Default:
	// none.
	Queries []queries.Rail `json:"queries,omitempty"` // at most queries.RailsMax

	LimitsGuardrails
}

// LimitsGuardrails bound what a change of limits denies that the limits before it do not. Only rollouts of limits have
// them, and need the first two. The figures begin with the trial of a stage's mode, and are judged in both modes.
type LimitsGuardrails struct {
	// NewlyDeniedShare bounds the share of newly denied decisions among the decisions that both limits have judged, of a
	// region and of a node, 0 to 1; default 0.01. 1 turns it off. It is judged as the other counts are.
	NewlyDeniedShare *float64 `json:"newly_denied_share,omitempty"`

	// NewlyDeniedCallers bounds the number of newly denied callers of a region, 0 to NewlyDeniedCallersMax, which turns
	// it off; default 10. A single look that exceeds it breaks it. See heartbeat.Callers for how exact the number is.
	NewlyDeniedCallers *int64 `json:"newly_denied_callers,omitempty"`

	// Protected are callers of whom none may be newly denied, at most settings.ProtectedMax.
	Protected []settings.Protected `json:"protected,omitempty"`
}

// DefaultNewlyDeniedShare is the default of LimitsGuardrails.NewlyDeniedShare.
const DefaultNewlyDeniedShare = 0.01

// NewlyDeniedCallersMax turns the guardrail of newly denied callers off.
const NewlyDeniedCallersMax = 1_000_000

// DefaultLimitsGuardrails returns the defaults named at the fields.
func DefaultLimitsGuardrails() LimitsGuardrails {
	return LimitsGuardrails{NewlyDeniedShare: new(DefaultNewlyDeniedShare), NewlyDeniedCallers: new(int64(10))}
}

// named returns the first field that is set, or "".
func (g LimitsGuardrails) named() string {
	switch {
	case g.NewlyDeniedShare != nil:
		return "newly_denied_share"
	case g.NewlyDeniedCallers != nil:
		return "newly_denied_callers"
	case len(g.Protected) > 0:
		return "protected"
	}
	return ""
}

// Validate reports the first field that is missing or outside its bounds.
func (g LimitsGuardrails) Validate() error {
	switch share, callers := g.NewlyDeniedShare, g.NewlyDeniedCallers; {
	case share == nil || callers == nil:
		return fmt.Errorf("%w: guardrails newly_denied_share and newly_denied_callers are missing: a rollout of limits "+
			"needs both", controlplane.ErrInvalid)
	case !(*share >= 0 && *share <= 1): // also refuses NaN
		return fmt.Errorf("%w: guardrail newly_denied_share is %v (0 to 1)", controlplane.ErrInvalid, *share)
	case *callers < 0 || *callers > NewlyDeniedCallersMax:
		return fmt.Errorf("%w: guardrail newly_denied_callers is %d (0 to %d)", controlplane.ErrInvalid, *callers,
			NewlyDeniedCallersMax)
	case len(g.Protected) > settings.ProtectedMax:
		return fmt.Errorf("%w: guardrail protected has %d callers (at most %d)", controlplane.ErrInvalid, len(g.Protected),
			settings.ProtectedMax)
	}
	for i, p := range g.Protected {
		if problem := p.Problem(); problem != "" {
			return fmt.Errorf("%w: guardrail protected[%d]: %s", controlplane.ErrInvalid, i, problem)
		}
	}
	return nil
}

// Ceiling bounds a figure. A figure breaks it if it exceeds both Factor times the baseline and Least. For example, with
// Factor 2 and Least 6 a figure may be 6 after a baseline of 1, and 20 after a baseline of 10.
type Ceiling struct {
	Factor float64 `json:"factor"` // 1 to 1,000
	Least  float64 `json:"least"`  // 0 or more
	Off    bool    `json:"off,omitempty"`
}

// DefaultGuardrails returns the defaults named at the fields.
func DefaultGuardrails() Guardrails {
	return Guardrails{
		ErrorsPerMinute:  Ceiling{Factor: 2, Least: 6},
		RowsPerSecond:    Ceiling{Factor: 3, Least: 1000},
		DegradedShare:    Ceiling{Factor: 2, Least: 0.01},
		ConvergenceMs:    Ceiling{Factor: 3, Least: 30_000},
		LatencyUs:        Ceiling{Factor: 3, Least: 1000},
		DeniedShareShift: 0.2,
		RestartsPerHour:  1,
		Comparison:       DefaultComparison(),
	}
}

// Validate reports the first field outside its bounds.
func (g Guardrails) Validate() error {
	for _, of := range []struct {
		field string
		Ceiling
	}{
		{"errors_per_minute", g.ErrorsPerMinute}, {"rows_per_second", g.RowsPerSecond}, {"degraded_share", g.DegradedShare},
		{"convergence_ms", g.ConvergenceMs}, {"latency_us", g.LatencyUs},
	} {
		if !of.Off && !(of.Factor >= 1 && of.Factor <= 1000) { // also refuses NaN
			return fmt.Errorf("%w: guardrail %s: factor is %v (1 to 1000)", controlplane.ErrInvalid, of.field, of.Factor)
		}
		if !(of.Least >= 0) || math.IsInf(of.Least, 1) {
			return fmt.Errorf("%w: guardrail %s: least is %v (0 or more)", controlplane.ErrInvalid, of.field, of.Least)
		}
	}
	if !(g.DeniedShareShift >= 0 && g.DeniedShareShift <= 1) {
		return fmt.Errorf("%w: guardrail denied_share_shift is %v (0 to 1)", controlplane.ErrInvalid, g.DeniedShareShift)
	}
	if !(g.NodesLostShare >= 0 && g.NodesLostShare <= 1) {
		return fmt.Errorf("%w: guardrail nodes_lost_share is %v (0 to 1)", controlplane.ErrInvalid, g.NodesLostShare)
	}
	if g.RestartsPerHour < 0 || g.RestartsPerHour > RestartsPerHourMax {
		return fmt.Errorf("%w: guardrail restarts_per_hour is %d (0 to %d)", controlplane.ErrInvalid, g.RestartsPerHour,
			RestartsPerHourMax)
	}
	if err := g.Comparison.Validate(); err != nil {
		return err
	}
	return queries.Validate(g.Queries)
}

// ErrorRate returns the plan's error rate, or else the default.
func (g Guardrails) ErrorRate() float64 {
	if rate := g.Comparison.ErrorRate; rate > 0 {
		return rate
	}
	return DefaultComparison().ErrorRate
}

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
