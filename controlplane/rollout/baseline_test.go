package rollout

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// unevenly returns a second of a node that has the tuning. Its errors come at an uneven rate, some hundred a second.
func unevenly(random *rand.Rand) func(*heartbeat.Health, bool) {
	return func(h *heartbeat.Health, hasNew bool) {
		if well(h); hasNew {
			h.SettingsErrors += 20 + random.Int64N(400)
		}
	}
}

// Errors at an uneven rate are no evidence if the baseline is short. But the stage does not pass: it pauses for an
// operator.
//
//weir:unraced
func TestAShortBaselineLetsNoHarmPass(t *testing.T) {
	for seed := range uint64(20) {
		for baseline, least := range map[time.Duration]float64{100 * time.Millisecond: 6, 200 * time.Millisecond: 0,
			time.Second: 6, 3 * time.Second: 6} {
			l := newLand("eu", "us", "ap")
			s := shortly()
			s.Plan.BaselineMs, s.Plan.Guardrails.ErrorsPerMinute.Least = baseline.Milliseconds(), least
			s.Plan.Guardrails.Comparison.Off = true
			r, steps := begin(t, l, s)
			l.sick = unevenly(rand.New(rand.NewPCG(seed, 1)))
			play(t, r, steps, nil)
			const why = "the baseline is too short to judge errors of relays and settings a node and minute: "
			switch {
			case r.Stage == 0 && r.Phase == RolledBack:
			case r.Stage == 0 && r.Paused != nil && strings.Contains(r.Paused.Reason, why):
			default:
				t.Errorf("a baseline of %v, seed %d: %s of stage %d %q, paused %+v", baseline, seed, r.Phase, r.Stage+1, r.Why,
					r.Paused)
			}
		}
	}
}

// A baseline as long as the bake is evidence enough.
func TestABaselineAsLongAsTheBakeShowsUnevenHarm(t *testing.T) {
	for seed := range uint64(20) {
		l := newLand("eu", "us", "ap")
		s := shortly()
		s.Plan.BaselineMs = s.Plan.Stages[0].BakeMs
		s.Plan.Guardrails.Comparison.Off = true
		r, steps := begin(t, l, s)
		l.sick = unevenly(rand.New(rand.NewPCG(seed, 1)))
		play(t, r, steps, nil)
		wantRolledBack(t, r, "stage 1 (eu): errors of relays and settings a node and minute: ")
	}
}

// Errors at a steady rate are not clumps, although most looks see no heartbeat and the next look sees many errors.
func TestASteadyRateIsNoClump(t *testing.T) {
	for _, every := range []int64{2, 5, 10} {
		l := newLand("eu", "us", "ap")
		s := shortly()
		s.Plan.Guardrails.Comparison.Off = true
		r, steps := begin(t, l, s)
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			if well(h); hasNew {
				h.SettingsErrors += 10
			}
		}
		for r.Paused == nil && !r.Phase.Over() {
			wait := makeTransition(t, r, steps)
			for end := l.now.Add(max(wait, time.Millisecond)); l.now.Before(end); {
				l.silent = l.now.Unix()%every != 0
				steps.pass(min(time.Second, end.Sub(l.now)))
			}
		}
		wantRolledBack(t, r, "stage 1 (eu): errors of relays and settings a node and minute: ")
	}
}
