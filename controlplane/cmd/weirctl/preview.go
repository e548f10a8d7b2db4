package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// shapeFlags describe the fleet.
type shapeFlags struct {
	Regions  *int32         `placeholder:"N" help:"Regions."`
	Nodes    *int32         `placeholder:"N" help:"Nodes of each region."`
	Keys     *int64         `placeholder:"N" help:"Keys that are active in one window."`
	Hot      *float64       `placeholder:"SHARE" help:"Share of the keys near or above their limits, 0 to 1."`
	Overlap  *float64       `placeholder:"SHARE" help:"Share of the keys that several regions use, 0 to 1."`
	Limit    *int64         `placeholder:"N" help:"Limit of every key."`
	Duration *time.Duration `placeholder:"DURATION" help:"The window of every key (1s to 1h)."`
	Within   time.Duration  `default:"10s" help:"How long to simulate, 5s to 1m. Longer gives a curve of more points."`
}

func (f shapeFlags) shape() *controlv1.PreviewShape {
	shape := &controlv1.PreviewShape{Regions: f.Regions, NodesPerRegion: f.Nodes, Keys: f.Keys, HotShare: f.Hot,
		OverlapShare: f.Overlap, Limit: f.Limit}
	if f.Duration != nil {
		shape.WindowMs = new(f.Duration.Milliseconds())
	}
	return shape
}

type rolloutPreview struct {
	tuningFlags
	Old string `placeholder:"FILE" help:"The tuning to compare with. Default: the one in force."`
	shapeFlags
}

func (r rolloutPreview) Run(c *call) error {
	var inForce []*controlv1.RegionTuning
	if r.Tuning == "" {
		var err error
		if inForce, err = c.inForce(); err != nil {
			return err
		}
	}
	document, err := r.chosen(inForce)
	if err != nil {
		return wrong(err)
	}
	return c.preview(document, r.Old, false, r.shapeFlags)
}

type simulate struct {
	Tuning string   `default:"default" placeholder:"FILE" help:"JSON document of a tuning, every field present; - is stdin, and default and rfc are built in (default ${default})."`
	Set    []string `sep:"none" placeholder:"FIELD=VALUE" help:"Change one field of --tuning and keep the others."`
	Old    string   `default:"rfc" placeholder:"FILE" help:"The tuning to compare with (default ${default})."`
	shapeFlags
}

// Run predicts the effects for a fleet that need not exist.
func (s simulate) Run(c *call) error {
	document, err := tuningFlags{Tuning: s.Tuning, Set: s.Set}.chosen(nil)
	if err != nil {
		return wrong(err)
	}
	return c.preview(document, s.Old, true, s.shapeFlags)
}

func (c *call) preview(document, old string, withoutFleet bool, f shapeFlags) error {
	req := &controlv1.PreviewRolloutRequest{Tuning: document, WithoutFleet: withoutFleet, Shape: f.shape(),
		TimeMaxMs: f.Within.Milliseconds()}
	if old != "" {
		var err error
		if req.OldTuning, err = tuningDocument(old); err != nil {
			return wrong(err)
		}
	}
	return show(c, c.Rollouts.PreviewRollout, req, writePreview)
}

// flagsOf returns the flags that set fields of the shape.
func flagsOf(fields []string) []string {
	names := map[string]string{"nodes_per_region": "nodes", "hot_share": "hot", "overlap_share": "overlap",
		"window_ms": "duration"}
	flags := make([]string, len(fields))
	for i, f := range fields {
		flags[i] = "--" + cmp.Or(names[f], f)
	}
	return flags
}

func writePreview(w io.Writer, a *controlv1.PreviewRolloutResponse) {
	s := a.GetShape()
	_, _ = fmt.Fprintf(w, "%s in %s; %s active in a window of %s, with limits of %s; %.3g %% hot, %.3g %% in several "+
		"regions\n",
		format.Plural(int64(a.GetNodes()), "node"), format.Plural(int64(s.GetRegions()), "region"), format.Plural(s.GetKeys(),
			"key"),
		format.Span(s.GetWindowMs()), format.Digits(s.GetLimit()), 100*s.GetHotShare(), 100*s.GetOverlapShare())
	if assumed := a.GetAssumed(); len(assumed) > 0 {
		_, _ = fmt.Fprintf(w, "assumed, unless set by these flags: %s\n", format.Plain(strings.Join(flagsOf(assumed), ", ")))
	}
	_, _ = fmt.Fprintln(w)
	t := format.NewTable(w)
	t.Row("PREDICTED", "OLD", "NEW", "NEW/OLD")
	for _, f := range []struct {
		name   string
		of     func(*controlv1.PreviewPrediction) float64
		format string
	}{
		{"MySQL rows written a second", (*controlv1.PreviewPrediction).GetRowsWrittenPerS, ""},
		{"MySQL rows read a second", (*controlv1.PreviewPrediction).GetRowsReadPerS, ""},
		{"convergence delay, median", asFloat((*controlv1.PreviewPrediction).GetConvergenceP50Ms), "ms"},
		{"convergence delay, 99 %", asFloat((*controlv1.PreviewPrediction).GetConvergenceP99Ms), "ms"},
		{"  of keys near their limit", asFloat((*controlv1.PreviewPrediction).GetConvergenceHotP99Ms), "ms"},
		{"share never sent elsewhere", (*controlv1.PreviewPrediction).GetUnknownShare, ""},
		{"admitted/limit, worst caller", (*controlv1.PreviewPrediction).GetOvershoot, ""},
		{"admitted/limit, ordinary", (*controlv1.PreviewPrediction).GetOrdinaryOvershoot, ""},
	} {
		was, is := f.of(a.GetOld()), f.of(a.GetNew())
		show := func(v float64) string {
			if f.format == "ms" {
				return format.Span(int64(v))
			}
			return format.Measured(&v)
		}
		ratio := "-"
		if was > 0 {
			ratio = fmt.Sprintf("%.3g", is/was)
		}
		t.Row(f.name, show(was), show(is), ratio)
	}
	t.Flush()
	_, _ = fmt.Fprintln(w)
	writeCurve(w, a)
	_, _ = fmt.Fprintln(w)
	for _, n := range a.GetNotes() {
		format.Prose(w, "- ", n)
	}
	_, _ = fmt.Fprintf(w, "- simulated in %s\n", format.Span(a.GetTookMs()))
}

func asFloat(ms func(*controlv1.PreviewPrediction) int64) func(*controlv1.PreviewPrediction) float64 {
	return func(p *controlv1.PreviewPrediction) float64 { return float64(ms(p)) }
}

const curveWidth, curveHeight = 60, 12

// writeCurve draws overshoot against rows: the new tuning with other feed intervals, and the points of the old and the
// new tuning.
func writeCurve(w io.Writer, a *controlv1.PreviewRolloutResponse) {
	points := append([]*controlv1.PreviewPrediction{a.GetOld(), a.GetNew()}, a.GetCurve()...)
	rows := func(p *controlv1.PreviewPrediction) float64 { return p.GetRowsWrittenPerS() + p.GetRowsReadPerS() }
	over := (*controlv1.PreviewPrediction).GetOvershoot
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, p := range points {
		x0, x1 = min(x0, rows(p)), max(x1, rows(p))
		y0, y1 = min(y0, over(p)), max(y1, over(p))
	}
	grid := make([][]rune, curveHeight)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", curveWidth))
	}
	put := func(p *controlv1.PreviewPrediction, mark rune) {
		x, y := along(rows(p), x0, x1, curveWidth), along(over(p), y0, y1, curveHeight)
		cell := &grid[curveHeight-1-y][x]
		if (*cell == 'O' && mark == 'N') || (*cell == 'N' && mark == 'O') {
			mark = 'B'
		}
		*cell = mark
	}
	for _, p := range a.GetCurve() {
		put(p, '*')
	}
	put(a.GetOld(), 'O')
	put(a.GetNew(), 'N')
	_, _ = fmt.Fprintln(w, "admitted/limit of the worst caller, by MySQL rows written and read a second")
	for i, line := range grid {
		label := ""
		switch i {
		case 0:
			label = fmt.Sprintf("%.3g", y1)
		case curveHeight - 1:
			label = fmt.Sprintf("%.3g", y0)
		}
		_, _ = fmt.Fprintf(w, "%8s |%s\n", label, strings.TrimRight(string(line), " "))
	}
	_, _ = fmt.Fprintf(w, "%8s +%s\n", "", strings.Repeat("-", curveWidth))
	left := format.Measured(&x0)
	_, _ = fmt.Fprintf(w, "%10s%s%*s\n", "", left, curveWidth-len(left), format.Measured(&x1))
	_, _ = fmt.Fprintln(w, "O old   N new   B both   * new with other feed intervals")
}

// along returns the cell of v on a line of cells between from and to.
func along(v, from, to float64, cells int) int {
	if !(to > from) { // also NaN
		return 0
	}
	return min(max(0, int(math.Round((v-from)/(to-from)*float64(cells-1)))), cells-1)
}
