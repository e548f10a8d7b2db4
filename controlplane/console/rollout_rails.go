package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	rolloutplan "github.com/weirhq/weir/controlplane/rollout/plan"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// railForm is a guardrail for a figure. The bound is the figure before the stage times Factor, but at least Least.
type railForm struct {
	Name, Label, Unit string
	Factor, Least     string // empty: the default
	Off               bool
	FactorDefault     string
	LeastDefault      string
}

// Changed reports whether the guardrail differs from the default.
func (r railForm) Changed() bool {
	return r.Off || r.Factor != r.FactorDefault || r.Least != r.LeastDefault
}

// railForms returns the guardrails with their defaults.
func railForms() (forms []railForm) {
	standard := rolloutplan.DefaultGuardrails()
	for _, r := range []struct {
		name, bounds string
		rolloutplan.Ceiling
	}{
		{"errors_per_minute", "", standard.ErrorsPerMinute}, {"rows_per_second", "", standard.RowsPerSecond},
		{"degraded_share", ", 0 to 1", standard.DegradedShare}, {"convergence_ms", "", standard.ConvergenceMs},
		{"latency_us", "", standard.LatencyUs},
	} {
		words, factor, least := railWords[r.name], plainFigure(r.Factor), plainFigure(r.Least)
		forms = append(forms, railForm{Name: r.name, Label: words[0], Unit: words[1] + r.bounds, Factor: factor, Least: least,
			FactorDefault: factor, LeastDefault: least})
	}
	return forms
}

// plainFigure formats a number as people type it.
func plainFigure(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// readRails reads the guardrails from the form. nil stands for a new form. Fields that are missing have their default.
func (f *planForm) readRails(values url.Values) {
	standard := rolloutplan.DefaultGuardrails()
	f.Rails = railForms()
	f.Shift = field{Name: "guard.denied_share_shift", Label: "Allowed shift of denied decisions",
		Hint: plainFigure(standard.DeniedShareShift), Value: plainFigure(standard.DeniedShareShift)}
	f.Restarts = field{Name: "guard.restarts_per_hour", Label: "Allowed restarts of a node",
		Hint: strconv.Itoa(standard.RestartsPerHour), Value: strconv.Itoa(standard.RestartsPerHour)}
	f.Lost = field{Name: "guard.nodes_lost_share", Label: "Allowed share of silent nodes",
		Hint: plainFigure(standard.NodesLostShare), Value: plainFigure(standard.NodesLostShare)}
	read := func(name string, to *string) {
		if values.Has(name) {
			*to = strings.TrimSpace(values.Get(name))
		}
	}
	for i := range f.Rails {
		r := &f.Rails[i]
		read("guard."+r.Name+".factor", &r.Factor)
		read("guard."+r.Name+".least", &r.Least)
		r.Off = values.Get("guard."+r.Name+".off") != ""
	}
	read(f.Shift.Name, &f.Shift.Value)
	read(f.Lost.Name, &f.Lost.Value)
	read(f.Restarts.Name, &f.Restarts.Value)
}

// guardrails returns the guardrails for the API request. Errors name the field. The API checks the bounds.
func (f *planForm) guardrails() (*controlv1.RolloutGuardrails, error) {
	g := &controlv1.RolloutGuardrails{}
	into := map[string]**controlv1.RolloutCeiling{"errors_per_minute": &g.ErrorsPerMinute,
		"rows_per_second": &g.RowsPerSecond, "degraded_share": &g.DegradedShare, "convergence_ms": &g.ConvergenceMs,
		"latency_us": &g.LatencyUs}
	for _, r := range f.Rails {
		c := &controlv1.RolloutCeiling{Off: r.Off}
		if err := number("guardrail "+r.Label+": times", r.Factor, &c.Factor); err != nil {
			return nil, err
		}
		if err := number("guardrail "+r.Label+": never below", r.Least, &c.Least); err != nil {
			return nil, err
		}
		*into[r.Name] = c
	}
	if err := number("guardrail "+f.Shift.Label, f.Shift.Value, &g.DeniedShareShift); err != nil {
		return nil, err
	}
	if f.Restarts.Value != "" {
		restarts, err := typedInt32(f.Restarts.Value)
		if err != nil {
			return nil, fmt.Errorf("guardrail %s is %q, want a whole number", f.Restarts.Label, f.Restarts.Value)
		}
		g.RestartsPerHour = &restarts
	}
	return g, number("guardrail "+f.Lost.Label, f.Lost.Value, &g.NodesLostShare)
}

// number reads a number if the text is not empty.
func number(name, text string, to **float64) error {
	if text == "" {
		return nil
	}
	v, err := typedFloat(text)
	if err != nil {
		return fmt.Errorf("%s is %q, want a number", name, text)
	}
	*to = &v
	return nil
}
