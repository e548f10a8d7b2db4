package queries

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	// RailsMax bounds the queries of a plan.
	RailsMax = 20
	// QueryBytesMax bounds a query.
	QueryBytesMax = 2000

	queryNameMax     = 64
	queryFactorLeast = 0.01
	queryFactorMost  = 1000
)

// Rail is a guardrail that a Prometheus measures. Set exactly one of Above, Below and TimesBaseline: for example,
// Above: 0.01 for a share of errors. A value that is beyond the bound for two minutes, or for half the bake if that is
// shorter, breaks the rail, as for latency. A query with RegionPlaceholder is sent once for each of at most 50 regions
// that have the tuning and a node. Any region may break the rail, and regions beyond the 50 have no value. A query
// without the placeholder has a single baseline, from before the first stage.
type Rail struct {
	Name  string `json:"name"`  // 1 to 64 bytes
	Query string `json:"query"` // PromQL, a scalar or a vector; any element may break it

	Above         *float64 `json:"above,omitempty"`
	Below         *float64 `json:"below,omitempty"`
	TimesBaseline *float64 `json:"times_baseline,omitempty"` // of the value before the stage, 0.01 to 1,000

	// Required makes a stage wait for a value, and roll back after apply_timeout_ms without a value. Otherwise a
	// Prometheus that does not answer breaks nothing. Every stage waits in this way while an element is NaN. An infinite
	// element is beyond every bound on its side.
	Required bool `json:"required,omitempty"`
}

// Value is the answer to a query: its worst element.
type Value struct {
	Name    string   `json:"name"`
	Region  string   `json:"region,omitempty"`
	Value   *float64 `json:"value,omitempty"`   // nil: nothing was answered
	Problem string   `json:"problem,omitempty"` // why not
	NaN     bool     `json:"nan,omitempty"`     // an element is not a number; Value is the worst of the others

	// Over is how long the rail's bound has been exceeded. Without answers it does not change.
	Over Lasting `json:"over_for_ms,omitempty"`
}

// Prometheus answers queries. An error that wraps controlplane.ErrInvalid is about the query itself.
type Prometheus interface {
	Query(ctx context.Context, query string) (values []float64, err error)
}

// Shown returns the value of the answer. An infinite value is infinite here.
func (v Value) Shown() *float64 {
	if v.Value == nil || math.Abs(*v.Value) != math.MaxFloat64 {
		return v.Value
	}
	endless := math.Copysign(math.Inf(1), *v.Value)
	return &endless
}

// Validate returns the faults of a plan's rails.
func Validate(rails []Rail) error {
	if len(rails) > RailsMax {
		return fmt.Errorf("%w: guardrails have %d queries (at most %d)", controlplane.ErrInvalid, len(rails), RailsMax)
	}
	names := map[string]bool{}
	for i, q := range rails {
		if err := q.Validate(); err != nil {
			return fmt.Errorf("query %d: %w", i+1, err)
		}
		if names[q.Name] {
			return fmt.Errorf("%w: two queries are called %q", controlplane.ErrInvalid, q.Name)
		}
		names[q.Name] = true
	}
	return nil
}

// Validate reports the first field outside its bounds.
func (q Rail) Validate() error {
	if err := controlplane.ValidateText("name", q.Name, queryNameMax); err != nil {
		return err
	}
	if n := len(q.Query); n < 1 || n > QueryBytesMax {
		return fmt.Errorf("%w: query of %s is %d bytes long (1 to %d)", controlplane.ErrInvalid, q.Name, n, QueryBytesMax)
	}
	said := 0
	for _, bound := range []*float64{q.Above, q.Below, q.TimesBaseline} {
		if bound == nil {
			continue
		}
		said++
		if math.IsNaN(*bound) || math.IsInf(*bound, 0) {
			return fmt.Errorf("%w: the bound of %s is %v", controlplane.ErrInvalid, q.Name, *bound)
		}
	}
	if said != 1 {
		return fmt.Errorf("%w: %s: want exactly one of above, below and times_baseline", controlplane.ErrInvalid, q.Name)
	}
	if f := q.TimesBaseline; f != nil && !(*f >= queryFactorLeast && *f <= queryFactorMost) {
		return fmt.Errorf("%w: times_baseline of %s is %v (%v to %v)", controlplane.ErrInvalid, q.Name, *f, queryFactorLeast,
			queryFactorMost)
	}
	return nil
}

// Bound returns the rail's bound, as text for people.
func (q Rail) Bound() string {
	switch {
	case q.Above != nil:
		return "at most " + controlplane.Figure(*q.Above)
	case q.Below != nil:
		return "at least " + controlplane.Figure(*q.Below)
	case q.TimesBaseline != nil:
		return "at most " + controlplane.Figure(*q.TimesBaseline) + " times before"
	}
	return ""
}

// Of returns the query of a region.
func (q Rail) Of(region string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(region)
	return strings.ReplaceAll(q.Query, RegionPlaceholder, escaped)
}

// Worst returns the element that comes closest to breaking the rail, or breaks it most. JSON cannot hold infinite
// numbers, so they are math.MaxFloat64 or its negative. nan reports whether an element is not a number.
func (q Rail) Worst(values []float64) (worst *float64, nan bool) {
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

// Beyond describes in a line by how much a value is beyond the rail's bound. It returns "" if the value is within.
func (q Rail) Beyond(was, is Value) string {
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
		before = fmt.Sprintf(" (before the stage %s)", controlplane.Figure(*was.Value))
	}
	if !broken {
		return ""
	}
	where := ""
	if is.Region != "" {
		where = " in " + is.Region
	}
	return fmt.Sprintf("%s%s is %s, want %s%s", q.Name, where, controlplane.Figure(v), q.Bound(), before)
}

// FindValue returns the value of the same rail and region, or a zero value.
func FindValue(values []Value, like Value) Value {
	for _, v := range values {
		if v.Name == like.Name && v.Region == like.Region {
			return v
		}
	}
	return Value{}
}

// AddBaselines adds the answers from before a stage. A value of an earlier stage stays, because harm by that stage is
// no baseline for the next stage.
func AddBaselines(values, of []Value) []Value {
	values = slices.DeleteFunc(slices.Clone(values), func(v Value) bool { return v.Value == nil })
	for _, v := range of {
		if FindValue(values, v).Value == nil {
			values = append(values, v)
		}
	}
	return values
}

// Lasting is how long looks have found something, in ms; 0: the newest look did not find it. Time without a look
// does not count in full: see Lasting.See.
type Lasting int64

// See records a look, gapMs after the look before. A gap counts for at most half of the allowed time, so it takes at
// least three looks in a row to exceed it.
func (l *Lasting) See(found bool, gapMs int64, borne time.Duration) {
	switch {
	case !found:
		*l = 0
	case *l == 0:
		*l = 1 // the look does not show since when
	default:
		*l += Lasting(min(gapMs, borne.Milliseconds()/2))
	}
}

// Time returns how long the state has lasted.
func (l Lasting) Time() time.Duration { return time.Duration(l) * time.Millisecond }

// Reaches reports whether the state has lasted for the whole time that is allowed.
func (l Lasting) Reaches(borne time.Duration) bool { return l > 0 && l.Time() >= borne }

// RegionPlaceholder stands for a region's name in a query, within double quotes:
// {region="{{region}}"}.
const RegionPlaceholder = "{{region}}"
