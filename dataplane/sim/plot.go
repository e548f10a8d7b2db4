package sim

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

// Point is what one tuning showed.
type Point struct {
	Floor             float64
	SlowInterval      time.Duration
	AdmittedOverLimit float64
	RowsReadPerS      float64
	RowsWrittenPerS   float64
	Here              bool // the tuning that the picture is drawn around
}

// Curves are two cuts through a tuning: the floor moved and all else kept, and the slow
// interval moved (with the fast one in proportion) and all else kept.
type Curves struct {
	Title      string
	ByFloor    []Point
	ByInterval []Point
}

// Where the curves are measured, besides at the tuning itself.
var (
	plottedFloors    = []float64{0.02, 0.1, 0.2, 0.35, 0.5, 0.75}
	plottedIntervals = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}
)

// Sweep runs the scenario once for every point of its curves. told, if there is one, is
// called before each run.
func Sweep(s Scenario, o Options, told func(done, of int)) (Curves, error) {
	base, name, err := o.tuning(s)
	if err != nil {
		return Curves{}, err
	}
	c := Curves{Title: fmt.Sprintf("%s, seed %d, around tuning %s", s.Name, o.Seed, name)}
	floors, intervals := withValue(plottedFloors, base.Floor), withValue(plottedIntervals, base.SlowInterval.Std())
	done := 0
	measure := func(change func(*tuning.Tuning)) (Point, error) {
		if told != nil {
			told(done, len(floors)+len(intervals))
		}
		done++
		set := base
		change(&set)
		o.Tuning, o.TuningName = &set, "plotted"
		var r Report
		var err error
		if bubbleErr := inBubble(func() { r, err = Simulate(s, o) }); bubbleErr != nil {
			return Point{}, bubbleErr
		}
		return Point{set.Floor, set.SlowInterval.Std(), r.AdmittedOverLimit, r.MySQLRowsReadPerS, r.MySQLRowsWrittenPerS, set == base}, err
	}
	for _, floor := range floors {
		p, err := measure(func(t *tuning.Tuning) { t.Floor = floor })
		if err != nil {
			return Curves{}, err
		}
		c.ByFloor = append(c.ByFloor, p)
	}
	for _, slow := range intervals {
		p, err := measure(func(t *tuning.Tuning) {
			share := float64(t.FastInterval) / float64(t.SlowInterval)
			t.SlowInterval = tuning.Duration(slow)
			fast := time.Duration(share * float64(slow)).Round(time.Millisecond)
			t.FastInterval = tuning.Duration(max(fast, 100*time.Millisecond)) // its own bound
		})
		if err != nil {
			return Curves{}, err
		}
		c.ByInterval = append(c.ByInterval, p)
	}
	return c, nil
}

// withValue is values with one more among them, in order.
func withValue[T float64 | time.Duration](values []T, v T) []T {
	all := append(slices.Clone(values), v)
	slices.Sort(all)
	return slices.Compact(all)
}

// A picture's measures, in pixels.
const (
	panelWidth, panelHeight = 420.0, 260.0
	marginLeft, marginTop   = 70.0, 70.0
	panelGap                = 110.0
)

// curve is one line of a panel.
type curve struct {
	name, color string
	of          func(Point) float64
}

// WriteSVG draws the curves: overshoot against the floor, load against the interval, and
// a ring where the tuning stands.
func (c Curves) WriteSVG(w io.Writer) error {
	var b strings.Builder
	width, height := 2*panelWidth+panelGap+2*marginLeft, panelHeight+marginTop+80
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%.0f" y="24" font-size="15">%s</text>`+"\n", marginLeft, escape(c.Title))
	floors := func(p Point) float64 { return p.Floor }
	seconds := func(p Point) float64 { return p.SlowInterval.Seconds() }
	drawPanel(&b, marginLeft, "floor (share of the limit)", "most admitted / limit", c.ByFloor, floors, 1,
		[]curve{{"admitted / limit", "#b5341c", func(p Point) float64 { return p.AdmittedOverLimit }}})
	drawPanel(&b, marginLeft+panelWidth+panelGap, "slow interval (s)", "MySQL rows a second", c.ByInterval, seconds, 0, []curve{
		{"rows read", "#1c5fb5", func(p Point) float64 { return p.RowsReadPerS }},
		{"rows written", "#2e7d32", func(p Point) float64 { return p.RowsWrittenPerS }},
	})
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// drawPanel draws curves over points, from least upwards.
func drawPanel(b *strings.Builder, left float64, xName, yName string, points []Point, x func(Point) float64, least float64, curves []curve) {
	xMax, yMax := 0.0, least
	for _, p := range points {
		xMax = max(xMax, x(p))
		for _, c := range curves {
			yMax = max(yMax, c.of(p))
		}
	}
	yMax = least + niceAbove((yMax-least)*1.05)
	atX := func(v float64) float64 { return left + v/max(xMax, 1e-9)*panelWidth }
	atY := func(v float64) float64 { return marginTop + panelHeight - (v-least)/max(yMax-least, 1e-9)*panelHeight }

	for i := range 5 {
		v := least + (yMax-least)*float64(i)/4
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, atY(v), left+panelWidth, atY(v), left-6, atY(v)+4, digits(v))
	}
	for _, p := range points {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", atX(x(p)), marginTop+panelHeight+18, digits(x(p)))
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text><text x="%.1f" y="%.1f">%s</text>`+"\n",
		left+panelWidth/2, marginTop+panelHeight+40, xName, left, marginTop-24, yName)
	for i, c := range curves {
		var line []string
		for _, p := range points {
			line = append(line, fmt.Sprintf("%.1f,%.1f", atX(x(p)), atY(c.of(p))))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(line, " "), c.color)
		for _, p := range points {
			radius, fill := 3.0, c.color
			if p.Here {
				radius, fill = 6, "#fff"
			}
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.0f" fill="%s" stroke="%s" stroke-width="2"/>`+"\n", atX(x(p)), atY(c.of(p)), radius, fill, c.color)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", left+panelWidth-90, marginTop-24+float64(i)*15, c.color, c.name)
	}
}

// niceAbove is the next of 1, 2, 2.5 and 5 times a power of ten.
func niceAbove(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow10(int(math.Floor(math.Log10(v))))
	for _, step := range []float64{1, 2, 2.5, 5} {
		if step*power >= v {
			return step * power
		}
	}
	return 10 * power
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
