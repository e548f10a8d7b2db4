package console

import (
	"strings"
	"testing"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// The curve of a preview names every interval once, and no name is on another or off the
// drawing.
func TestTheCurveNamesItsIntervals(t *testing.T) {
	at := func(ms int64, load, overshoot float64) *controlv1.PreviewPrediction {
		return &controlv1.PreviewPrediction{FeedIntervalMs: ms, RowsReadPerS: load, Overshoot: overshoot}
	}
	for _, tc := range []struct {
		name   string
		curve  []*controlv1.PreviewPrediction
		labels string
	}{
		{"all cost the same", []*controlv1.PreviewPrediction{at(50, 6, 1.1), at(200, 6, 1.1), at(800, 6, 1.1)}, "50 ms–800 ms"},
		{"far from each other", []*controlv1.PreviewPrediction{at(50, 100, 1), at(200, 50, 1.5), at(800, 0, 2)}, "50 ms 200 ms 800 ms"},
		{"names are wide", []*controlv1.PreviewPrediction{at(50, 100, 1), at(200, 75, 1), at(1000, 50, 1), at(5000, 0, 1)}, "50 ms–200 ms 1 s 5 s"},
		{"two are near", []*controlv1.PreviewPrediction{at(50, 100, 1), at(100, 98, 1), at(800, 0, 2)}, "50 ms–100 ms 800 ms"},
	} {
		v := describePreview(&controlv1.PreviewRolloutResponse{Old: tc.curve[0], New: tc.curve[0], Curve: tc.curve})
		var labels []string
		for _, p := range v.Curve {
			if p.Apart {
				labels = append(labels, p.Label())
			}
			if y := p.LabelY(); y < 25 || y > 212 {
				t.Errorf("%s: interval %s is named at %d, among the words of the axes", tc.name, p.Interval, y)
			}
		}
		if got := strings.Join(labels, " "); got != tc.labels {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.labels)
		}
	}
}
