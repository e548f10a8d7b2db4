package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
)

// The change of these tests: it lowers a limit, creates an override, deletes one, and gives a namespace a shadow.
var (
	limitsBefore = settings.Document{Overrides: []settings.Override{
		{Workspace: "acme", Namespace: "api", Pattern: "gone", Limit: 3},
		{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: 10},
		{Workspace: "other", Namespace: "api", Pattern: "u*", Limit: 5},
	}}
	limitsAfter = settings.Document{
		Namespaces: []settings.Namespace{func() settings.Namespace {
			n := settings.DefaultNamespace("acme", "mail")
			n.Shadow = true
			return n
		}()},
		Overrides: []settings.Override{
			{Workspace: "acme", Namespace: "api", Pattern: "new", Limit: 7},
			{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: 8},
			{Workspace: "other", Namespace: "api", Pattern: "u*", Limit: 5},
		},
	}
	limitsItems = settings.Difference(&limitsBefore, &limitsAfter, true)
)

// direct is an override that an operator edits directly, and its new limit.
func edited(stored settings.Document, pattern string, limit int64) settings.Document {
	stored.Overrides = slices.Clone(stored.Overrides)
	for i := range stored.Overrides {
		if o := &stored.Overrides[i]; o.Workspace == "acme" && o.Pattern == pattern {
			o.Limit = limit
		}
	}
	return stored
}

var (
	shadowAll  = plan.Stage{All: true, BakeMs: 60_000, Shadow: true}
	shadowSome = plan.Stage{Regions: []string{"eu"}, StageNodes: plan.StageNodes{Nodes: 1}, BakeMs: 60_000, Shadow: true}
	enforceOne = plan.Stage{Regions: []string{"eu"}, StageNodes: plan.StageNodes{Nodes: 1}, BakeMs: 60_000}
)

func limitsSpec(stages ...plan.Stage) Spec {
	s := spec(stages...)
	s.Tuning, s.Limits = "", &limitsItems
	s.Plan.Guardrails.LimitsGuardrails = plan.DefaultLimitsGuardrails()
	return s
}

func limitsLand(regions ...string) *land {
	l := newLand(regions...)
	l.stored = limitsBefore
	l.effect = func(h *heartbeat.Health, _, _, _ string) { judges(h, 100, 0) }
	return l
}

// judges adds a second's judged decisions to a node's report.
func judges(h *heartbeat.Health, judged, newly int64, callers ...uint64) {
	t := h.Limits
	t.Judged, t.NewlyDenied, t.Callers = t.Judged+judged, t.NewlyDenied+newly, t.Callers.Union(callers)
	t.DeniedBefore, t.DeniedAfter = t.DeniedBefore+judged/10, t.DeniedAfter+judged/10+newly
	t.Namespaces = []heartbeat.LimitsNamespace{{Workspace: []byte("acme"), Namespace: []byte("api"), Judged: t.Judged,
		DeniedBefore: t.DeniedBefore, DeniedAfter: t.DeniedAfter, NewlyDenied: t.NewlyDenied}}
}

func wantStored(t *testing.T, l *land, want settings.Document) {
	t.Helper()
	got := settings.Document{Namespaces: slices.DeleteFunc(slices.Clone(l.stored.Namespaces), settings.Namespace.IsDefault), Overrides: l.stored.Overrides}
	if len(got.Namespaces) == 0 {
		got.Namespaces = nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v, want %+v", got, want)
	}
}

func TestSpecOfLimitsRefusals(t *testing.T) {
	for words, change := range map[string]func(*Spec){
		"tuning and limits are both set":                    func(s *Spec) { s.Tuning = document30 },
		"the change has 0 items (1 to 500)":                 func(s *Spec) { s.Limits = &settings.Change{} },
		"stage 2 has shadow, and stage 1 has not":           func(s *Spec) { s.Plan.Stages = []plan.Stage{enforceOne, shadowAll, all} },
		"stage 2 is the last: with limits, the last":        func(s *Spec) { s.Plan.Stages = []plan.Stage{shadowAll, enforceOne} },
		"stage 1 is the last: with limits":                  func(s *Spec) { s.Plan.Stages = []plan.Stage{shadowAll} },
		"stage 1 covers all regions and is not":             func(s *Spec) { s.Plan.Stages = []plan.Stage{shadowAll, shadowAll, all} },
		"newly_denied_share is 1.5 (0 to 1)":                func(s *Spec) { s.Plan.Guardrails.NewlyDeniedShare = new(1.5) },
		"newly_denied_callers is -1 (0 to 1000000)":         func(s *Spec) { s.Plan.Guardrails.NewlyDeniedCallers = new(int64(-1)) },
		"guardrail protected[0]: ":                          func(s *Spec) { s.Plan.Guardrails.Protected = make([]settings.Protected, 1) },
		"guardrail protected has 101 callers (at most 100)": func(s *Spec) { s.Plan.Guardrails.Protected = make([]settings.Protected, 101) },
		"newly_denied_callers are missing":                  func(s *Spec) { s.Plan.Guardrails.LimitsGuardrails = plan.LimitsGuardrails{} },
		"limits.namespaces[0] (acme/mail) changes mo":       func(s *Spec) { s.Limits = changedNamespace("estimate") },
		"changes duration_ms, which no shadow can judge: leave out the stages with shadow": func(s *Spec) {
			s.Limits = &settings.Change{Overrides: []settings.OverrideChange{{
				Before: &settings.Override{Workspace: "w", Namespace: "n", Pattern: "p", Limit: 1},
				After:  &settings.Override{Workspace: "w", Namespace: "n", Pattern: "p", Limit: 1, DurationMs: 60_000},
			}}}
		},
		"stage 1 has shadow, and the rollout is of a tuning": func(s *Spec) {
			s.Tuning, s.Limits = document30, nil
		},
		"guardrail newly_denied_share is set, and the rollout is of a tuning": func(s *Spec) {
			s.Tuning, s.Limits, s.Plan.Stages = document30, nil, []plan.Stage{all}
		},
	} {
		bad := limitsSpec(shadowAll, enforceOne, all)
		change(&bad)
		if err := bad.Validate(); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	noShadow := limitsSpec(enforceOne, all)
	noShadow.Limits = changedNamespace("estimate")
	for _, good := range []Spec{limitsSpec(shadowAll, all), limitsSpec(all), limitsSpec(shadowSome, shadowAll, enforceOne, all), noShadow} {
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func changedNamespace(mode string) *settings.Change {
	before := settings.DefaultNamespace("acme", "mail")
	after := before
	after.Mode = mode
	return &settings.Change{Namespaces: []settings.NamespaceChange{{Before: before, After: after}}}
}

// Stages of a mode cover nodes again; the last stores every item, and no trial is left.
func TestLimitsReachTheFleetStageByStage(t *testing.T) {
	l := limitsLand("eu", "us")
	r, steps := begin(t, l, limitsSpec(shadowSome, shadowAll, enforceOne, all))
	if r.Version != limitsVersion {
		t.Errorf("version %d: an older build would read it", r.Version)
	}
	var modes []string
	for stage := range r.Stages {
		play(t, r, steps, func() bool { return r.Phase == Baking && r.Stage == stage || r.Phase.Over() })
		var at []string
		for _, n := range l.nodes {
			mode := "-"
			if document, trial := l.run(n.Heartbeat.NodeID); trial != 0 {
				limits, _ := settings.ReadLimitsTrial([]byte(document))
				mode = limits.Mode[:1]
			}
			at = append(at, mode)
		}
		modes = append(modes, strings.Join(at, ""))
		wantStored(t, l, limitsBefore)
		if e := r.LimitsEvidence(); stage == 1 && (e.Nodes != 4 || e.Judged == 0 || len(e.Namespaces) != 1 || e.Namespaces[0].Judged != e.Judged) {
			t.Errorf("%+v", e)
		}
	}
	count := func(at, mode string) int { return strings.Count(at, mode) }
	if count(modes[0], "s") != 1 || count(modes[0][2:], "-") != 2 || modes[1] != "ssss" ||
		count(modes[2][:2], "e") != 1 || modes[2][2:] != "ss" || modes[3] != "eeee" {
		t.Errorf("modes of nodes by stage: %q, %q", modes, r.Why)
	}
	play(t, r, steps, nil)
	if r.Phase != Done || r.Why != "" {
		t.Fatalf("%s, %q", r.Phase, r.Why)
	}
	wantStored(t, l, limitsAfter)
	wantNoTrial(t, l, "eu", "us", "")
	if len(l.rows) != 0 || len(l.writes) != 1 || l.writes[0].Reason != "rollout r1: fewer rows" {
		t.Errorf("%d versions, writes %+v", len(l.rows), l.writes)
	}
	if e := r.LimitsEvidence(); e.Nodes != 4 || e.NewlyDenied != 0 {
		t.Errorf("the evidence stays: %+v", e)
	}

	if _, err := r.RollBack(steps.on, bob); err != nil {
		t.Fatal(err)
	}
	l.stored = edited(l.stored, "new", 99)
	play(t, r, steps, nil)
	want := edited(limitsAfter, "new", 99)
	want.Namespaces = nil
	want.Overrides = slices.Clone(want.Overrides)
	want.Overrides[1].Limit = 10
	want.Overrides = slices.Insert(want.Overrides, 0, limitsBefore.Overrides[0])
	if wantStored(t, l, want); r.Phase != RolledBack || !strings.Contains(r.Why, "override acme/api/new is limit 99, not limit 7") {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// harm is what a case of simulated heartbeats does to a node each second.
type harm struct {
	name, why string
	effect    func(rng *rand.Rand, h *heartbeat.Health, node, region, mode string)
	edit      bool
	phase     Phase
}

var harms = []harm{
	{name: "harmless", phase: Done, effect: func(rng *rand.Rand, h *heartbeat.Health, _, _, _ string) {
		judges(h, 90+rng.Int64N(20), 0)
		if rng.IntN(20) == 0 { // 0.05 % of decisions, of ten callers
			judges(h, 0, 1, rng.Uint64N(10))
		}
	}},
	{name: "5 % of four hundred callers", phase: RolledBack, why: "newly denied callers: ", effect: func(rng *rand.Rand, h *heartbeat.Health, _, _, _ string) {
		judges(h, 90+rng.Int64N(20), 0)
		if rng.IntN(100) < 40 { // a caller of the 5 % comes to this node now and then
			judges(h, 0, 1, rng.Uint64N(20))
		}
	}},
	{name: "the share", phase: RolledBack, why: "share of newly denied decisions: ", effect: func(rng *rand.Rand, h *heartbeat.Health, _, _, _ string) {
		judges(h, 100, 3+rng.Int64N(4), 1)
	}},
	{name: "protected", phase: RolledBack, why: "newly denied decisions of protected callers: ", effect: func(rng *rand.Rand, h *heartbeat.Health, node, _, _ string) {
		judges(h, 90+rng.Int64N(20), 0)
		if rng.IntN(20) == 0 {
			h.Limits.Protected++
			h.Limits.Caller = &heartbeat.TopKey{Workspace: []byte("acme"), Namespace: []byte("api"), Identifier: []byte("vip"), DurationMs: 1000}
		}
	}},
	{name: "an edit in between", phase: RolledBack, edit: true, why: "something else changed the limits meanwhile: override acme/api/u* is limit 11, not limit 10", effect: func(rng *rand.Rand, h *heartbeat.Health, _, _, _ string) {
		judges(h, 90+rng.Int64N(20), 0)
	}},
}

// Of twenty rollouts of each kind, all harmless ones pass, and all harms stop the first stage, which only shadows.
//
//weir:unraced
func TestLimitsAreJudged(t *testing.T) {
	for _, harm := range harms {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 1))
			l := limitsLand("eu", "us")
			l.effect = func(h *heartbeat.Health, node, region, mode string) { harm.effect(rng, h, node, region, mode) }
			s := limitsSpec(plan.Stage{Regions: []string{"eu"}, BakeMs: 60_000, Shadow: true}, enforceOne, all)
			s.Plan.Guardrails.Protected = []settings.Protected{{Workspace: "acme", Namespace: "api", Pattern: "vip"}}
			r, steps := begin(t, l, s)
			if harm.edit {
				at := l.now.Add(time.Duration(15+rng.IntN(50)) * time.Second)
				play(t, r, steps, func() bool { return l.now.After(at) && len(r.Touched) > 0 })
				l.stored = edited(l.stored, "u*", 11)
			}
			play(t, r, steps, nil)
			text := fmt.Sprintf("%s, seed %d: %s in stage %d, %q", harm.name, seed, r.Phase, r.Stage+1, r.Why)
			if r.Phase != harm.phase || harm.phase != Done && (r.Stage != 0 || !strings.Contains(r.Why, harm.why)) {
				t.Error(text)
			}
			if seed == 0 {
				t.Log(text)
			}
			want := limitsAfter
			if harm.phase != Done {
				want = limitsBefore
			}
			if harm.edit {
				want = edited(limitsBefore, "u*", 11)
			}
			wantStored(t, l, want)
			wantNoTrial(t, l, "eu", "us", "")
		}
	}
}

// A breach names the figure, the bound, the region, the node and the caller, and the rails show it in both modes.
func TestBreachesOfLimitsNameWhatIsWrong(t *testing.T) {
	for _, shadow := range []bool{true, false} {
		l := limitsLand("eu")
		mode := settings.TrialEnforce
		if shadow {
			mode = settings.TrialShadow
		}
		l.effect = func(h *heartbeat.Health, node, _, in string) {
			if judges(h, 100, 0); node == "eu2" && in == mode && h.Limits.Judged > 2000 {
				h.Limits.Protected, h.Limits.Caller = 3, &heartbeat.TopKey{Workspace: []byte("acme"), Namespace: []byte("api"), Identifier: []byte("vip"), DurationMs: 1}
			}
		}
		r, steps := begin(t, l, limitsSpec(shadowAll, all))
		var rails []guard.Rail
		play(t, r, steps, func() bool {
			if r.Phase == Baking {
				rails = r.Rails()
			}
			return r.Phase.Over()
		})
		fields := map[string]guard.Rail{}
		for _, rail := range rails {
			fields[rail.Field] = rail
		}
		for _, field := range []string{"newly_denied_share", "newly_denied_callers", "protected"} {
			if rail := fields[field]; rail.Now == nil || *rail.Now != 0 || rail.Most == nil || rail.Region != "eu" {
				t.Errorf("%s: %+v", field, rail)
			}
		}
		want := "newly denied decisions of protected callers: 3, more than 0, of node eu2 in region eu: acme/api/vip"
		if r.Phase != RolledBack || !strings.Contains(r.Why, want) {
			t.Errorf("%s, %q", r.Phase, r.Why)
		}
		if e := r.LimitsEvidence(); e.Protected != 3 || len(e.Top) != 1 || !e.Top[0].Protected {
			t.Errorf("%+v", e)
		}
		wantStored(t, l, limitsBefore)
	}
}

// An edit at any moment is never overwritten: the rollout has one outcome, and a rollback restores exactly what the
// rollout changed.
func TestEditsAtEveryStep(t *testing.T) {
	outcomes := map[Phase]int{}
	for at := range 120 {
		for _, pattern := range []string{"u*", "gone", "new"} {
			l := limitsLand("eu", "us")
			s := limitsSpec(plan.Stage{Regions: []string{"eu"}, BakeMs: 1_000, Shadow: true}, plan.Stage{All: true, BakeMs: 1_000})
			s.Plan.BaselineMs, s.Plan.Guardrails = 0, bare()
			r, steps := begin(t, l, s)
			n, edit := 0, false
			play(t, r, steps, func() bool { n++; return n > at })
			for _, o := range l.stored.Overrides {
				edit = edit || o.Workspace == "acme" && o.Pattern == pattern
			}
			l.stored = edited(l.stored, pattern, 77)
			was := l.stored
			play(t, r, steps, nil)
			outcomes[r.Phase]++
			for _, o := range l.stored.Overrides {
				edit = edit && (o.Workspace != "acme" || o.Pattern != pattern || o.Limit == 77)
			}
			found := slices.ContainsFunc(l.stored.Overrides, func(o settings.Override) bool { return o.Pattern == pattern && o.Limit == 77 })
			there := slices.ContainsFunc(was.Overrides, func(o settings.Override) bool { return o.Pattern == pattern && o.Limit == 77 })
			if there && !found {
				t.Fatalf("after %d transitions the edit of %s is overwritten: %s, %q, %+v", at, pattern, r.Phase, r.Why, l.stored)
			}
			if r.Phase == Done {
				if _, err := r.RollBack(steps.on, bob); err != nil {
					t.Fatal(err)
				}
				play(t, r, steps, nil)
				if there && !strings.Contains(r.Why, "acme/api/"+pattern) {
					t.Errorf("the edit of %s is not named: %q", pattern, r.Why)
				}
			}
			want := limitsBefore
			if there {
				want = limitsBefore
				want.Overrides = slices.DeleteFunc(slices.Clone(want.Overrides), func(o settings.Override) bool { return o.Workspace == "acme" && o.Pattern == pattern })
				want.Overrides = append(want.Overrides, settings.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: 77})
				slices.SortFunc(want.Overrides, settings.CompareOverrides)
			}
			wantStored(t, l, want)
			wantNoTrial(t, l, "eu", "us", "")
		}
	}
	if outcomes[Done] == 0 || outcomes[RolledBack] == 0 {
		t.Errorf("outcomes: %v", outcomes)
	}
}

// bare returns guardrails that need no counts, so that short bakes can end.
func bare() plan.Guardrails {
	g := plan.DefaultGuardrails()
	g.ErrorsPerMinute.Off, g.RowsPerSecond.Off, g.DegradedShare.Off, g.DeniedShareShift = true, true, true, 1
	g.LimitsGuardrails = plan.LimitsGuardrails{NewlyDeniedShare: new(1.0), NewlyDeniedCallers: new(int64(10))}
	return g
}

// A keep whose answer is lost is made once; a keep that arrives after the rollback changes nothing.
func TestALateKeepChangesNothing(t *testing.T) {
	l := limitsLand("eu")
	r, steps := begin(t, l, limitsSpec(shadowAll, all))
	play(t, r, steps, func() bool { return r.Phase == Keeping })
	late := of(r, 0, lookOf(nil)).limitsWrite(r.By)
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	if written, err := l.KeepLimits(t.Context(), late); err != nil || written.Refused == "" || r.Phase != Aborted {
		t.Errorf("%+v, %v, %s", written, err, r.Phase)
	}
	wantStored(t, l, limitsBefore)

	l = limitsLand("eu")
	r, steps = begin(t, l, limitsSpec(shadowAll, all))
	play(t, r, steps, func() bool { return r.Phase == Keeping })
	if _, err := l.KeepLimits(t.Context(), of(r, 0, lookOf(nil)).limitsWrite(r.By)); err != nil { // its answer is lost
		t.Fatal(err)
	}
	if play(t, r, steps, nil); r.Phase != Done || len(l.writes) != 1 {
		t.Errorf("%s, %q, %d writes", r.Phase, r.Why, len(l.writes))
	}
	wantStored(t, l, limitsAfter)
}

// A state that MySQL has restores a rollout of limits, and the rollout goes on to its outcome.
func TestARolloutOfLimitsIsRestored(t *testing.T) {
	for _, at := range []Phase{Baking, Keeping} {
		l := limitsLand("eu", "us")
		r, steps := begin(t, l, limitsSpec(shadowAll, enforceOne, all))
		play(t, r, steps, func() bool { return r.Phase == at && (at == Keeping || r.Stage == 1) })
		if err := r.Save(steps.on); err != nil {
			t.Fatal(err)
		}
		lost := new(Rollout)
		if _, restored, err := lost.Restore(steps.on, r.ID); err != nil || !restored || len(lost.Shadows) != 3 {
			t.Fatalf("%v, %v, %+v", restored, err, lost.Shadows)
		}
		if play(t, lost, steps, nil); lost.Phase != Done {
			t.Errorf("%s, %q", lost.Phase, lost.Why)
		}
		wantStored(t, l, limitsAfter)
		if _, err := json.Marshal(lost); err != nil {
			t.Error(err)
		}
	}
}

// A start is rejected if the stored items differ from the states before.
func TestAStartOnOtherLimits(t *testing.T) {
	l := limitsLand("eu")
	l.stored = edited(l.stored, "u*", 12)
	steps := LockSteps{Steps: newInLand(l).on}
	_, err := new(Lock).admit(steps, nil, Start{ID: "r1", Spec: limitsSpec(all), By: controltest.Ann})
	if !errors.Is(err, controlplane.ErrChanged) || !strings.Contains(err.Error(), "override acme/api/u* is limit 12, not limit 10") {
		t.Errorf("%v", err)
	}
}

// A rollout of a tuning keeps the version and the fields that earlier builds read.
func TestADocumentOfATuningHasNoLimits(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking && r.Bake.WatchedMs > 20_000 })
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"limits", "shadow", "effect", "kept", "newly_denied_share", "protected"} {
		if strings.Contains(string(b), `"`+field+`"`) {
			t.Errorf("the document has %q", field)
		}
	}
	if totals := r.Watch[0].Nodes[0].Totals; r.Version != documentVersion || strings.Contains(string(b), fmt.Sprintf("[%d,%d,0,0,0,0,0", totals[0], totals[1])) {
		t.Errorf("version %d, %s", r.Version, b)
	}
}

// events returns the texts of a rollout's events of a kind.
func events(r *Rollout, what string) (texts []string) {
	for _, e := range r.Events {
		if e.What == what {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// A stage without a judged decision passes, and the history says that its evidence shows nothing.
func TestAStageWithoutEvidenceSaysSo(t *testing.T) {
	nothing := []string{
		"stage 1: no decision was judged, so the evidence shows nothing about the change",
		"stage 2: no decision was judged, so the evidence shows nothing about the change",
	}
	inPart := []string{
		"stage 1: no decision was judged in acme/mail, so the evidence shows nothing about the change there",
		"stage 2: no decision was judged, so the evidence shows nothing about the change",
	}
	for name, c := range map[string]struct {
		effect func(h *heartbeat.Health, node, region, mode string)
		want   []string
	}{
		"no traffic": {func(*heartbeat.Health, string, string, string) {}, nothing},
		"some of a stage": {func(h *heartbeat.Health, _, _, mode string) {
			if mode == settings.TrialShadow {
				judges(h, 100, 0)
			}
		}, inPart},
	} {
		l := limitsLand("eu")
		l.effect = c.effect
		r, steps := begin(t, l, limitsSpec(shadowAll, all))
		if play(t, r, steps, nil); r.Phase != Done {
			t.Fatalf("%s: %s, %q", name, r.Phase, r.Why)
		}
		if got := events(r, "no evidence"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The history names the overrides whose duration the change creates, changes or deletes, because no figure has the
// decisions that get another duration.
func TestOverridesWithAnotherDurationAreNamed(t *testing.T) {
	own := func(pattern string, limit, durationMs int64) *settings.Override {
		return &settings.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit, DurationMs: durationMs}
	}
	s := limitsSpec(enforceOne, all)
	s.Limits = &settings.Change{Overrides: []settings.OverrideChange{
		{Before: own("a", 1, 1000), After: own("a", 1, 2000)},
		{Before: own("b", 1, 1000)},
		{After: own("c", 1, 1000)},
		{Before: own("d", 1, 1000), After: own("d", 2, 1000)},
		{After: own("e", 1, 0)},
	}}
	r, err := New("r1", s, controltest.Ann, []string{"eu"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the evidence leaves out decisions that the change gives another duration, by duration_ms of: " +
		"acme/api/a, acme/api/b, acme/api/c"}
	if got := events(r, "no evidence"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r, err = New("r1", limitsSpec(all), controltest.Ann, []string{"eu"}, 1000); err != nil || len(events(r, "no evidence")) > 0 {
		t.Errorf("%v, %q", err, events(r, "no evidence"))
	}
}

// As many newly denied callers as the bound allows pass, and one more does not; at the largest bound none is counted.
func TestTheBoundsOfNewlyDenied(t *testing.T) {
	first := make(heartbeat.Callers, heartbeat.CallersKept) // so small that they stand for more than any bound
	for i := range first {
		first[i] = uint64(i)
	}
	for _, c := range []struct {
		most    int64
		callers int
		breaks  bool
	}{{10, 10, false}, {10, 11, true}, {0, 0, false}, {0, 1, true}, {plan.NewlyDeniedCallersMax, len(first), false}} {
		s := limitsSpec(shadowAll, all)
		s.Plan.Guardrails.NewlyDeniedCallers = &c.most
		r, err := New("r1", s, controltest.Ann, []string{"eu"}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		r.Phase, r.Touched = Baking, Touches{{Region: "eu", Trial: 1}}
		r.Effect.Nodes = []guard.EffectNode{{ID: "a", Region: "eu", Trial: 1}, {ID: "b", Region: "eu", Trial: 1},
			{ID: "c", Region: "eu", Trial: 2, Newest: guard.EffectTally{4: 1}}} // another trial's
		r.Effect.Callers = []guard.EffectCallers{{Region: "eu", Trial: 1, Set: first[:c.callers]},
			{Region: "us", Trial: 1, Set: first[20:40]}, {Region: "eu", Trial: 2, Set: first[40:60]}}
		if broken := r.judge(0).Broken(); (broken != nil) != c.breaks {
			t.Errorf("%d callers with a bound of %d: %+v", c.callers, c.most, broken)
		}
	}
}

// After a rollback by the share of newly denied decisions, the share's rail stays broken.
func TestTheBrokenShareIsShownAfterTheRollback(t *testing.T) {
	l := limitsLand("eu", "us")
	l.effect = func(h *heartbeat.Health, _, _, _ string) { judges(h, 100, 5) }
	r, steps := begin(t, l, limitsSpec(plan.Stage{Regions: []string{"eu"}, BakeMs: 60_000, Shadow: true}, enforceOne, all))
	broken := func() bool {
		for _, rail := range r.Rails() {
			if rail.Field == "newly_denied_share" {
				return rail.Margin != nil && *rail.Margin < 0
			}
		}
		return false
	}
	play(t, r, steps, func() bool { return r.Phase == RollingBack })
	if !strings.Contains(r.Why, "share of newly denied") || !broken() {
		t.Errorf("rolling back: %s", r.Why)
	}
	play(t, r, steps, nil)
	if r.Phase != RolledBack || !broken() {
		t.Errorf("%s: %s", r.Phase, r.Why)
	}
}
