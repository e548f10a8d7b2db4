package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	rolloutplan "github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
)

// someTuning returns a filled-in form, without a plan.
func someTuning() url.Values {
	form := url.Values{"id": {"r1"}, "reason": {"fewer rows"}, "base": {markOf(tunings.RegionTuning{Document: controltest.Document()})}}
	for _, k := range tunedFrom("") {
		form.Set("tuning."+k.Name, k.Value)
	}
	return form
}

// A form takes any number of stages that the API admits, each as it was filled in.
func TestStagesAreAdded(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	plan := someTuning()
	plan.Set("guard.latency_us.off", "on")
	for n := range stagesShown {
		plan.Set(fmt.Sprint("regions.", n+1), fmt.Sprint(n+1, "%"))
	}
	for n := stagesShown + 1; n <= stagesMax; n++ {
		a := b.send("/console/rollouts/new", "/console/rollouts/stages", plan)
		for _, has := range []string{fmt.Sprintf(`name="regions.%d" value="" autocomplete="off" autofocus`, n), `value="4%"`, `name="guard.latency_us.off" checked`} {
			if a.status != http.StatusOK || !strings.Contains(a.body, has) {
				t.Fatalf("stage %d: %d, no %s\n%s", n, a.status, has, a.body)
			}
		}
		if !strings.Contains(a.body, `class="plan">`+"\n"+`<button class="unseen" tabindex="-1" aria-hidden="true">Start the rollout</button>`) {
			t.Error("Enter would add a stage, and not start the rollout")
		}
		if more := strings.Contains(a.body, "Add a stage"); more != (n < stagesMax) {
			t.Errorf("stage %d: another one is offered: %t", n, more)
		}
		plan.Set(fmt.Sprint("regions.", n), fmt.Sprint(n, "%"))
	}
	plan.Set("regions.20", "all")
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	if got := w.one.Spec.Plan.Stages; len(got) != rolloutplan.StagesMax || got[18].SharePercent != 19 || !got[19].All {
		t.Errorf("%+v", got)
	}
}

// A stage takes in a number or a part of each region's nodes, as the form has it; without either all.
func TestStagesOfNodes(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	plan := someTuning()
	for n, nodes := range []string{"1", "10 %", ""} {
		plan.Set(fmt.Sprint("regions.", n+1), "eu")
		plan.Set(fmt.Sprint("nodes.", n+1), nodes)
	}
	for _, bad := range []string{"0", "few", "-1%", "1.5", "+1", "01", "0x1", "1_0"} {
		plan.Set("nodes.2", bad)
		want := fmt.Sprintf("stage 2: %q is no number of nodes", bad)
		if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusBadRequest || !strings.Contains(html.UnescapeString(a.body), want) {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	plan.Set("nodes.2", "10 %")
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	got := w.one.Spec.Plan.Stages
	if len(got) != 3 || got[0].Nodes != 1 || got[1].NodesPercent != 10 || !got[2].StageNodes.All() {
		t.Errorf("%+v", got)
	}
	page := b.get("/console/rollouts/at/r1").body
	for _, has := range []string{"<b>1 node of eu</b>", "<b>10% of the nodes of eu</b>", "<b>eu</b>"} {
		if !strings.Contains(page, has) {
			t.Errorf("no %s", has)
		}
	}
}

// Guardrails begin with the defaults, and arrive as they were changed.
func TestGuardrailsOfTheForm(t *testing.T) {
	w := start(t, false)
	b := w.as("operator")
	shown := b.get("/console/rollouts/new").body
	for _, has := range []string{
		`name="guard.convergence_ms.factor" value="3"`, `name="guard.convergence_ms.least" value="30000"`, `name="guard.degraded_share.least" value="0.01"`,
		`name="guard.denied_share_shift" value="0.2"`, `name="guard.nodes_lost_share" value="0"`, `name="guard.restarts_per_hour" value="1"`,
	} {
		if !strings.Contains(shown, has) {
			t.Errorf("the form has no %s", has)
		}
	}
	plan := someTuning()
	plan.Set("regions.1", "all")
	for field, tc := range map[string]struct{ value, says string }{
		"guard.latency_us.factor":       {"x", "guardrail Decision latency: times is &#34;x&#34;, want a number"},
		"guard.errors_per_minute.least": {"06", "never below is &#34;06&#34;, want a number"},
		"guard.denied_share_shift":      {"0x1p-2", "is &#34;0x1p-2&#34;, want a number"},
		"guard.restarts_per_hour":       {"01", "is &#34;01&#34;, want a whole number"},
		"guard.rows_per_second.factor":  {"0.5", "guardrail rows_per_second: factor is 0.5 (1 to 1000)"},
		"guard.degraded_share.least":    {"-1", "guardrail degraded_share: least is -1 (0 or more)"},
		"guard.nodes_lost_share":        {"2", "guardrail nodes_lost_share is 2 (0 to 1)"},
	} {
		plan.Set(field, tc.value)
		if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusBadRequest || !strings.Contains(a.body, tc.says) || !strings.Contains(a.body, `name="`+field+`" value="`+tc.value+`"`) {
			t.Errorf("%s: %d\n%s", field, a.status, a.body)
		}
		plan.Del(field)
	}
	for field, value := range map[string]string{"guard.rows_per_second.factor": "5", "guard.rows_per_second.least": "", "guard.latency_us.off": "on", "guard.denied_share_shift": "1", "guard.restarts_per_hour": "4"} {
		plan.Set(field, value)
	}
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	want := rolloutplan.DefaultGuardrails()
	want.RowsPerSecond.Factor, want.LatencyUs.Off, want.DeniedShareShift, want.RestartsPerHour = 5, true, 1, 4
	if got := w.one.Spec.Plan.Guardrails; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A preview describes in text what its drawing shows.
func TestPreviewInWords(t *testing.T) {
	a := start(t, false).as("operator").send("/console/rollouts/new", "/console/rollouts/preview", someTuning())
	for _, words := range []string{
		"What the fleet runs, with a feed interval of 200 ms, moves <b>1\u202f000</b> MySQL rows a second, and its worst caller gets <b>1.26</b> times the limit.",
		"The new one, with a feed interval of 500 ms: <b>550</b> rows, <b>1.6</b> times.",
		`<tr><th scope="row" class="n">500 ms</th><td class="n">550</td><td class="n">1.6</td></tr>`,
		">MySQL rows a second</text>", ">times the limit, the worst caller</text>",
	} {
		if !strings.Contains(a.body, words) {
			t.Errorf("it does not say %q:\n%s", words, a.body)
		}
	}
}

// markOf returns the mark of a form that was shown with the given tunings in force.
func markOf(inForce ...tunings.RegionTuning) string {
	b := base{}
	for _, t := range inForce {
		b.all += t.Region + "\x00" + t.Document + "\x00"
	}
	return b.Mark()
}

// The form begins with the tuning in force, not with the default or an earlier rollout's tuning. It shows its changes.
// If the tuning in force has changed meanwhile, the form is shown again.
func TestTheFormEditsWhatIsInForce(t *testing.T) {
	w := start(t, false)
	running := tunings.RegionTuning{Version: 7, Document: controltest.Document("floor=0.5", "step=0")}
	w.set(func() {
		w.inForce = []tunings.RegionTuning{running, {Region: "eu", Version: 8, Document: controltest.Document()}}
	})
	b := w.as("operator")
	shown := b.get("/console/rollouts/new").body
	for _, has := range []string{"the tuning in force, version 7", "Other tunings are in force in eu.", `name="tuning.floor" value="0.5"`, "In force: 0.5.", "Nothing yet: all of it is in force.", `name="base" value="` + markOf(w.inForce...) + `"`} {
		if !strings.Contains(shown, has) {
			t.Errorf("the form has no %s\n%s", has, shown)
		}
	}
	plan := someTuning()
	plan.Set("regions.1", "all")
	plan.Set("tuning.step", "0")
	plan.Set("tuning.floor", "0.3")
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusConflict || !strings.Contains(a.body, "Another tuning has come into force") || !strings.Contains(a.body, "<li>Floor: 0.5 → 0.3</li>") || strings.Contains(a.body, "<li>Step") || w.one != nil {
		t.Fatalf("a form of another tuning: %d\n%s", a.status, a.body)
	}
	plan.Set("base", markOf(w.inForce...))
	if a := b.send("/console/rollouts/new", "/console/rollouts/preview", plan); a.status != http.StatusOK || !strings.Contains(a.body, "<li>Floor: 0.5 → 0.3</li>") {
		t.Errorf("preview: %d", a.status)
	}
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther || !strings.Contains(w.one.Document, `"floor":0.3,"step":0,`) {
		t.Errorf("%d", a.status)
	}
}

// While the fleet's health is critical a rollout starts only if the box for that is checked. The page shows the
// problem.
func TestARolloutOnACriticalFleet(t *testing.T) {
	w := start(t, false)
	w.set(func() {
		w.overall = watch.SeverityCritical
		w.found = []watch.Finding{{Kind: watch.FindingRegionDark, Subject: "eu", Severity: watch.SeverityCritical, What: "No node of eu is live."}}
	})
	b, plan := w.as("operator"), someTuning()
	plan.Set("regions.1", "all")
	plan.Set("base", markOf(w.inForce...))
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusConflict || !strings.Contains(a.body, "region_dark eu: No node of eu is live") || !strings.Contains(a.body, `name="force">`) || w.one != nil {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	plan.Set("force", "on")
	if a := b.send("/console/rollouts/new", "/console/rollouts/new", plan); a.status != http.StatusSeeOther || w.one == nil {
		t.Errorf("%d\n%s", a.status, a.body)
	}
}
