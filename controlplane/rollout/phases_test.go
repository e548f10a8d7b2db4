package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// playFor advances for a time.
func playFor(t *testing.T, r *Rollout, steps inLand, d time.Duration) {
	t.Helper()
	from := steps.now
	play(t, r, steps, func() bool { return steps.now.Sub(from) >= d })
}

func operate(t *testing.T, r *Rollout, steps inLand, action Action) {
	t.Helper()
	wait, err := r.Operate(order(r, action, controltest.Ann), steps.now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	r.Settle(wait)
}

// wantNewWindows checks that the windows of the stage contain no earlier figures.
func wantNewWindows(t *testing.T, r *Rollout, nowMs int64) {
	t.Helper()
	for _, w := range r.Watch {
		for _, n := range w.Nodes {
			if len(n.Window) != 1 || n.Window[0] != (fleet.Span{}) || w.BucketMs != nowMs {
				t.Errorf("window of %s: %v, since %d, want an empty one since %d", n.ID, n.Window, w.BucketMs, nowMs)
			}
		}
	}
}

// "Less than 0: none before an operator acts": time alone does not change a rollout that is over, or that waits with
// nothing to watch.
//
//weir:unraced
func TestWhatIsOverOrWaitsStaysAsItIs(t *testing.T) {
	gated := canary
	gated.Approval = true
	for name, c := range map[string]struct {
		stage plan.Stage
		pause bool
		phase Phase
	}{
		"done":             {canary, false, Done},
		"awaiting":         {gated, false, Awaiting},
		"paused":           {canary, true, Measuring},
		"paused, awaiting": {gated, true, Awaiting},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(c.stage))
		if c.pause {
			operate(t, r, steps, Pause)
		}
		play(t, r, steps, nil)
		rows := len(l.rows)
		for range 3 {
			l.pass(time.Hour)
			wait, err := r.Advance(steps.on)
			if wait >= 0 || err != nil || r.Phase != c.phase || r.DueMs != 0 || len(l.rows) != rows {
				t.Errorf("%s: in %v, %v: %s, due at %d", name, wait, err, r.Phase, r.DueMs)
			}
		}
	}
}

// A rollout that is paused before it applies does not apply anything. The figures of its nodes during the pause do not
// dilute their figures with the tuning.
func TestAPauseBeforeTheApply(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Applying })
	operate(t, r, steps, Pause)
	playFor(t, r, steps, 5*time.Minute)
	if r.Phase != Applying || len(l.trials) != 0 {
		t.Fatalf("%s, %d trials written", r.Phase, len(l.trials))
	}
	operate(t, r, steps, Resume)
	at := l.now.UnixMilli()
	play(t, r, steps, func() bool { return r.Phase == Converging })
	if len(l.trials) != 1 {
		t.Errorf("%d trials written", len(l.trials))
	}
	wantNewWindows(t, r, at)
}

// A resumed bake begins again, and at its end waits for a heartbeat of each node.
func TestAResumedBakeBeginsAnew(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool {
		l.silent = r.Phase == Baking && r.DueMs-l.now.UnixMilli() <= 6000
		return r.SinceMs > 0
	})
	l.silent = false
	operate(t, r, steps, Pause)
	playFor(t, r, steps, time.Minute)
	operate(t, r, steps, Resume)
	if _, err := r.Advance(steps.on); err != nil {
		t.Fatal(err)
	}
	at := l.now.UnixMilli()
	if r.Phase != Baking || r.DueMs != at+60_000 || r.SinceMs != 0 {
		t.Errorf("%s until %d, heard of since %d", r.Phase, r.DueMs-at, r.SinceMs)
	}
	wantNewWindows(t, r, at)
}

// A pause voids earlier measurements: the baseline is measured after it.
func TestAResumedBaselineBeginsAnew(t *testing.T) {
	l := newLand("eu", "us")
	s := spec(canary, all)
	s.Plan.BaselineMs, s.Plan.Guardrails.ErrorsPerMinute.Off = 60_000, true
	r, steps := begin(t, l, s)
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Measuring && r.DueMs > 0 })
	l.sick = func(h *heartbeat.Health, _ bool) { well(h); h.SettingsErrors++ }
	playFor(t, r, steps, 30*time.Second)
	operate(t, r, steps, Pause)
	playFor(t, r, steps, time.Minute)
	l.sick = func(h *heartbeat.Health, _ bool) { well(h) }
	operate(t, r, steps, Resume)
	l.pass(time.Second)
	play(t, r, steps, func() bool { return r.Phase == Applying })
	got := r.Baseline.ErrorsPerMinute
	if got == nil || len(r.Watch) != 2 {
		t.Fatalf("%s %q, %d regions, baseline %+v", r.Phase, r.Why, len(r.Watch), r.Baseline)
	}
	if *got != 0 {
		t.Errorf("%v errors a minute in the baseline", *got)
	}
}

// Each phase fails the rollout after waiting as long as nodes may take to apply the tuning.
func TestHowLongAPhaseWaits(t *testing.T) {
	for name, c := range map[string]struct {
		phase Phase
		after time.Duration // in the phase, before the wait begins
		spoil func(*land, *oracle)
		why   string
	}{
		"a dark region":   {Measuring, 10 * time.Second, func(l *land, _ *oracle) { l.dead["eu1"], l.dead["eu2"] = true, true }, "is dark"},
		"a query":         {Measuring, 10 * time.Second, func(_ *land, o *oracle) { o.down = true }, "has no value"},
		"an apply":        {Converging, 0, func(l *land, _ *oracle) { l.stubborn = true }, "not all nodes run it in time"},
		"another version": {Baking, time.Minute, func(l *land, _ *oracle) { delete(l.tries, "eu1"); l.stubborn = true }, "not all nodes run it when the bake is over"},
	} {
		l, o := newLand("eu", "us"), &oracle{answers: map[string][]float64{"errors": {0}}}
		s := guarded(queries.Rail{Name: "errors", Query: "errors", Above: new(1.0), Required: true})
		r, steps := begin(t, l, s)
		steps.on.work = steps.on.work.WithPrometheus(o)
		play(t, r, steps, func() bool {
			l.stubborn = l.stubborn || r.Phase == Applying && c.phase == Converging
			return r.Phase == c.phase
		})
		c.spoil(l, o)
		from, want := time.UnixMilli(r.MovedMs), c.after+time.Duration(s.Plan.ApplyTimeoutMs)*time.Millisecond
		play(t, r, steps, func() bool { return r.Phase == RollingBack || r.Phase.Over() })
		if took := l.now.Sub(from); !strings.Contains(r.Why, c.why) || took < want || took > want+5*time.Second {
			t.Errorf("%s: %s %q after %v, want %v", name, r.Phase, r.Why, took, want)
		}
	}
}

// A required query has its full time again whenever it loses its value.
func TestAQueryThatComesAndGoes(t *testing.T) {
	l, o := newLand("eu", "us"), &oracle{answers: map[string][]float64{"errors": {0}}}
	s := guarded(queries.Rail{Name: "errors", Query: "errors", Above: new(1.0), Required: true})
	s.Plan.Stages[0].BakeMs = (10 * time.Minute).Milliseconds()
	r, steps := begin(t, l, s)
	steps.on.work = steps.on.work.WithPrometheus(o)
	play(t, r, steps, func() bool { return r.Phase == Baking })
	for range 3 {
		o.down = true
		playFor(t, r, steps, 90*time.Second)
		o.down = false
		playFor(t, r, steps, time.Minute)
	}
	if play(t, r, steps, nil); r.Phase != Done {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
}

// While a stage measures, the required queries of regions with the tuning stay required.
func TestAQueryOfAnEarlierStageIsRequired(t *testing.T) {
	o := &oracle{answers: map[string][]float64{`errors{region="eu"}`: {0}, `errors{region="us"}`: {0}}}
	r := playGuarded(t, o, func(r *Rollout) {
		if r.Stage == 1 {
			delete(o.answers, `errors{region="eu"}`)
		}
	}, queries.Rail{Name: "errors", Query: `errors{region="{{region}}"}`, Above: new(1.0), Required: true})
	wantRolledBack(t, r, "guardrail errors has no value")
	if len(r.Touched) != 1 {
		t.Errorf("touched %+v", r.Touched)
	}
}

// The end of a bake waits for heartbeats by the present clock of the database.
func TestTheEndOfABakeByAClockThatStepsBack(t *testing.T) {
	r := Rollout{}
	for _, at := range []int64{5000, 6000} {
		if of(&r, 0, fleet.Look{AtMs: at}).since(); r.SinceMs != 5000 {
			t.Errorf("at %d since %d", at, r.SinceMs)
		}
	}
	if of(&r, 0, fleet.Look{AtMs: 400}).since(); r.SinceMs != 400 {
		t.Errorf("since %d, which is ahead of the clock", r.SinceMs)
	}
}

// A region that comes while all regions have the tuning is watched from then on, with its present nodes: losing these
// is a breach too.
func TestARegionThatComesLaterIsWatched(t *testing.T) {
	for victim, want := range map[string]Phase{"": Done, "ap2": RolledBack} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(plan.Stage{All: true, BakeMs: (5 * time.Minute).Milliseconds()}))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		for _, id := range []string{"ap1", "ap2"} {
			l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: id, Region: "ap", StartedAtMs: l.now.UnixMilli()}, SeenAt: l.now})
		}
		playFor(t, r, steps, time.Minute)
		l.dead[victim] = true
		play(t, r, steps, nil)
		if r.Phase != want || (victim != "") != strings.Contains(r.Why, "nodes without heartbeats: 1 of 2, more than a share of 0, of region ap (ap2)") {
			t.Errorf("without %q: %s %q", victim, r.Phase, r.Why)
		}
	}
}
