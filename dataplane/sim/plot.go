package sim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/dataplane/sim/internal/chart"
	"github.com/weirhq/weir/shared/tuning"
)

// Point is the result of one tuning.
type Point struct {
	Floor             float64
	FeedInterval      time.Duration
	AdmittedOverLimit float64
	RowsReadPerS      float64
	RowsWrittenPerS   float64
	Here              bool // whether it is the tuning that the curves are drawn around
}

// Curves are two cuts through a tuning: with different floors, and with different feed intervals, and all other values
// unchanged.
type Curves struct {
	Title      string
	ByFloor    []Point
	ByInterval []Point
}

// Values that the curves are measured at, in addition to the tuning's own values.
var (
	plottedFloors    = []float64{0.02, 0.1, 0.2, 0.35, 0.5, 0.75}
	plottedIntervals = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		2 * time.Second, 10 * time.Second}
)

// Sweep runs the scenario once for every point of its curves, for example to choose a floor. It calls report, if it is
// not nil, before each run.
func Sweep(s Scenario, o Options, report func(done, of int)) (Curves, error) {
	base, name, err := o.tuning(s)
	if err != nil {
		return Curves{}, err
	}
	c := Curves{Title: fmt.Sprintf("%s, seed %d, around tuning %s", s.Name, o.Seed, name)}
	floors, intervals := withValue(plottedFloors, base.Floor), withValue(plottedIntervals, base.FeedInterval.Std())
	c.ByFloor, c.ByInterval = make([]Point, len(floors)), make([]Point, len(intervals))
	for done := range len(floors) + len(intervals) {
		if report != nil {
			report(done, len(floors)+len(intervals))
		}
		set := base
		var to *Point
		if i := done - len(floors); i < 0 {
			set.Floor, to = floors[done], &c.ByFloor[done]
		} else {
			set.FeedInterval, to = tuning.Duration(intervals[i]), &c.ByInterval[i]
		}
		o.Tuning, o.TuningName = &set, "plotted"
		r, err := bubble.Run(func() (Report, error) { return Simulate(s, o) })
		if err != nil {
			return Curves{}, err
		}
		*to = Point{set.Floor, set.FeedInterval.Std(), r.AdmittedOverLimit, r.MySQLRowsReadPerS, r.MySQLRowsWrittenPerS,
			set == base}
	}
	return c, nil
}

// withValue returns values with v inserted, in order.
func withValue[T float64 | time.Duration](values []T, v T) []T {
	all := append(slices.Clone(values), v)
	slices.Sort(all)
	return slices.Compact(all)
}

// WriteText draws the curves as text: overshoot against the floor, load against the interval. It draws straight lines
// between measured points, and lists the points in a table below.
func (c Curves) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Title)
	floor, seconds := func(p Point) float64 { return p.Floor }, func(p Point) float64 { return p.FeedInterval.Seconds() }
	draw(&b, "most admitted / limit, by floor (share of the limit)", c.ByFloor, floor, func(p Point) float64 {
		return p.AdmittedOverLimit
	})
	draw(&b, "MySQL rows read a second, by feed interval (s)", c.ByInterval, seconds, func(p Point) float64 {
		return p.RowsReadPerS
	})
	draw(&b, "MySQL rows written a second, by feed interval (s)", c.ByInterval, seconds, func(p Point) float64 {
		return p.RowsWrittenPerS
	})
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the curves: %w", err)
	}
	return nil
}

// draw draws y over x, and lists the points, which must be in the order of x.
func draw(b *strings.Builder, caption string, points []Point, x, y func(Point) float64) {
	line := make([]chart.Point, len(points))
	for i, p := range points {
		line[i] = chart.Point{X: x(p), Y: y(p)}
	}
	fmt.Fprintf(b, "\n%s\n\n%s\n\n", caption, chart.Draw(line))
	for _, p := range points {
		mark := ""
		if p.Here {
			mark = "  <- the tuning"
		}
		fmt.Fprintf(b, "%12s %12s%s\n", digits(x(p)), digits(y(p)), mark)
	}
}
