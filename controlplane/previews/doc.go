// Package previews predicts the effect of tunings on a fleet, from the shape that its nodes report. A main provides the
// simulator: see [Previewer].
package previews
