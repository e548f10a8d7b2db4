// Package brief formats values for people in little space.
package brief

import (
	"context"
	"errors"
	"math"
	"net"
	"strconv"
)

const (
	shownRunes    = 60 // of a name: a thousand bytes of escapes would explain nothing
	errorBytesMax = 500
)

// Name shortens a long name.
func Name(name string) string {
	n := 0
	for i := range name {
		if n++; n > shownRunes {
			return name[:i] + "…"
		}
	}
	return name
}

// Amount formats a number without an exponent, with at most two decimals.
func Amount(x float64) string { return strconv.FormatFloat(math.Round(100*x)/100, 'f', -1, 64) }

// Error bounds an error for a heartbeat; an address it may hold is no secret,
// but a network error's own words are enough.
func Error(err error) string {
	var op *net.OpError
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer in time"
	case errors.As(err, &op):
		text = op.Op + ": " + op.Err.Error()
	}
	return text[:min(len(text), errorBytesMax)]
}
