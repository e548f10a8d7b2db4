package preview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/previews"
	"github.com/weirhq/weir/dataplane/sim"
	"github.com/weirhq/weir/shared/tuning"
)

// The test's own program is the worker. Simulations need the runner of package testing, so it works in a test of its
// own. In a certain mode it never ends.
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
	intervals = intervals[:1]
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

func small() previews.FleetShape {
	return previews.FleetShape{Nodes: []int{2, 1}, Keys: 60, HotShare: 0.5, OverlapShare: 0.5, Limit: 20, WindowMs: 60_000}
}

func runner(t *testing.T) *Runner {
	t.Helper()
	r, err := NewRunner("")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The simulator predicts rows/s, convergence delay and worst-case overshoot for the old and the new tuning: the default
// publishes to other regions soon, and the RFC's every ten seconds.
func TestPreviewTellsTuningsApart(t *testing.T) {
	shape := small()
	shape.WindowMs = 10_000
	last, next := tuning.RFC(), tuning.Default()
	last.MinGlobalDuration, next.MinGlobalDuration = tuning.Duration(time.Second), tuning.Duration(time.Second)
	var lines []line
	ask := previews.Ask{Shape: shape, Old: document(t, last), New: document(t, next), TimeMaxMs: time.Hour.Milliseconds()}
	err := work(ask, []time.Duration{5 * time.Second, next.FeedInterval.Std(), 100 * time.Millisecond}, time.Now(), func(v any) error { lines = append(lines, v.(line)); return nil })
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
	if lax.FeedIntervalMs != 5000 || lax.Overshoot <= tight.Overshoot {
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
	p, err := runner(t).Preview(t.Context(), previews.Ask{Shape: shape, Old: document(t, tuning.RFC()), New: document(t, tuning.Default()), TimeMaxMs: 5 * time.Minute.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	if p.Old.FeedIntervalMs != 10_000 || p.New.FeedIntervalMs != 200 || p.KeysSimulated != 10 || p.NodesSimulated != 3 || p.New.SimulatedDecisions == 0 {
		t.Errorf("%+v", p)
	}
	if len(p.Curve) != 1 || p.Curve[0].FeedIntervalMs != 1000 {
		t.Errorf("the curve: %+v", p.Curve)
	}
}

// The answer names the parts of a fleet that were left out, and how its rows were scaled.
func TestShrinkSaysHow(t *testing.T) {
	shape := previews.FleetShape{Nodes: []int{100, 3, 3}, Keys: 10_000_000, HotShare: 0.1, OverlapShare: 0.05, Limit: 100, WindowMs: 60_000}
	p, s := shrink(shape)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if sum(p.Nodes) > nodesMax || p.Requests() > 2*requestsMax || float64(s.Keys)*s.byKeys != 10_000_000 || s.regions != 3 || s.reduced != 3 {
		t.Errorf("%+v, %+v", p, s)
	}
	if all := strings.Join(s.Notes, "\n"); !strings.Contains(all, "of 10000000 keys were simulated") || !strings.Contains(all, "of 106 nodes") || strings.Contains(all, "regions were simulated") {
		t.Error(all)
	}
	if shape.Nodes[0] != 100 {
		t.Error("the asker's shape was changed")
	}
	shape.Nodes = slices.Repeat([]int{1}, 50)
	if _, s = shrink(shape); s.regions != 50 || s.reduced != regionsMax || !strings.Contains(strings.Join(s.Notes, "\n"), "10 of 50 regions were simulated") {
		t.Errorf("%+v", s)
	}
	if p, s = shrink(small()); s.byKeys != 1 || s.regions != s.reduced || p.Keys != 60 {
		t.Errorf("a small one is simulated as it is: %+v", s)
	}
}

// Stored counts grow with the keys. Rows of the change feed grow with the regions that write them and with the regions
// that read them. There is at most one row for each region and interval, however many keys and nodes there are.
func TestRowsGoByRegions(t *testing.T) {
	const interval = 200 * time.Millisecond
	// 4 rows of the change feed, of two regions
	quiet := sim.Report{MySQLRowsWrittenPerS: 14, MySQLCountsWrittenPerS: 10, MySQLRowsReadPerS: 4}
	for name, tc := range map[string]struct {
		by            scale
		report        sim.Report
		written, read float64
	}{
		"as it is":               {scale{byKeys: 1, regions: 2, reduced: 2}, quiet, 14, 4},
		"twice the keys":         {scale{byKeys: 2, regions: 2, reduced: 2}, quiet, 28, 8},
		"a thousand times":       {scale{byKeys: 1000, regions: 2, reduced: 2}, quiet, 10_010, 10},
		"five times the regions": {scale{byKeys: 1, regions: 10, reduced: 2}, quiet, 30, 180},
		"no feed":                {scale{byKeys: 3, regions: 2, reduced: 2}, sim.Report{MySQLRowsWrittenPerS: 10, MySQLCountsWrittenPerS: 10}, 30, 0},
		"one region":             {scale{byKeys: 2, regions: 1, reduced: 1}, sim.Report{MySQLRowsWrittenPerS: 2}, 4, 0},
	} {
		if written, read := tc.by.rows(tc.report, interval); written != tc.written || read != tc.read {
			t.Errorf("%s: %v written, %v read; want %v, %v", name, written, read, tc.written, tc.read)
		}
	}
}

// Bounded by the request's time and by the caller's: either way the process is gone.
func TestPreviewEnds(t *testing.T) {
	t.Setenv("WEIR_TEST_WORKER", "hangs")
	ask := previews.Ask{Shape: small(), Old: `{}`, New: `{}`, TimeMaxMs: 1000}
	if _, err := runner(t).Preview(t.Context(), ask); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), "did not finish within 1s: allow more than 3s (at most 1m0s)") {
		t.Errorf("time is up: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	ask.TimeMaxMs = 60_000
	if _, err := runner(t).Preview(ctx, ask); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has gone: %v", err)
	}
}

// If the time runs out, the error has the time that would suffice.
func TestOutOfTimeSaysHowMuch(t *testing.T) {
	for want, tc := range map[string][2]time.Duration{
		"did not finish within 10s: allow more than 25s (at most 1m0s)": {10 * time.Second, 0},
		"did not finish within 10s: allow about 20s (at most 1m0s)":     {10 * time.Second, 8 * time.Second},
		// the other half takes longer
		"did not finish within 5s: allow about 6s (at most 1m0s)":                                     {5 * time.Second, time.Second},
		"did not finish within 30s and needs more than 1m15s (at most 1m0s): use a shorter window or": {30 * time.Second, 0},
		"did not finish within 1m0s and needs about 1m40s (at most 1m0s): use":                        {time.Minute, 40 * time.Second},
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
	ask := previews.Ask{Shape: small(), Old: string(whole), New: strings.Replace(string(whole), `"floor":0.1`, `"floor":7`, 1), TimeMaxMs: 30_000}
	if _, err := runner(t).Preview(t.Context(), ask); err == nil || !strings.Contains(err.Error(), "floor is 7") {
		t.Error(err)
	}
}
