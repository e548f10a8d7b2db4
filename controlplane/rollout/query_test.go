package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// oracle is a Prometheus whose answers a test sets.
type oracle struct {
	answers map[string][]float64 // by query
	down    bool
	asked   []string
}

func (o *oracle) Query(_ context.Context, query string) ([]float64, error) {
	o.asked = append(o.asked, query)
	if o.down {
		return nil, fmt.Errorf("%w: Prometheus does not answer", controlplane.ErrUnavailable)
	}
	if strings.Contains(query, "((") {
		return nil, fmt.Errorf("%w: Prometheus: bad_data: unclosed left parenthesis", controlplane.ErrInvalid)
	}
	return o.answers[query], nil
}

func guarded(rails ...queries.Rail) Spec {
	s := spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 60_000}, plan.Stage{All: true, BakeMs: 60_000})
	s.Plan.Guardrails.Queries = rails
	return s
}

func playGuarded(t *testing.T, o *oracle, change func(*Rollout), rails ...queries.Rail) *Rollout {
	t.Helper()
	l := newLand("eu", "us")
	r, steps := begin(t, l, guarded(rails...))
	steps.on.work = steps.on.work.WithPrometheus(o)
	play(t, r, steps, func() bool { change(r); return r.Phase.Over() })
	return r
}

// Guardrails from Prometheus roll back: absolute or relative to a baseline, per region, with a one-line reason in the
// status.
func TestQueriesRollBack(t *testing.T) {
	const query = `errors{region="{{region}}"}`
	for _, c := range []struct {
		what string
		rail queries.Rail
		bad  []float64
		why  string // empty: it is done
	}{
		{"above", queries.Rail{Name: "errors", Query: query, Above: new(0.5)}, []float64{0.1, 0.7}, "stage 1 (eu): errors in eu is 0.7, want at most 0.5"},
		{"below", queries.Rail{Name: "hits", Query: query, Below: new(0.05)}, []float64{0.1, 0.01}, "stage 1 (eu): hits in eu is 0.01, want at least 0.05"},
		{"times", queries.Rail{Name: "errors", Query: query, TimesBaseline: new(3.0)}, []float64{0.4}, "stage 1 (eu): errors in eu is 0.4, want at most 3 times before (before the stage 0.1)"},
		{"within", queries.Rail{Name: "errors", Query: query, TimesBaseline: new(3.0)}, []float64{0.3}, ""},
		{"nothing", queries.Rail{Name: "errors", Query: query, Above: new(0.5)}, nil, ""},
	} {
		o := &oracle{answers: map[string][]float64{`errors{region="eu"}`: {0.1}, `errors{region="us"}`: {0.1}}}
		r := playGuarded(t, o, func(r *Rollout) {
			if r.Phase == Baking {
				o.answers[`errors{region="eu"}`] = c.bad
			}
		}, c.rail)
		if r.Why != c.why || (r.Phase == Done) != (c.why == "") {
			t.Errorf("%s: %s %q, want %q", c.what, r.Phase, r.Why, c.why)
		}
		if c.why == "" && !slices.Contains(o.asked, `errors{region="us"}`) {
			t.Errorf("%s: asked %v", c.what, o.asked)
		}
	}
}

// A value that is beyond its bound for a moment breaks nothing. If it stays there, it breaks its guardrail after two
// minutes, or half the bake if that is shorter. Looks without an answer neither prolong that time nor end it.
func TestAQueryBreaksByTimeAndNotByALook(t *testing.T) {
	rail := queries.Rail{Name: "errors", Query: "errors", Above: new(0.5)}
	for name, c := range map[string]struct {
		bad  func(look int) bool
		down func(look int) bool
		want Phase
	}{
		"at one look in two":      {func(look int) bool { return look%2 == 0 }, nil, Done},
		"for good":                {func(int) bool { return true }, nil, RolledBack},
		"for good, with gaps":     {func(int) bool { return true }, func(look int) bool { return look%2 == 0 }, RolledBack},
		"for nine looks of a few": {func(look int) bool { return look < 9 }, nil, Done},
	} {
		o := &oracle{answers: map[string][]float64{"errors": {0.1}}}
		looks := 0
		r := playGuarded(t, o, func(r *Rollout) {
			if o.answers["errors"] = []float64{0.1}; r.Phase == Baking {
				if looks++; c.bad(looks) {
					o.answers["errors"] = []float64{0.7}
				}
				o.down = c.down != nil && c.down(looks)
			}
		}, rail)
		if r.Phase != c.want {
			t.Errorf("%s: %s %q after %d looks", name, r.Phase, r.Why, looks)
		}
		if c.want == RolledBack && looks < 11 {
			t.Errorf("%s: broken at look %d", name, looks)
		}
	}
}

// By default a query without an answer does not stop a rollout. For a required query the stage waits, and rolls back
// after a time.
func TestPrometheusIsDown(t *testing.T) {
	rail := queries.Rail{Name: "errors", Query: "errors", Above: new(0.5)}
	from := func(o *oracle, phase Phase) func(*Rollout) {
		return func(r *Rollout) { o.down = o.down || r.Phase == phase }
	}
	answers := map[string][]float64{"errors": {0}}
	o := &oracle{answers: answers}
	if r := playGuarded(t, o, from(o, Measuring), rail); r.Phase != Done {
		t.Errorf("not required: %s %q", r.Phase, r.Why)
	}
	rail.Required = true
	for _, c := range []struct {
		phase   Phase
		touched int
	}{{Measuring, 0}, {Baking, 1}} {
		o = &oracle{answers: answers}
		waited := false
		r := playGuarded(t, o, func(r *Rollout) {
			from(o, c.phase)(r)
			waited = waited || strings.Contains(r.Waiting, "guardrail errors has no value: unavailable: Prometheus does not answer")
		}, rail)
		if r.Phase != RolledBack || !strings.Contains(r.Why, "guardrail errors has no value") || len(r.Touched) != c.touched || !waited {
			t.Errorf("required, down when %s: %s %q, %d touched, waited %v", c.phase, r.Phase, r.Why, len(r.Touched), waited)
		}
	}
	o = &oracle{answers: answers}
	looks := 0
	if r := playGuarded(t, o, func(r *Rollout) {
		if r.Phase == Baking {
			looks++
			o.down = looks > 1 && looks < 4
		}
	}, rail); r.Phase != Done || r.Blind != 0 {
		t.Errorf("required, back in time: %s %q", r.Phase, r.Why)
	}
}

func TestQueriesAreCheckedAtTheStart(t *testing.T) {
	bad := queries.Rail{Name: "errors", Query: "sum((", Above: new(0.5)}
	asks := spec(all)
	asks.Plan.Guardrails.Queries = []queries.Rail{bad}
	w := NewWork(newLand("eu"), 30*time.Second)
	if problem, err := w.checkSpec(t.Context(), asks); err != nil || !strings.Contains(problem, "no --prometheus-url") {
		t.Errorf("%q, %v", problem, err)
	}
	o := &oracle{}
	w = w.WithPrometheus(o)
	if problem, err := w.checkSpec(t.Context(), asks); err != nil || !strings.Contains(problem, "query of errors: invalid: Prometheus: bad_data: unclosed left parenthesis") {
		t.Errorf("%q, %v", problem, err)
	}
	o.down = true
	if problem, err := w.checkSpec(t.Context(), asks); err != nil || problem != "" {
		t.Errorf("down: %q, %v", problem, err)
	}
	for want, q := range map[string]queries.Rail{
		"name is empty":                           {Query: "x", Above: new(1.0)},
		"query of a is 0 bytes long (1 to 2000)":  {Name: "a", Above: new(1.0)},
		"exactly one of above, below and times":   {Name: "a", Query: "x"},
		"a: want exactly one of above":            {Name: "a", Query: "x", Above: new(1.0), Below: new(1.0)},
		"times_baseline of a is 0 (0.01 to 1000)": {Name: "a", Query: "x", TimesBaseline: new(0.0)},
	} {
		if err := guarded(q).Validate(); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	one := queries.Rail{Name: "a", Query: "x", Above: new(1.0)}
	if err := guarded(one, one).Validate(); err == nil || !strings.Contains(err.Error(), `two queries are called "a"`) {
		t.Error(err)
	}
	if err := guarded(slices.Repeat([]queries.Rail{one}, 21)...).Validate(); err == nil || !strings.Contains(err.Error(), "21 queries (at most 20)") {
		t.Error(err)
	}
	if got := (queries.Rail{Query: `x{region="{{region}}"}`}).Of("a\"b\\\n"); got != `x{region="a\"b\\\n"}` {
		t.Errorf("a region's name ends its string: %s", got)
	}
}

// A required query without a region has no value, and a query for more regions than allowed lacks some values. Neither
// passes.
func TestARequiredQueryOverNothingIsBlind(t *testing.T) {
	g := plan.DefaultGuardrails()
	g.Queries = []queries.Rail{{Name: "errors", Query: `errors{region="{{region}}"}`, Above: new(1.0), Required: true}}
	o := &oracle{answers: map[string][]float64{}}
	regions := make([]string, queryRegionsMax+1)
	for i := range regions {
		regions[i] = fmt.Sprintf("r%d", i)
		o.answers[fmt.Sprintf(`errors{region="r%d"}`, i)] = []float64{0}
	}
	steps := NewWork(newLand("eu"), 30*time.Second).WithPrometheus(o).On(controlplane.Once(t.Context()))
	for says, asked := range map[string][]string{
		"guardrail errors has no value: no region has a node":                   nil,
		"guardrail errors has no value: a query is sent for at most 50 regions": regions,
		"": regions[1:],
	} {
		values, err := steps.queries(asked, g.Queries)
		if got := guard.Blind(g, values); err != nil || got != says {
			t.Errorf("%d regions: %q, %v, want %q", len(asked), got, err, says)
		}
	}
}

// Each region has a single baseline, from before its own stage. A region without a value at that time is not compared
// with a baseline. A region of a later stage is, as soon as it has a value.
func TestEachRegionHasItsBaseline(t *testing.T) {
	rail := queries.Rail{Name: "errors", Query: `errors{region="{{region}}"}`, TimesBaseline: new(2.0)}
	fleet := queries.Rail{Name: "all", Query: "all", TimesBaseline: new(2.0)}
	for _, c := range []struct {
		before, since map[string][]float64
		why           string // empty: done
	}{
		{map[string][]float64{"eu": {1}, "us": {9}, "all": {1}}, map[string][]float64{"eu": {1}, "us": {17}}, ""},
		{map[string][]float64{"eu": {9}, "us": {1}}, map[string][]float64{"eu": {17}, "us": {3}}, "errors in us is 3, want at most 2 times before (before the stage 1)"},
		{map[string][]float64{"us": {1}}, map[string][]float64{"eu": {99}, "us": {3}}, "errors in us is 3, want"},
		{map[string][]float64{}, map[string][]float64{"all": {1}}, ""},
		{map[string][]float64{}, map[string][]float64{"all": {1}, "all in stage 2": {3}}, "all is 3, want at most 2 times before (before the stage 1)"},
	} {
		o := &oracle{answers: map[string][]float64{}}
		answer := func(values map[string][]float64) {
			for name, v := range values {
				if name == "all" {
					o.answers["all"] = v
				} else {
					o.answers[fmt.Sprintf("errors{region=%q}", name)] = v
				}
			}
		}
		answer(c.before)
		r := playGuarded(t, o, func(r *Rollout) {
			if r.Phase.step() >= guard.Applying && (r.Stage == 1 || c.since["all"] != nil) {
				answer(c.since)
			}
			if all := c.since["all in stage 2"]; all != nil && r.Stage == 1 && r.Phase.step() >= guard.Applying {
				o.answers["all"] = all
			}
		}, rail, fleet)
		if !strings.Contains(r.Why, c.why) || (r.Phase == Done) != (c.why == "") {
			t.Errorf("%v, then %v: %s %q, want %q", c.before, c.since, r.Phase, r.Why, c.why)
		}
		seen := map[queries.Value]bool{}
		for _, v := range r.QueriesBefore {
			if of := (queries.Value{Name: v.Name, Region: v.Region}); seen[of] {
				t.Errorf("%+v has two baselines", of)
			} else {
				seen[of] = true
			}
		}
	}
}

// A start is refused if the tuning's heartbeats are less frequent than the control plane's time within which a node is
// live.
func TestATuningFitsTheControlPlane(t *testing.T) {
	asks := spec(all)
	asks.Tuning = controltest.Document("settings_interval_ms=13000")
	for within, want := range map[time.Duration]string{
		30 * time.Second: "node-live-within is 30000 ms (at least 31200 ms with settings_interval_ms 13000 and jitter 0.2",
		32 * time.Second: "",
	} {
		problem, err := NewWork(newLand("eu"), within).checkSpec(t.Context(), asks)
		if err != nil || (problem == "") != (want == "") || !strings.Contains(problem, want) {
			t.Errorf("within %v: %q, %v; want %q", within, problem, err, want)
		}
	}
}
