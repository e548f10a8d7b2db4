package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

const (
	// QueryRailsMax bounds the queries of a plan.
	QueryRailsMax = 20
	// QueryBytesMax bounds one of them.
	QueryBytesMax = 2000

	queryRegionsMax  = 50 // for which a query with RegionPlaceholder is asked
	queryNameMax     = 64
	queryProblemMax  = 200
	queryFactorLeast = 0.01
	queryFactorMost  = 1000
)

// RegionPlaceholder stands for a region's name in a query, within double quotes:
// {region="{{region}}"}.
const RegionPlaceholder = "{{region}}"

// QueryRail is a guardrail that a Prometheus measures: exactly one of Above, Below and
// TimesBaseline bounds it. A value that is beyond the bound for two minutes, or half the bake if that is shorter,
// breaks it, as for latency. A query with RegionPlaceholder is asked once for
// each region that has the tuning and a node, at most queryRegionsMax; any region may break
// it, and one beyond them has no value. One without it has one baseline, of before the first stage.
type QueryRail struct {
	Name  string `json:"name"`  // 1 to 64 bytes
	Query string `json:"query"` // PromQL, a scalar or a vector; any element may break it

	Above         *float64 `json:"above,omitempty"`
	Below         *float64 `json:"below,omitempty"`
	TimesBaseline *float64 `json:"times_baseline,omitempty"` // of the value before the stage, 0.01 to 1,000

	// Required makes a stage wait for a value, and after apply_timeout_ms without one
	// roll back. Otherwise a Prometheus that does not answer breaks nothing. Every stage waits
	// in this way while an element is NaN. An infinite element is beyond every bound on its side.
	Required bool `json:"required,omitempty"`
}

// Prometheus answers queries. An error that wraps ErrInvalid is about the query itself.
type Prometheus interface {
	Query(ctx context.Context, query string) (values []float64, err error)
}

// QueryValue is what a query answered: its worst element.
type QueryValue struct {
	Name    string   `json:"name"`
	Region  string   `json:"region,omitempty"`
	Value   *float64 `json:"value,omitempty"`   // nil: nothing was answered
	Problem string   `json:"problem,omitempty"` // why not
	NaN     bool     `json:"nan,omitempty"`     // an element is not a number; Value is of the others

	// Over is how long the rail's bound has been exceeded. While nothing is answered it stands still.
	Over Lasting `json:"over_for_ms,omitempty"`
}

// Shown is the value as it was answered: an infinite one is infinite.
func (v QueryValue) Shown() *float64 {
	if v.Value == nil || math.Abs(*v.Value) != math.MaxFloat64 {
		return v.Value
	}
	endless := math.Copysign(math.Inf(1), *v.Value)
	return &endless
}

func validateQueries(rails []QueryRail) error {
	if len(rails) > QueryRailsMax {
		return fmt.Errorf("%w: guardrails have %d queries (at most %d)", ErrInvalid, len(rails), QueryRailsMax)
	}
	names := map[string]bool{}
	for i, q := range rails {
		if err := q.validate(); err != nil {
			return fmt.Errorf("query %d: %w", i+1, err)
		}
		if names[q.Name] {
			return fmt.Errorf("%w: two queries are called %q", ErrInvalid, q.Name)
		}
		names[q.Name] = true
	}
	return nil
}

func (q QueryRail) validate() error {
	if err := ValidateText("name", q.Name, queryNameMax); err != nil {
		return err
	}
	if n := len(q.Query); n < 1 || n > QueryBytesMax {
		return fmt.Errorf("%w: query of %s is %d bytes long (1 to %d)", ErrInvalid, q.Name, n, QueryBytesMax)
	}
	said := 0
	for _, bound := range []*float64{q.Above, q.Below, q.TimesBaseline} {
		if bound == nil {
			continue
		}
		said++
		if math.IsNaN(*bound) || math.IsInf(*bound, 0) {
			return fmt.Errorf("%w: the bound of %s is %v", ErrInvalid, q.Name, *bound)
		}
	}
	if said != 1 {
		return fmt.Errorf("%w: %s: want exactly one of above, below and times_baseline", ErrInvalid, q.Name)
	}
	if f := q.TimesBaseline; f != nil && !(*f >= queryFactorLeast && *f <= queryFactorMost) {
		return fmt.Errorf("%w: times_baseline of %s is %v (%v to %v)", ErrInvalid, q.Name, *f, queryFactorLeast,
			queryFactorMost)
	}
	return nil
}

// Bound is the rail's, for people.
func (q QueryRail) Bound() string {
	switch {
	case q.Above != nil:
		return "at most " + Figure(*q.Above)
	case q.Below != nil:
		return "at least " + Figure(*q.Below)
	case q.TimesBaseline != nil:
		return "at most " + Figure(*q.TimesBaseline) + " times before"
	}
	return ""
}

// of is the query of a region.
func (q QueryRail) of(region string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(region)
	return strings.ReplaceAll(q.Query, RegionPlaceholder, escaped)
}

// worst is the element that comes closest to breaking the rail, or breaks it most. An infinite one is
// math.MaxFloat64, or its negative, which JSON can hold. nan tells that an element is not a number.
func (q QueryRail) worst(values []float64) (worst *float64, nan bool) {
	for _, v := range values {
		if math.IsNaN(v) {
			nan = true
			continue
		}
		v = max(-math.MaxFloat64, min(v, math.MaxFloat64))
		if worst == nil || q.Below == nil && v > *worst || q.Below != nil && v < *worst {
			worst = &v
		}
	}
	return worst, nan
}

// beyond says in one line by what a value is beyond the rail's bound; empty: it is not.
func (q QueryRail) beyond(was, is QueryValue) string {
	if is.Value == nil {
		return ""
	}
	v, broken, before := *is.Value, false, ""
	switch {
	case q.Above != nil:
		broken = v > *q.Above
	case q.Below != nil:
		broken = v < *q.Below
	case q.TimesBaseline != nil && was.Value != nil:
		broken = v > *q.TimesBaseline*(*was.Value) || v == math.MaxFloat64 // +Inf: no multiple of anything
		before = fmt.Sprintf(" (before the stage %s)", Figure(*was.Value))
	}
	if !broken {
		return ""
	}
	where := ""
	if is.Region != "" {
		where = " in " + is.Region
	}
	return fmt.Sprintf("%s%s is %s, want %s%s", q.Name, where, Figure(v), q.Bound(), before)
}

// noteQueries takes in a look, gapMs after the one before, which answered last: how long values have been beyond their
// bounds. before is what was answered before the stage.
func (g Guardrails) noteQueries(before, last, now []QueryValue, gapMs int64, borne time.Duration) {
	for _, q := range g.Queries {
		for i := range now {
			is := &now[i]
			if is.Name != q.Name {
				continue
			}
			if is.Over = find(last, *is).Over; is.Value != nil {
				is.Over.see(q.beyond(find(before, *is), *is) != "", gapMs, borne)
			}
		}
	}
}

// breachOfQueries returns which rail is broken, and by what; empty: none is.
func (g Guardrails) breachOfQueries(before, now []QueryValue, borne time.Duration) string {
	for _, q := range g.Queries {
		for _, is := range now {
			if is.Name == q.Name && is.Value != nil && is.Over.reaches(borne) {
				return q.beyond(find(before, is), is)
			}
		}
	}
	return ""
}

// queryBeyond names a value that is beyond its bound and not yet for as long as breaks the rail; empty: none is.
func (g Guardrails) queryBeyond(now []QueryValue, borne time.Duration) string {
	for _, q := range g.Queries {
		for _, is := range now {
			if is.Name == q.Name && is.Over > 0 {
				return fmt.Sprintf("guardrail %s is beyond its bound for %s, and is broken after %s", q.Name,
					Seconds(is.Over.time()), borne)
			}
		}
	}
	return ""
}

func find(values []QueryValue, like QueryValue) QueryValue {
	for _, v := range values {
		if v.Name == like.Name && v.Region == like.Region {
			return v
		}
	}
	return QueryValue{}
}

// addBaselines adds what was answered before a stage. A value of an earlier stage stays: what that stage made worse
// is no baseline of the next.
func addBaselines(values, of []QueryValue) []QueryValue {
	values = slices.DeleteFunc(slices.Clone(values), func(v QueryValue) bool { return v.Value == nil })
	for _, v := range of {
		if find(values, v).Value == nil {
			values = append(values, v)
		}
	}
	return values
}

// blind names a rail that has an element that is not a number, or a required one that has no value; empty: there is
// none.
func (g Guardrails) blind(values []QueryValue) string {
	for _, q := range g.Queries {
		for _, v := range values {
			if v.Name == q.Name && (v.NaN || q.Required && v.Value == nil) {
				return fmt.Sprintf("guardrail %s has no value: %s", q.Name, v.Problem)
			}
		}
	}
	return ""
}

// Queries asks all rails, for regions. What is not answered is in the values, as is what
// there was nothing to ask about: an outage of Prometheus is no trouble of the rollout's.
func (w *RolloutWork) Queries(ctx context.Context, regions []string, rails []QueryRail) ([]QueryValue, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	var values []QueryValue
	for _, q := range rails {
		switch {
		case !strings.Contains(q.Query, RegionPlaceholder):
			values = append(values, w.query(ctx, q, ""))
		case len(regions) == 0:
			values = append(values, QueryValue{Name: q.Name, Problem: "no region has a node"})
		default:
			values = append(values, w.queryRegions(ctx, q, regions)...)
		}
	}
	return values, nil
}

func (w *RolloutWork) queryRegions(ctx context.Context, q QueryRail, regions []string) (values []QueryValue) {
	for i, region := range regions {
		if i < queryRegionsMax {
			values = append(values, w.query(ctx, q, region))
		} else {
			values = append(values, QueryValue{Name: q.Name, Region: region,
				Problem: fmt.Sprintf("a query is sent for at most %d regions", queryRegionsMax)})
		}
	}
	return values
}

func (w *RolloutWork) query(ctx context.Context, q QueryRail, region string) QueryValue {
	v := QueryValue{Name: q.Name, Region: region}
	if w.prometheus == nil {
		v.Problem = "weir-control has no --prometheus-url"
		return v
	}
	values, err := w.prometheus.Query(ctx, q.of(region))
	if err != nil {
		v.Problem = Cut(err.Error(), queryProblemMax)
		return v
	}
	switch v.Value, v.NaN = q.worst(values); {
	case v.NaN:
		v.Problem = "an element is NaN"
	case v.Value == nil:
		v.Problem = "the query has no result"
	}
	return v
}

// CheckSpec returns what in a spec does not fit this control plane: its time within which a node is live, or its
// Prometheus, which may find a query wrong. It returns an empty string if Prometheus does not answer, which a stage
// will find out.
func (w *RolloutWork) CheckSpec(ctx context.Context, spec RolloutSpec) (problem string, err error) {
	set, err := tuning.Parse([]byte(spec.Tuning))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := set.CheckTimes(tuning.Times{LiveWithin: w.liveWithin}); err != nil {
		return err.Error(), nil
	}
	rails := spec.Plan.Guardrails.Queries
	if len(rails) == 0 {
		return "", nil
	}
	if w.prometheus == nil {
		return "the plan has queries, and weir-control has no --prometheus-url to ask", nil
	}
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	for _, q := range rails {
		if _, err := w.prometheus.Query(ctx, q.of("region")); errors.Is(err, ErrInvalid) {
			return fmt.Sprintf("query of %s: %s", q.Name, Cut(err.Error(), 2*queryProblemMax)), nil
		}
	}
	return "", nil
}

// WithPrometheus returns the steps with a Prometheus to ask.
func (w *RolloutWork) WithPrometheus(p Prometheus) *RolloutWork {
	with := *w
	with.prometheus = p
	return &with
}
