package controlplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// promises are kept in memory, the newest first.
type promises struct{ kept []Promise }

func (p *promises) KeepPromise(_ context.Context, one Promise) error {
	if !slices.ContainsFunc(p.kept, func(k Promise) bool { return k.Rollout == one.Rollout }) {
		p.kept = append([]Promise{one}, p.kept...)
	}
	return nil
}

func (p *promises) Promises(_ context.Context, limit int) ([]Promise, error) {
	return p.kept[:min(limit, len(p.kept))], nil
}

// promised answers with a prediction.
type promised struct {
	ask PreviewAsk
	is  Prediction
}

func (p *promised) Preview(_ context.Context, ask PreviewAsk) (Predictions, error) {
	p.ask = ask
	return Predictions{New: p.is}, nil
}

func fits(measured ...float64) (kept []Promise) {
	for _, m := range measured {
		kept = append(kept, Promise{Rows: &PromiseFit{Promised: 100, Measured: m}})
	}
	return kept
}

// A preview says how far previews were off in the last rollouts, and is refused where the middle one of them is off by
// more than a factor of two, either way, unless it is forced or asks of a fleet that does not exist.
func TestAPreviewSaysHowFarTheModelIsOff(t *testing.T) {
	slow := Promise{Delay: &PromiseFit{Promised: 2000, Measured: 5000}}
	for _, c := range []struct {
		what    string
		kept    []Promise
		refused string
		note    string
	}{
		{"no rollout was measured", nil, "", ""},
		{"the last was as predicted", fits(100), "", "in the last rollout of all regions MySQL rows a second came to 1 times what previews say (at the worst 1 times)"},
		{"one of three is far off", fits(100, 900, 120), "", "in the last 3 rollouts of all regions MySQL rows a second came to 1.2 times what previews say (at the worst 9 times)"},
		{"twice as much", fits(200), "", "came to 2 times"},
		{"more than that", fits(201, 300, 250), "in the last 3 rollouts of all regions MySQL rows a second came to 2.5 times", ""},
		{"less than half", fits(49), "came to 0.49 times what previews say (at the worst 0.49 times)", ""},
		{"the worst is the furthest, not the largest", fits(150, 20, 100), "", "came to 1 times what previews say (at the worst 0.2 times)"},
		{"of next to nothing no share is taken", []Promise{{Rows: &PromiseFit{Promised: 0.1, Measured: 9}, Delay: &PromiseFit{Promised: 10, Measured: 900}}}, "", "came to 1 times"},
		{"the delay alone", []Promise{slow}, "the convergence delay came to 2.5 times", ""},
		{"what is no measurement is left out", []Promise{{}, {Rows: &PromiseFit{Promised: -1, Measured: 900}}}, "", ""},
		{"the newest ten count", append(fits(slices.Repeat([]float64{100}, promisesLately)...), fits(slices.Repeat([]float64{900}, 20)...)...), "", "in the last 10 rollouts of all regions MySQL rows a second came to 1 times"},
	} {
		previews := NewPreview(&previewed{}, NewRolloutWork(newLand("eu"), 30*time.Second), &promises{c.kept})
		for _, req := range []PreviewRequest{{}, {Force: true}, {NoFleet: true}} {
			req.New = string(document30)
			a, err := previews.Preview(t.Context(), req)
			if c.refused != "" && !req.Force && !req.NoFleet {
				if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "force makes it anyway") {
					t.Errorf("%s: %v, want %q", c.what, err, c.refused)
				}
				continue
			}
			notes := strings.Join(a.Notes, "\n")
			if err != nil || !strings.Contains(notes, c.note) || (c.note == "" && c.refused == "" && notes != "") || a.Model.Rollouts > promisesLately {
				t.Errorf("%s, %+v: %q, %v", c.what, req, notes, err)
			}
		}
	}
}

// A rollout that is done is predicted as a preview predicts it, for the fleet that there is and what it ran before; the
// first answer stays.
func TestAPromiseIsKept(t *testing.T) {
	l, rows, delay := newLand(), 300.0, 4000.0
	fleet := []FleetRow{beatOf("eu", "eu-1", heartbeat.Health{ActiveKeys: 1000}, l.now), beatOf("us", "us-1", heartbeat.Health{ActiveKeys: 10}, l.now)}
	model, store := &promised{is: Prediction{RowsWrittenPerS: 100, RowsReadPerS: 50, ConvergenceP99Ms: 2000}}, &promises{}
	previews := NewPreview(model, NewRolloutWork(previewLand{l, fleet}, 30*time.Second), store)
	ask := PromiseAsk{Rollout: "r1", EndedMs: 7, Old: "old", New: "new", Measured: Measured{RowsPerS: &rows, DelayMs: &delay}}
	for range 2 {
		if err := previews.KeepPromise(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		rows = 0
	}
	if len(store.kept) != 1 || *store.kept[0].Rows != (PromiseFit{150, 300}) || *store.kept[0].Delay != (PromiseFit{2000, 4000}) || store.kept[0].Rollout != "r1" || store.kept[0].EndedMs != 7 {
		t.Errorf("%+v", store.kept)
	}
	if model.ask.Old != "old" || model.ask.New != "new" || model.ask.Shape.Keys != 1010 {
		t.Errorf("asked %+v", model.ask)
	}
}

// What heartbeats do not tell is not guessed to judge a model by.
func TestAFleetThatDoesNotTellItsKeysIsNotJudged(t *testing.T) {
	l, rows, store := newLand(), 300.0, &promises{}
	fleet := []FleetRow{beatOf("eu", "eu-1", heartbeat.Health{}, l.now)}
	previews := NewPreview(&promised{}, NewRolloutWork(previewLand{l, fleet}, 30*time.Second), store)
	err := previews.KeepPromise(t.Context(), PromiseAsk{Rollout: "r1", Measured: Measured{RowsPerS: &rows}})
	if err != nil || len(store.kept) != 0 {
		t.Errorf("%v, %+v", err, store.kept)
	}
}

// A rollout of all regions keeps what they did at its end: the rows of them all, and the delay of the slowest. One that
// leaves a region out, is rolled back, or of which a region was not measured, holds no preview to anything.
func TestARolloutOfAllIsMeasured(t *testing.T) {
	some := RolloutStage{Regions: []string{"eu"}, BakeMs: 60_000}
	for _, c := range []struct {
		what   string
		stages []RolloutStage
		sick   bool
		want   bool
	}{
		{"all", []RolloutStage{some, all}, false, true},
		{"one node first", []RolloutStage{{Regions: []string{"eu"}, StageNodes: StageNodes{Nodes: 1}, BakeMs: 60_000}, all}, false, true},
		{"one region", []RolloutStage{some}, false, false},
		{"rolled back", []RolloutStage{some, all}, true, false},
	} {
		l := newLand("eu", "us")
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			h.AllowedTotal += 100
			relayRows(h, 10)
			if hasNew && c.sick {
				h.SettingsErrors++
			}
		}
		r, steps := begin(t, l, longBaseline(spec(c.stages...)))
		play(t, r, steps, nil)
		ask, ok := r.Promises()
		if ok != c.want {
			t.Fatalf("%s: %v, %+v", c.what, ok, r.Measured)
		}
		if !ok {
			continue
		}
		if rows := *ask.Measured.RowsPerS; rows < 36 || rows > 44 { // of four nodes
			t.Errorf("%s: %v rows a second", c.what, rows)
		}
		if ask.Old != defaultDocument() || ask.New != string(document30) || ask.Rollout != "r1" || ask.EndedMs != r.EndedMs {
			t.Errorf("%s: %+v", c.what, ask)
		}
	}
}
