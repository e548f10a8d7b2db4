package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// previewView compares the expected effects of a tuning with the tuning that the fleet runs.
type previewView struct {
	*controlv1.PreviewRolloutResponse
	Guessed []string // names of the fleet's figures that heartbeats lack
	Rows    []comparison
	Curve   []curvePoint
	Line    string // the curve's points in the syntax of SVG
	Old     curvePoint
	New     curvePoint
	MostX   float64
	MostY   float64
}

// comparison is a figure of both tunings. Its bars are at most 300 wide.
type comparison struct {
	Name, Unit   string
	Old, New     float64
	OldAt, NewAt int
	Words        string // the change in words
}

// curvePoint is a tuning on the drawing of load against overshoot, which is 400 by 260.
type curvePoint struct {
	X, Y     int
	Interval string // feed interval
	Apart    bool   // far enough from all earlier points for a label of its own
	Last     string // interval of the last point that is too near for a label of its own

	Load, Overshoot float64 // in figures
}

// Label returns the interval, or the range of intervals of all points at this place.
func (p curvePoint) Label() string {
	if p.Last != "" {
		return p.Interval + "–" + p.Last
	}
	return p.Interval
}

// LabelY returns a position below the point, or above the point near the labels of the axis.
func (p curvePoint) LabelY() int {
	if p.Y > 190 {
		return p.Y - 12
	}
	return p.Y + 22
}

// Anchor keeps a label at the right edge within the drawing.
func (p curvePoint) Anchor() string {
	if p.X > 350 {
		return "end"
	}
	return "middle"
}

// previewTime bounds the simulation. It is longer than the default, because the page has no field for it.
const previewTime = 30 * time.Second

// previewRollout shows the form again with the expected effects of the tuning.
func (c rolloutPages) previewRollout(w http.ResponseWriter, r *http.Request, v *viewer) {
	form, ok := c.filledIn(w, r, v)
	if !ok {
		return
	}
	document, err := form.document()
	if err != nil {
		c.renderWith(w, r, v, http.StatusBadRequest, "rollout-new", "New rollout", err.Error(), form)
		return
	}
	answer, err := apiclient.Ask(v.ctx, c.backend.Rollouts.PreviewRollout,
		&controlv1.PreviewRolloutRequest{Tuning: document, TimeMaxMs: previewTime.Milliseconds()})
	if err != nil {
		c.renderWith(w, r, v, status(err), "rollout-new", "New rollout", apiclient.Words(err), form)
		return
	}
	form.Preview = describePreview(answer)
	c.render(w, r, v, http.StatusOK, "rollout-new", "New rollout", form)
}

// shapeWords are the descriptions of the API's field names.
var shapeWords = map[string]string{
	"regions":          "how many regions there are",
	"nodes_per_region": "how many nodes a region has",
	"keys":             "how many keys are active",
	"hot_share":        "how many of them are near their limits",
	"overlap_share":    "how many of them several regions use",
	"limit":            "their limits",
	"window_ms":        "their windows",
}

func describePreview(p *controlv1.PreviewRolloutResponse) *previewView {
	v := &previewView{PreviewRolloutResponse: p}
	for _, field := range p.GetAssumed() {
		v.Guessed = append(v.Guessed, cmp.Or(shapeWords[field], field))
	}
	was, is := p.GetOld(), p.GetNew()
	v.compare("Rows written to MySQL", "a second", was.GetRowsWrittenPerS(), is.GetRowsWrittenPerS())
	v.compare("Rows read from MySQL", "a second", was.GetRowsReadPerS(), is.GetRowsReadPerS())
	v.compare("Convergence, 50 % of the cost", "ms", float64(was.GetConvergenceP50Ms()), float64(is.GetConvergenceP50Ms()))
	v.compare("Convergence, 99 % of the cost", "ms", float64(was.GetConvergenceP99Ms()), float64(is.GetConvergenceP99Ms()))
	v.compare("Overshoot of the worst caller", "of the limit; 1 is exact", was.GetOvershoot(), is.GetOvershoot())
	v.compare("Overshoot of ordinary callers", "of the limit", was.GetOrdinaryOvershoot(), is.GetOrdinaryOvershoot())
	v.MostY = 1 // exact
	points := append([]*controlv1.PreviewPrediction{was, is}, p.GetCurve()...)
	for _, point := range points {
		v.MostX, v.MostY = max(v.MostX, load(point)), max(v.MostY, point.GetOvershoot())
	}
	v.Old, v.New = v.point(was), v.point(is)
	var line []string
	for _, point := range p.GetCurve() {
		at := v.point(point)
		if near := slices.IndexFunc(v.Curve, func(other curvePoint) bool {
			return other.Apart && !far(at, other)
		}); near >= 0 {
			v.Curve[near].Last = at.Interval
		} else {
			at.Apart = true
		}
		v.Curve = append(v.Curve, at)
		line = append(line, fmt.Sprintf("%d,%d", at.X, at.Y))
	}
	v.Line = strings.Join(line, " ")
	return v
}

// far reports whether two points can both have labels that do not overlap.
func far(a, b curvePoint) bool {
	const wide, high = 100, 18
	return a.X-b.X > wide || b.X-a.X > wide || a.Y-b.Y > high || b.Y-a.Y > high
}

// load returns the number of MySQL rows that a tuning causes per second.
func load(p *controlv1.PreviewPrediction) float64 {
	return p.GetRowsWrittenPerS() + p.GetRowsReadPerS()
}

func (v *previewView) point(p *controlv1.PreviewPrediction) curvePoint {
	const left, right, top, bottom = 50, 380, 15, 215
	at := curvePoint{X: left, Y: bottom, Interval: span(time.Duration(p.GetFeedIntervalMs()) * time.Millisecond),
		Load: load(p), Overshoot: p.GetOvershoot()}
	if v.MostX > 0 {
		at.X += int(load(p) / v.MostX * (right - left))
	}
	if v.MostY > 1 {
		at.Y -= int(max(0, p.GetOvershoot()-1) / (v.MostY - 1) * (bottom - top))
	}
	return at
}

func (v *previewView) compare(name, unit string, was, is float64) {
	c := comparison{Name: name, Unit: unit, Old: was, New: is}
	if most := max(was, is); most > 0 {
		c.OldAt, c.NewAt = int(300*was/most), int(300*is/most)
	}
	switch {
	case was == is:
		c.Words = "the same"
	case was > 0:
		c.Words = fmt.Sprintf("%s times", figure(is/was))
	}
	v.Rows = append(v.Rows, c)
}
