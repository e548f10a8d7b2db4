package rollout

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// "Without a baseline it is not judged": the share of denied decisions from before traffic began is unknown. So traffic
// that begins with the stage is not a breach, whatever share of it is denied.
func TestDeniedTrafficAfterAQuietBaselineIsNotJudged(t *testing.T) {
	for _, denied := range []int64{10, 50} {
		l := newLand("eu", "us")
		l.sick = func(*heartbeat.Health, bool) {}
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.sick = func(h *heartbeat.Health, _ bool) {
			h.AllowedTotal, h.DeniedTotal = h.AllowedTotal+100-denied, h.DeniedTotal+denied
		}
		play(t, r, steps, nil)
		if r.Phase != Done {
			t.Errorf("%d of 100 are denied: %s %q", denied, r.Phase, r.Why)
		}
	}
}

// An infinite value breaks its rail if the rail bounds that side. The reason is a single line, and the value can be
// stored.
func TestAnEndlessValueBreaksItsRail(t *testing.T) {
	for says, c := range map[string]struct {
		rail queries.Rail
		bad  float64
	}{
		"errors is +Inf, want at most 0.5":                               {queries.Rail{Name: "errors", Query: "errors", Above: new(0.5)}, math.Inf(1)},
		"errors is -Inf, want at least 0.05":                             {queries.Rail{Name: "errors", Query: "errors", Below: new(0.05)}, math.Inf(-1)},
		"errors is +Inf, want at most 3 times before (before the stage ": {queries.Rail{Name: "errors", Query: "errors", TimesBaseline: new(3.0)}, math.Inf(1)},
	} {
		o := &oracle{answers: map[string][]float64{"errors": {0.1}}}
		r := playGuarded(t, o, func(r *Rollout) {
			if r.Phase == Baking {
				o.answers["errors"] = []float64{0.1, c.bad}
			}
		}, c.rail)
		wantRolledBack(t, r, says)
		if got := r.QueriesNow[0].Shown(); got == nil || *got != c.bad {
			t.Errorf("%v is shown for %v", got, c.bad)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
	o := &oracle{answers: map[string][]float64{"errors": {math.Inf(1)}}}
	r := playGuarded(t, o, func(*Rollout) {}, queries.Rail{Name: "errors", Query: "errors", TimesBaseline: new(3.0)})
	wantRolledBack(t, r, "errors is +Inf, want at most 3 times before (before the stage +Inf)")
	o = &oracle{answers: map[string][]float64{"errors": {math.Inf(-1)}}}
	if r := playGuarded(t, o, func(*Rollout) {}, queries.Rail{Name: "errors", Query: "errors", Above: new(0.5)}); r.Phase != Done {
		t.Errorf("an end on the good side: %s %q", r.Phase, r.Why)
	}
}

// An element that is NaN holds the stage, whether its query is required or not. But it does not hide another element
// that breaks the rail.
func TestANaNHoldsTheStage(t *testing.T) {
	rail := queries.Rail{Name: "errors", Query: "errors", Above: new(0.5)}
	bad := map[string]struct {
		values []float64
		why    string
	}{
		"alone":           {[]float64{math.NaN()}, "guardrail errors has no value: an element is NaN"},
		"beside a good":   {[]float64{0.1, math.NaN()}, "guardrail errors has no value: an element is NaN"},
		"beside a breach": {[]float64{math.NaN(), 0.7}, "errors is 0.7, want at most 0.5"},
	}
	for name, c := range bad {
		for _, phase := range []Phase{Measuring, Baking} {
			if phase == Measuring && name == "beside a breach" {
				continue
			}
			o := &oracle{answers: map[string][]float64{"errors": {0.1}}}
			r := playGuarded(t, o, func(r *Rollout) {
				if r.Phase == phase {
					o.answers["errors"] = c.values
				}
			}, rail)
			if !strings.Contains(r.Why, c.why) || r.Phase != RolledBack || (len(r.Touched) == 0) != (phase == Measuring) {
				t.Errorf("%s, %s: %s %q, want %q", name, phase, r.Phase, r.Why, c.why)
			}
		}
	}
	o, looks := &oracle{answers: map[string][]float64{"errors": {0.1}}}, 0
	if r := playGuarded(t, o, func(r *Rollout) {
		if r.Phase == Baking {
			looks++
			o.answers["errors"] = []float64{0.1}
			if looks > 1 && looks < 4 {
				o.answers["errors"] = []float64{math.NaN()}
			}
		}
	}, rail); r.Phase != Done {
		t.Errorf("over in time: %s %q", r.Phase, r.Why)
	}
}

// A query without a region has a single baseline, from before the first stage. Otherwise a value that one stage made
// worse would be the baseline of the next.
func TestAQueryOfTheFleetKeepsItsFirstBaseline(t *testing.T) {
	o := &oracle{answers: map[string][]float64{"errors": {0.1}}}
	r := playGuarded(t, o, func(r *Rollout) {
		if r.Stage == 0 && r.Phase.step() >= guard.Applying {
			o.answers["errors"] = []float64{0.25}
		}
		if r.Stage == 1 && r.Phase.step() >= guard.Applying {
			o.answers["errors"] = []float64{0.4}
		}
	}, queries.Rail{Name: "errors", Query: "errors", TimesBaseline: new(3.0)})
	wantRolledBack(t, r, "stage 2 (all other regions): errors is 0.4, want at most 3 times before (before the stage 0.1)")
}

// If the clock of the database jumps forward by more than the age of a live node's heartbeat, all nodes look silent
// until their next heartbeat. That is not a loss in any phase; a node that then stays silent is a loss.
func TestAJumpOfTheDatabasesClockLosesNoNodes(t *testing.T) {
	for _, phase := range []Phase{Measuring, Converging, Baking, RollingBack} {
		for victim, want := range map[string]Phase{"": Done, "eu2": RolledBack} {
			l := newLand("eu", "us")
			r, steps := begin(t, l, spec(canary, all))
			if phase == RollingBack {
				want = Aborted
			}
			jumped, waited := false, false
			play(t, r, steps, func() bool {
				if phase == RollingBack && r.Phase == Baking {
					if _, err := r.Operate(Order{Action: Abort, By: controltest.Ann}, l.now.UnixMilli()); err != nil {
						t.Fatal(err)
					}
				}
				looks := phase != RollingBack || r.TrialsEnded
				if !jumped && r.Phase == phase && looks && l.now.Sub(controltest.Day) > 3*time.Second {
					jumped = true
					l.skew += 3 * time.Minute // less than a lease
					l.dead[victim] = victim != ""
				}
				waited = waited || strings.Contains(r.Waiting, "the clock of the database has jumped")
				return r.Phase.Over()
			})
			if r.Phase != want || !jumped || !waited || want == RolledBack && !strings.Contains(r.Why, "1 of 2") {
				t.Errorf("%s, without %q: %s %q, jumped %t, waited %t; want %s", phase, victim, r.Phase, r.Why, jumped, waited, want)
			}
		}
	}
}

// A jump of the database's clock does not count as a time in which nodes did nothing. It neither dilutes figures after
// the jump nor improves the baseline.
func TestAJumpOfTheDatabasesClockDilutesNothing(t *testing.T) {
	for says, sick := range map[string]func(*heartbeat.Health){
		"errors of relays and settings a node and minute": func(h *heartbeat.Health) { h.SettingsErrors++ },
		"MySQL rows of ":            func(h *heartbeat.Health) { relayRows(h, 2000) },
		"share of denied decisions": func(h *heartbeat.Health) { h.DeniedTotal += 100 },
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, longBaseline(spec(plan.Stage{Regions: []string{"eu"}, BakeMs: (10 * time.Minute).Milliseconds()}, all)))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.skew = 3 * time.Minute
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			if well(h); hasNew {
				sick(h)
			}
		}
		from := l.now
		play(t, r, steps, nil)
		wantRolledBack(t, r, says)
		if took := l.now.Sub(from); took > 2*time.Minute {
			t.Errorf("%s: it took %v", says, took)
		}
	}
}
