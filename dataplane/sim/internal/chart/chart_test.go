package chart

import (
	"slices"
	"testing"
)

// The curves pass through the points, and are straight between them.
func TestCurvesPassThroughTheirPoints(t *testing.T) {
	points := []Point{{X: 0, Y: 1}, {X: 2, Y: 3}, {X: 4, Y: 0}}
	if got, want := sampled(points, 5), []float64{1, 2, 3, 1.5, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := sampled(points[:1], 2); !slices.Equal(got, []float64{1, 1}) {
		t.Errorf("one point is drawn as %v", got)
	}
}
