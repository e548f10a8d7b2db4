package preview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/tuning"
)

// The test's own program is the worker. Simulations need the runner of package testing,
// so it works in a test of its own; in one mode it never ends.
func TestMain(m *testing.M) {
	worker = len(os.Args) == 2 && os.Args[1] == Argument
	if !worker {
		goleak.VerifyTestMain(m)
		return
	}
	if os.Getenv("WEIR_TEST_WORKER") == "hangs" {
		fmt.Println(`{"scale":{"keys":1,"nodes":1}}`)
		select {}
	}
	floors = floors[:1]
	os.Args = []string{os.Args[0], "-test.run=^TestWorker$"}
	os.Exit(m.Run())
}

var worker bool

func TestWorker(t *testing.T) {
	if !worker {
		return // it is the others' process
	}
	if err := Work(os.Stdin, os.Stdout); err != nil {
		t.Fatal(err)
	}
}

func document(t *testing.T, set tuning.Tuning) string {
	t.Helper()
	b, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func small() controlplane.FleetShape {
	return controlplane.FleetShape{Nodes: []int{2, 1}, Keys: 60, HotShare: 0.5, OverlapShare: 0.5, Limit: 20, WindowMs: 60_000}
}

func runner(t *testing.T) *Runner {
	t.Helper()
	r, err := NewRunner("")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The simulator predicts rows/s, convergence delay and worst-case overshoot for old and
// new tuning: the default publishes early, and the RFC's lets half a limit pass unseen
// in each region.
func TestPreviewTellsTuningsApart(t *testing.T) {
	shape := small()
	shape.WindowMs = 10_000
	last, next := tuning.RFC(), tuning.Default()
	last.MinGlobalDuration, next.MinGlobalDuration = tuning.Duration(time.Second), tuning.Duration(time.Second)
	var lines []line
	ask := controlplane.PreviewAsk{Shape: shape, Old: document(t, last), New: document(t, next), TimeMaxMs: time.Hour.Milliseconds()}
	err := work(ask, []float64{1, next.Floor, 0.05}, time.Now(), func(v any) error { lines = append(lines, v.(line)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 || lines[0].Scale == nil || lines[1].Old == nil || lines[2].New == nil || lines[3].Point == nil || lines[4].Point == nil {
		t.Fatalf("%+v", lines)
	}
	was, is, lax, tight := lines[1].Old, lines[2].New, lines[3].Point, lines[4].Point
	if was.Overshoot <= is.Overshoot {
		t.Errorf("overshoot: old %v, new %v: the RFC's must be larger", was.Overshoot, is.Overshoot)
	}
	if lax.Floor != 1 || lax.Overshoot < tight.Overshoot {
		t.Errorf("the curve: %+v is to be laxer than %+v", lax, tight)
	}
	if is.RowsWrittenPerS <= 0 || was.RowsReadPerS <= 0 || is.SimulatedDecisions == 0 {
		t.Errorf("%+v, %+v", was, is)
	}
}

// The whole way through a process, with as much of the curve as there was time for.
func TestPreviewInAProcess(t *testing.T) {
	shape := small()
	shape.WindowMs, shape.Keys = 2000, 10
	p, err := runner(t).Preview(t.Context(), controlplane.PreviewAsk{Shape: shape, Old: document(t, tuning.RFC()), New: document(t, tuning.Default()), TimeMaxMs: 5 * time.Minute.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	if p.Old.Floor != 0.5 || p.New.Floor != 0.1 || p.KeysSimulated != 10 || p.NodesSimulated != 3 || p.New.SimulatedDecisions == 0 {
		t.Errorf("%+v", p)
	}
	if len(p.Curve) != 1 || p.Curve[0].Floor != 0.5 {
		t.Errorf("the curve: %+v", p.Curve)
	}
}

// Rows of counts grow with the keys that are not simulated, rows of digests do not; and
// the answer says so.
func TestShrinkSaysHow(t *testing.T) {
	shape := controlplane.FleetShape{Nodes: []int{100, 3, 3}, Keys: 10_000_000, HotShare: 0.1, OverlapShare: 0.05, Limit: 100, WindowMs: 60_000}
	p, s := shrink(shape)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if sum(p.Nodes) > nodesMax || p.Requests() > 2*requestsMax || float64(s.Keys)*s.byKeys != 10_000_000 || s.byNodes <= 1 {
		t.Errorf("%+v, %+v", p, s)
	}
	if all := strings.Join(s.Notes, "\n"); !strings.Contains(all, "of 10000000 keys were simulated") || !strings.Contains(all, "of 106 nodes") {
		t.Error(all)
	}
	if shape.Nodes[0] != 100 {
		t.Error("the asker's shape was changed")
	}
	if p, s = shrink(small()); s.byKeys != 1 || s.byNodes != 1 || p.Keys != 60 {
		t.Errorf("a small one is simulated as it is: %+v", s)
	}
}

// Bounded by the request's time and by the caller's: either way the process is gone.
func TestPreviewEnds(t *testing.T) {
	t.Setenv("WEIR_TEST_WORKER", "hangs")
	ask := controlplane.PreviewAsk{Shape: small(), Old: `{}`, New: `{}`, TimeMaxMs: 1000}
	if _, err := runner(t).Preview(t.Context(), ask); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), "not done within 1s: allow it more than 3s (at most 1m0s)") {
		t.Errorf("time is up: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	ask.TimeMaxMs = 60_000
	if _, err := runner(t).Preview(ctx, ask); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has gone: %v", err)
	}
}

// Who ran out of time is told how much would do.
func TestOutOfTimeSaysHowMuch(t *testing.T) {
	for want, tc := range map[string][2]time.Duration{
		"not done within 10s: allow it more than 25s (at most 1m0s)":                                      {10 * time.Second, 0},
		"not done within 10s: allow it about 20s (at most 1m0s)":                                          {10 * time.Second, 8 * time.Second},
		"not done within 5s: allow it about 6s (at most 1m0s)":                                            {5 * time.Second, time.Second}, // the other one takes longer
		"not done within 30s, and would take more than 1m15s (at most 1m0s): give it a shorter window or": {30 * time.Second, 0},
		"not done within 1m0s, and would take about 1m40s (at most 1m0s): give":                           {time.Minute, 40 * time.Second},
	} {
		if err := outOfTime(tc[0], tc[1]); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestPreviewRefusesWhatCannotBe(t *testing.T) {
	whole, err := tuning.Default().Document()
	if err != nil {
		t.Fatal(err)
	}
	ask := controlplane.PreviewAsk{Shape: small(), Old: string(whole), New: strings.Replace(string(whole), `"floor":0.1`, `"floor":7`, 1), TimeMaxMs: 30_000}
	if _, err := runner(t).Preview(t.Context(), ask); err == nil || !strings.Contains(err.Error(), "floor is 7") {
		t.Error(err)
	}
}
