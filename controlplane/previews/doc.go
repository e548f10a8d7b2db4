// Package previews predicts what tunings would do to a fleet, from the shape that its nodes report. A main hands in who
// can simulate: see [Previewer].
package previews
