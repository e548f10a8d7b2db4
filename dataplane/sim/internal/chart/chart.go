// Package chart draws curves as text.
package chart

import "github.com/guptarohit/asciigraph"

// The size of a chart, in characters.
const (
	width  = 60
	height = 10
)

// Point is a measured point of a curve.
type Point struct{ X, Y float64 }

// Draw draws straight lines between points, which must be in the order of X. The vertical axis begins at 0.
func Draw(points []Point) string {
	return asciigraph.Plot(sampled(points, width), asciigraph.Height(height), asciigraph.LowerBound(0),
		asciigraph.XAxisRange(points[0].X, points[len(points)-1].X))
}

// sampled returns the curve at n places between the first and the last X.
func sampled(points []Point, n int) []float64 {
	from, to := points[0].X, points[len(points)-1].X
	values, at := make([]float64, n), 0
	for i := range values {
		place := from + (to-from)*float64(i)/float64(n-1)
		for at < len(points)-2 && points[at+1].X < place {
			at++
		}
		a, b := points[at], points[min(at+1, len(points)-1)]
		values[i] = a.Y
		if b.X > a.X {
			values[i] += (b.Y - a.Y) * (place - a.X) / (b.X - a.X)
		}
	}
	return values
}
