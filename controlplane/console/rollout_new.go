package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	stagesShown = 4  // in a new form
	stagesMax   = 20 // the API's maximum
)

// knob is a field of a tuning document, with its description.
type knob struct{ Name, Label, Unit, Help string }

var knobs = []knob{
	{"floor", "Floor", "of the limit",
		"Below it, other regions receive only that a key is used, and its count once they use it too. Higher: fewer " +
			"changes, fewer rows."},
	{"step", "Step", "of the limit",
		"A count is stored durably again after it has grown by 25 steps. Higher: fewer rows."},
	{"feed_interval_ms", "Feed interval", "ms",
		"Time between two rounds of publishing changes to other regions and reading theirs."},
	{"settings_interval_ms", "Settings interval", "ms", "Time between two heartbeats, and between two reads of settings."},
	{"jitter", "Jitter", "of an interval",
		"Random spread of settings interval and replay tick, so that nodes do not all act at the same moment."},
	{"min_global_duration_ms", "Shortest shared window", "ms", "Shorter windows stay within their region."},
	{"replay_tick_ms", "Replay tick", "ms",
		"Time between two sends to Redis. A node that is killed loses as a rule one replay tick, at most two."},
	{"fresh_for_ms", "Fresh for", "ms",
		"How long a key is decided from memory after the last answer of Redis. Then a decision reads Redis first."},
	{"strict_for_ms", "Strict for", "ms", "How long decisions on a key read Redis first after a denial. 0: one window."},
}

// tuned is a field with its value and the value that it is compared with: the default, or in a form the value in force.
type tuned struct {
	knob
	Value   string
	Default string
}

// Changed reports whether the value differs from the value that it is compared with.
func (t tuned) Changed() bool { return t.Value != t.Default }

// tunedFrom reads a document. Fields that it lacks have the default.
func tunedFrom(document string) []tuned {
	standard, err := tuning.Default().Document()
	if err != nil {
		panic(err) // the default is valid
	}
	return compared(document, string(standard))
}

// compared reads a document and compares it with a base. Fields that the document lacks have the base's value.
func compared(document, base string) []tuned {
	values, defaults := numbers(document), numbers(base)
	var out []tuned
	for _, k := range knobs {
		one := tuned{knob: k, Value: defaults[k.Name], Default: defaults[k.Name]}
		if value, ok := values[k.Name]; ok {
			one.Value = value
		}
		out = append(out, one)
	}
	return out
}

// numbers returns a document's fields as they are written.
func numbers(document string) map[string]string {
	var fields map[string]json.Number
	dec := json.NewDecoder(bytes.NewReader([]byte(document)))
	dec.UseNumber()
	_ = dec.Decode(&fields) // an invalid document has no fields
	out := make(map[string]string, len(fields))
	for name, number := range fields {
		out[name] = number.String()
	}
	return out
}

// planForm is the form that starts a rollout.
type planForm struct {
	ID       string
	Tuning   []tuned
	Base     base        // the tuning in force, which the form changes
	Limits   *limitsForm // of a rollout of limits; nil: it changes the tuning
	Stages   []stageForm
	Quorum   quorumForm
	Baseline string // how long health is measured before each stage; empty: the default
	Lease    string // of the stages' trials; empty: the default
	Regions  []string
	Reason   string
	Rails    []railForm
	Shift    field        // bound of the change in the share of denied decisions
	Lost     field        // bound of the share of nodes without heartbeats
	Restarts field        // bound of one node's restarts
	Force    bool         // start even if the fleet's health is critical
	Preview  *previewView // nil: no preview was requested
}

type stageForm struct {
	N        int
	Regions  string // names, a percentage, or "all"
	Nodes    string // of each region: a number, a percentage, or empty for all
	Bake     string
	Approval bool
	Shadow   bool // only count what new limits would decide
	New      bool // just added
}

func (c rolloutPages) newRolloutPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	inForce, err := c.tuningInForce(v)
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	form := c.newPlanForm(r)
	form.Base, form.Tuning = inForce, compared(inForce.Document, inForce.Document)
	form.Stages = firstPlan(form.Regions)
	c.render(w, r, v, http.StatusOK, "rollout-new", "New rollout", form)
}

// newPlanForm returns a form with the defaults of a plan, and without stages.
func (c rolloutPages) newPlanForm(r *http.Request) planForm {
	form := planForm{Regions: c.regions(r), Quorum: firstQuorum, Baseline: "2m", Lease: "5m"}
	form.readRails(nil)
	return form
}

// firstPlan returns a careful plan: all regions with an approval; before that the first region if there are several,
// and half of them if there are more than three.
func firstPlan(regions []string) []stageForm {
	plan := []stageForm{{Regions: "all", Bake: "5m", Approval: true}}
	if len(regions) > 1 {
		plan = []stageForm{{Regions: regions[0], Bake: "5m"}, {Regions: "all", Bake: "5m", Approval: true}}
	}
	if len(regions) > 3 {
		plan = []stageForm{{Regions: regions[0], Bake: "5m"}, {Regions: "50%", Bake: "10m"},
			{Regions: "all", Bake: "10m", Approval: true}}
	}
	return numbered(plan)
}

// numbered returns a plan with its numbers, and with empty stages to fill in.
func numbered(plan []stageForm) []stageForm {
	for len(plan) < stagesShown {
		plan = append(plan, stageForm{})
	}
	for i := range plan {
		plan[i].N = i + 1
	}
	return plan
}

func (c rolloutPages) regions(r *http.Request) (names []string) {
	for _, region := range describe(c.pulse.Look(r.Context())).Regions {
		names = append(names, region.Name)
	}
	return names
}

func (c rolloutPages) startRollout(w http.ResponseWriter, r *http.Request, v *viewer) {
	form, ok := c.filledIn(w, r, v)
	if !ok {
		return
	}
	show := func(code int, problem string) {
		c.renderWith(w, r, v, code, "rollout-new", "New rollout", problem, form)
	}
	if form.Base.Seen != form.Base.Mark() {
		show(http.StatusConflict, "Another tuning has come into force since this form was shown. The changes to it are "+
			"shown below; start the rollout again to make them.")
		return
	}
	msg, err := form.request()
	c.start(w, r, v, msg, err, show)
}

// start starts a rollout with a form's request, or shows the form with the error of the request or of the API.
func (c rolloutPages) start(w http.ResponseWriter, r *http.Request, v *viewer, msg *controlv1.StartRolloutRequest,
	err error, show func(code int, problem string)) {
	if err != nil {
		show(http.StatusBadRequest, err.Error())
		return
	}
	msg.Actor, msg.Reason = c.by(w, r, v)
	started, err := apiclient.Ask(v.ctx, c.backend.Rollouts.StartRollout, msg)
	if err != nil {
		show(status(err), apiclient.Words(err))
		return
	}
	done(w, r, "/console/rollouts/at/"+started.GetRollout().GetId(), "rollout.start", nil)
}

// addStage shows the form again with an additional stage.
func (c rolloutPages) addStage(w http.ResponseWriter, r *http.Request, v *viewer) {
	form, ok := c.filledIn(w, r, v)
	if !ok {
		return
	}
	form.addStage()
	c.render(w, r, v, http.StatusOK, "rollout-new", "New rollout", form)
}

func (f *planForm) addStage() {
	if n := len(f.Stages); n < stagesMax {
		f.Stages = append(f.Stages, stageForm{N: n + 1, New: true})
	}
}

// MoreStages reports whether the plan may have another stage.
func (f planForm) MoreStages() bool { return len(f.Stages) < stagesMax }

func readPlanForm(values url.Values, inForce base) planForm {
	inForce.Seen = values.Get("base")
	form := planForm{ID: strings.TrimSpace(values.Get("id")), Base: inForce, Reason: values.Get("reason"),
		Force: values.Get("force") != "", Quorum: readQuorum(values),
		Baseline: strings.TrimSpace(values.Get("baseline")), Lease: strings.TrimSpace(values.Get("lease")),
		Tuning: compared("", inForce.Document)}
	for i := range form.Tuning {
		form.Tuning[i].Value = strings.TrimSpace(values.Get("tuning." + form.Tuning[i].Name))
	}
	form.readRails(values)
	for n := 1; n <= stagesShown || n <= stagesMax && values.Has("regions."+strconv.Itoa(n)); n++ {
		at := strconv.Itoa(n)
		form.Stages = append(form.Stages, stageForm{N: n, Regions: strings.TrimSpace(values.Get("regions." + at)),
			Nodes: strings.TrimSpace(values.Get("nodes." + at)),
			Bake:  strings.TrimSpace(values.Get("bake." + at)), Approval: values.Get("approval."+at) != "",
			Shadow: values.Get("shadow."+at) != ""})
	}
	return form
}

// document returns the tuning in the form. Its errors name the field.
func (f *planForm) document() (string, error) {
	fields := make(map[string]json.Number)
	for _, t := range f.Tuning {
		if _, err := typedFloat(t.Value); err != nil {
			return "", fmt.Errorf("%s is %q, want a number", t.Label, t.Value)
		}
		fields[t.Name] = json.Number(t.Value)
	}
	document, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("the tuning's fields are not all numbers as JSON has them: %w", err)
	}
	return string(document), nil
}

// request returns the API request of the form. Its errors name the field.
func (f *planForm) request() (*controlv1.StartRolloutRequest, error) {
	document, err := f.document()
	if err != nil {
		return nil, err
	}
	plan, err := f.plan()
	if err != nil {
		return nil, err
	}
	return &controlv1.StartRolloutRequest{Id: f.ID, Tuning: document, Plan: plan, Force: f.Force}, nil
}

// plan returns the plan in the form. Its errors name the field.
func (f *planForm) plan() (plan *controlv1.RolloutPlan, err error) {
	plan = &controlv1.RolloutPlan{}
	for _, s := range f.Stages {
		if s.Regions == "" {
			continue
		}
		stage, err := s.stage()
		if err != nil {
			return nil, err
		}
		plan.Stages = append(plan.Stages, stage)
	}
	if plan.Approvers, plan.ApprovalTtlMs, err = f.Quorum.request(); err != nil {
		return nil, err
	}
	if plan.Guardrails, err = f.guardrails(); err != nil {
		return nil, err
	}
	for _, field := range []struct {
		name, text string
		to         **int64
	}{{"health is measured for", f.Baseline, &plan.BaselineMs}, {"lease of the trials", f.Lease, &plan.LeaseMs}} {
		if field.text == "" {
			continue
		}
		ms, err := typedMs(field.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q, want something like 90s, 10m or 1h", field.name, field.text)
		}
		*field.to = &ms
	}
	return plan, nil
}

func (s stageForm) stage() (*controlv1.RolloutStage, error) {
	stage := &controlv1.RolloutStage{Approval: s.Approval, Shadow: s.Shadow}
	share, isShare := strings.CutSuffix(s.Regions, "%")
	switch {
	case s.Regions == "all":
		stage.All = true
	case isShare:
		percent, err := typedInt32(strings.TrimSpace(share))
		if err != nil {
			return nil, fmt.Errorf("stage %d: %q is no share of regions, want something like 50%%", s.N, s.Regions)
		}
		stage.SharePercent = percent
	default:
		for name := range strings.SplitSeq(s.Regions, ",") {
			stage.Regions = append(stage.Regions, strings.TrimSpace(name))
		}
	}
	if s.Nodes != "" {
		number, isShare := strings.CutSuffix(s.Nodes, "%")
		n, err := typedInt32(strings.TrimSpace(number))
		switch {
		case err != nil || n < 1:
			return nil, fmt.Errorf("stage %d: %q is no number of nodes, want something like 1 or 10%%, or nothing for all", s.N,
				s.Nodes)
		case isShare:
			stage.NodesPercent = n
		default:
			stage.Nodes = n
		}
	}
	if s.Bake != "" {
		ms, err := typedMs(s.Bake)
		if err != nil {
			return nil, fmt.Errorf("stage %d: bake time %q, want something like 90s, 10m or 2h", s.N, s.Bake)
		}
		stage.BakeMs = &ms
	}
	return stage, nil
}
