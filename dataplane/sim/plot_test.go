package sim

import (
	"strings"
	"testing"
	"time"
)

// Each figure has a chart, and a table with a mark at the tuning.
func TestCurvesAreDrawn(t *testing.T) {
	at := func(floor float64, interval time.Duration, here bool) Point {
		return Point{floor, interval, 1 + floor, 100 / interval.Seconds(), 10 / interval.Seconds(), here}
	}
	c := Curves{Title: "steady",
		ByFloor:    []Point{at(0.1, time.Second, false), at(0.2, time.Second, true), at(0.5, time.Second, false)},
		ByInterval: []Point{at(0.2, time.Second, true), at(0.2, 5*time.Second, false)}}
	var b strings.Builder
	if err := c.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for says, times := range map[string]int{"admitted / limit": 1, "rows read": 1, "rows written": 1, "<- the tuning": 3, "steady": 1} {
		if n := strings.Count(b.String(), says); n != times {
			t.Errorf("%q %d times, want %d:\n%s", says, n, times, b.String())
		}
	}
}

// A sweep changes a single value at a time, and measures the tuning itself once in each cut.
//
//weir:unraced
func TestSweepMovesOneValueAtATime(t *testing.T) {
	defer func(f []float64, i []time.Duration) { plottedFloors, plottedIntervals = f, i }(plottedFloors, plottedIntervals)
	plottedFloors, plottedIntervals = []float64{0.05, 0.6}, []time.Duration{100 * time.Millisecond}
	report := 0
	c, err := Sweep(lookup(t, "spread"), Options{Seed: 1, Duration: 2 * time.Second}, func(int, int) { report++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ByFloor) != 3 || len(c.ByInterval) != 2 || report != 5 {
		t.Fatalf("%d floors, %d intervals, told %d times", len(c.ByFloor), len(c.ByInterval), report)
	}
	if !c.ByFloor[1].Here || c.ByFloor[0].Here || !c.ByInterval[1].Here || c.ByInterval[0].Here {
		t.Errorf("the tuning stands elsewhere: %+v", c)
	}
	for _, p := range c.ByFloor {
		if p.FeedInterval != 200*time.Millisecond {
			t.Errorf("%+v moves two values", p)
		}
	}
}

// Two reports are compared figure by figure. A figure that was 0 has no ratio.
func TestCompare(t *testing.T) {
	c := Compare(Report{AdmittedOverLimit: 2, MySQLRowsReadPerS: 10}, Report{AdmittedOverLimit: 3, MySQLRowsReadPerS: 5, LostCost: 1})
	if c.Ratios["admitted_over_limit"] != 1.5 || c.Ratios["mysql_rows_read_per_s"] != 0.5 {
		t.Errorf("%v", c.Ratios)
	}
	if _, ok := c.Ratios["lost_cost"]; ok {
		t.Errorf("a ratio over 0: %v", c.Ratios)
	}
	var b strings.Builder
	if err := c.WriteTable(&b); err != nil || !strings.Contains(b.String(), "1.5") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
