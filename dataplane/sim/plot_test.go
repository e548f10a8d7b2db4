package sim

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// The picture is well-formed, has a line for each figure, and a ring where the tuning
// stands.
func TestCurvesAreDrawn(t *testing.T) {
	at := func(floor float64, slow time.Duration, here bool) Point {
		return Point{floor, slow, 1 + floor, 100 / slow.Seconds(), 10 / slow.Seconds(), here}
	}
	c := Curves{Title: "a < b & c",
		ByFloor:    []Point{at(0.1, time.Second, false), at(0.2, time.Second, true), at(0.5, time.Second, false)},
		ByInterval: []Point{at(0.2, time.Second, true), at(0.2, 5*time.Second, false)}}
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok {
			seen[e.Name.Local]++
		}
	}
	if seen["polyline"] != 3 || seen["circle"] != 3+2*2 {
		t.Errorf("drawn are %v", seen)
	}
	if n := strings.Count(b.String(), `r="6"`); n != 3 {
		t.Errorf("%d rings, want one a line", n)
	}
}

// A sweep moves one value at a time, and comes by the tuning itself once in each cut.
func TestSweepMovesOneValueAtATime(t *testing.T) {
	defer func(f []float64, i []time.Duration) { plottedFloors, plottedIntervals = f, i }(plottedFloors, plottedIntervals)
	plottedFloors, plottedIntervals = []float64{0.05, 0.6}, []time.Duration{100 * time.Millisecond}
	told := 0
	c, err := Sweep(lookup(t, "spread"), Options{Seed: 1, Duration: 2 * time.Second}, func(int, int) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ByFloor) != 3 || len(c.ByInterval) != 2 || told != 5 {
		t.Fatalf("%d floors, %d intervals, told %d times", len(c.ByFloor), len(c.ByInterval), told)
	}
	if !c.ByFloor[1].Here || c.ByFloor[0].Here || !c.ByInterval[1].Here || c.ByInterval[0].Here {
		t.Errorf("the tuning stands elsewhere: %+v", c)
	}
	for _, p := range c.ByFloor {
		if p.SlowInterval != 5*time.Second {
			t.Errorf("%+v moves two values", p)
		}
	}
}

// Two reports are compared figure by figure; what was 0 has no ratio.
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
