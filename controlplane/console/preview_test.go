package console

import (
	"strings"
	"testing"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// The curve of a preview names every floor once, and no name is on another or off the
// drawing.
func TestTheCurveNamesItsFloors(t *testing.T) {
	at := func(floor, load, overshoot float64) *controlv1.PreviewPrediction {
		return &controlv1.PreviewPrediction{Floor: floor, RowsReadPerS: load, Overshoot: overshoot}
	}
	for _, tc := range []struct {
		name   string
		curve  []*controlv1.PreviewPrediction
		labels string
	}{
		{"all floors cost the same", []*controlv1.PreviewPrediction{at(0.02, 6, 1.1), at(0.2, 6, 1.1), at(0.8, 6, 1.1)}, "0.02–0.8"},
		{"far from each other", []*controlv1.PreviewPrediction{at(0.02, 100, 1), at(0.2, 50, 1.5), at(0.8, 0, 2)}, "0.02 0.2 0.8"},
		{"two are near", []*controlv1.PreviewPrediction{at(0.02, 100, 1), at(0.05, 98, 1), at(0.8, 0, 2)}, "0.02–0.05 0.8"},
	} {
		v := describePreview(&controlv1.PreviewRolloutResponse{Old: tc.curve[0], New: tc.curve[0], Curve: tc.curve})
		var labels []string
		for _, p := range v.Curve {
			if p.Apart {
				labels = append(labels, p.Label())
			}
			if y := p.LabelY(); y < 25 || y > 212 {
				t.Errorf("%s: floor %s is named at %d, among the words of the axes", tc.name, p.Floor, y)
			}
		}
		if got := strings.Join(labels, " "); got != tc.labels {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.labels)
		}
	}
}
