// Package window computes sliding windows over fixed cells: pure functions of integers, without clock, state or I/O.
//
// Time is cut into cells of equal duration; cell number Sequence(t, d) holds the millisecond t. A request at t is
// judged against the count of its own cell plus the share of the previous cell that a window of length d ending at t
// still covers:
//
//	current   previous              t
//	├─────────┼─────────────────────┤
//	   s-1              s
//	effective = count(s) + floor(count(s-1) * Weight(t, d)) + cost
//	allowed   ⇔ effective <= limit
//
// The weight is a ratio of two integers, (d - t mod d)/d, so all of it is
// done exactly, in 128-bit integers, and never in floating point: the retry time is
// exact to the millisecond. Weight gives the ratio as a float, for people.
//
// The previous cell's carried cost counts in whole units. So a caller with constant requests gets a small limit in
// full. If fractions counted, a limit of 1 a minute, for example, would let pass one request in two minutes.
//
// As in every two-cell window, the precision is limited: the arithmetic assumes that the previous cell's requests are
// spread evenly over it.
package window

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a key and of the quantities judged against it.
const (
	WorkspaceBytesMax  = 191 // column workspace_id, counted in bytes
	NamespaceBytesMax  = 255 // column namespace, counted in bytes
	IdentifierBytesMax = 255 // column identifier, counted in bytes

	DurationMin = time.Second
	DurationMax = 366 * 24 * time.Hour

	// LimitMax bounds limits and costs. It is the largest integer that every
	// JSON reader holds exactly (2^53 - 1); sums of a few regions' counts stay far
	// below 2^55, the width of a counter.
	LimitMax = 1<<53 - 1
)

// ErrInvalid is wrapped by every error of this package: the caller's input is at
// fault, and the message names the field and its bound.
var ErrInvalid = errors.New("invalid")

// Key identifies a limited thing, for example an API client of a workspace. The limit and the cost are not part of it:
// two requests with different limits on the same key share one count.
type Key struct {
	Workspace  string
	Namespace  string
	Identifier string
	Duration   time.Duration // whole milliseconds, DurationMin to DurationMax
	Mode       Mode          // of the namespace
	Generation Generation    // 0 unless an operator has reset the key; see there
}

// DurationMs returns the key's duration in milliseconds.
func (k Key) DurationMs() int64 { return k.Duration.Milliseconds() }

// Validate reports the first field outside its bounds, as an error that wraps
// ErrInvalid. Names may hold any bytes, NUL and invalid UTF-8 included, and are
// compared as bytes; only emptiness and length are refused.
func (k Key) Validate() error {
	switch {
	case k.Workspace == "":
		return fmt.Errorf("%w: workspace is empty (1 to %d bytes)", ErrInvalid, WorkspaceBytesMax)
	case len(k.Workspace) > WorkspaceBytesMax:
		return tooLong("workspace", k.Workspace, WorkspaceBytesMax)
	case k.Namespace == "":
		return fmt.Errorf("%w: namespace is empty (1 to %d bytes)", ErrInvalid, NamespaceBytesMax)
	case len(k.Namespace) > NamespaceBytesMax:
		return tooLong("namespace", k.Namespace, NamespaceBytesMax)
	case k.Identifier == "":
		return fmt.Errorf("%w: identifier is empty (1 to %d bytes)", ErrInvalid, IdentifierBytesMax)
	case len(k.Identifier) > IdentifierBytesMax:
		return tooLong("identifier", k.Identifier, IdentifierBytesMax)
	case k.Duration < DurationMin || k.Duration > DurationMax:
		return fmt.Errorf("%w: duration is %v (%v to %v)", ErrInvalid, k.Duration, DurationMin, DurationMax)
	case k.Duration%time.Millisecond != 0:
		return fmt.Errorf("%w: duration is %v (whole milliseconds only)", ErrInvalid, k.Duration)
	case k.Mode >= Modes:
		return fmt.Errorf("%w: mode is %d (0 to %d)", ErrInvalid, k.Mode, Modes-1)
	case k.Generation > GenerationMax:
		return fmt.Errorf("%w: generation is %d (0 to %d)", ErrInvalid, k.Generation, GenerationMax)
	}
	return nil
}

func tooLong(field, value string, bytesMax int) error {
	hint := ""
	if n := utf8.RuneCountInString(value); n != len(value) && n <= bytesMax {
		hint = ", counted as bytes and not as characters"
	}
	return fmt.Errorf("%w: %s is %d bytes long (1 to %d%s)", ErrInvalid, field, len(value), bytesMax, hint)
}

// String returns a text for logs and errors of operators' tools. Names are quoted, so that no name can pretend to be
// another.
func (k Key) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q/%q/%q/%v", k.Workspace, k.Namespace, k.Identifier, k.Duration)
	if k.Mode != Exact {
		b.WriteByte('/')
		b.WriteString(k.Mode.String())
	}
	if k.Generation != 0 {
		fmt.Fprintf(&b, "/reset %d", k.Generation)
	}
	return b.String()
}

// Cell is a fixed window of a key.
type Cell struct {
	Key
	Sequence int64
}

// sequenceMin is the number of a cell that expires at Unix time 0.
const sequenceMin = -2

// Validate returns an error that wraps ErrInvalid if a field is outside its bounds: a field of the
// key, or a Sequence whose cell expires before 1970 or after the last millisecond that an int64 can
// hold. Call it on every cell that another process has written.
func (c Cell) Validate() error {
	if err := c.Key.Validate(); err != nil {
		return err
	}
	if most := math.MaxInt64/c.DurationMs() + sequenceMin; c.Sequence < sequenceMin || c.Sequence > most {
		return fmt.Errorf("%w: sequence is %d (%d to %d)", ErrInvalid, c.Sequence, sequenceMin, most)
	}
	return nil
}

// ExpiresAtMs returns the Unix millisecond from which the cell can influence no decision.
func (c Cell) ExpiresAtMs() int64 { return ExpiresAt(c.Sequence, c.DurationMs()) }

// Compare orders cells as the primary key of their table does: by bytes of
// workspace, namespace, identifier, then generation, mode, duration and sequence. Every writer
// uses this order, so that writers of the same rows never wait in a circle.
func (c Cell) Compare(d Cell) int {
	if n := strings.Compare(c.Workspace, d.Workspace); n != 0 {
		return n
	}
	if n := strings.Compare(c.Namespace, d.Namespace); n != 0 {
		return n
	}
	if n := strings.Compare(c.Identifier, d.Identifier); n != 0 {
		return n
	}
	switch {
	case c.Generation != d.Generation && c.Generation < d.Generation:
		return -1
	case c.Generation != d.Generation:
		return 1
	case c.Mode != d.Mode && c.Mode < d.Mode:
		return -1
	case c.Mode != d.Mode:
		return 1
	case c.Duration != d.Duration && c.Duration < d.Duration:
		return -1
	case c.Duration != d.Duration:
		return 1
	case c.Sequence < d.Sequence:
		return -1
	case c.Sequence > d.Sequence:
		return 1
	}
	return 0
}

// Sequence numbers the cell that holds the Unix millisecond t: floor(t / duration),
// also for times before 1970.
func Sequence(tMs, durationMs int64) int64 {
	q := tMs / durationMs
	if tMs%durationMs < 0 {
		q--
	}
	return q
}

// Start returns the first Unix millisecond of a cell.
func Start(sequence, durationMs int64) int64 { return sequence * durationMs }

// ExpiresAt returns the Unix millisecond from which a cell can influence no decision: the end of the window that
// follows it.
func ExpiresAt(sequence, durationMs int64) int64 { return (sequence + 2) * durationMs }

// Uncovered returns how many milliseconds of the previous cell a window ending at t still covers, 1 to durationMs.
// Divided by durationMs it is the Weight.
func Uncovered(tMs, durationMs int64) int64 {
	return durationMs - (tMs - Sequence(tMs, durationMs)*durationMs)
}

// Weight returns the share of the previous cell that counts at t, in (0, 1].
func Weight(tMs, durationMs int64) float64 {
	return float64(Uncovered(tMs, durationMs)) / float64(durationMs)
}

// Effective returns the number that must not exceed the limit.
func Effective(current, previous, cost, tMs, durationMs int64) int64 {
	return current + Carried(previous, Uncovered(tMs, durationMs), durationMs) + cost
}

// Fits reports whether current + Carried(previous) + cost <= limit, without a division.
// All counts must be >= 0 and below 2^62, limit at most LimitMax; 0 <= uncoveredMs <= durationMs.
func Fits(current, previous, cost, limit, uncoveredMs, durationMs int64) bool {
	room := limit - current - cost
	if room < 0 {
		return false
	}
	if previous <= room { // weight <= 1: no need for the product
		return true
	}
	// floor(previous * uncovered / duration) <= room ⇔ previous * uncovered < (room + 1) * duration
	ph, pl := bits.Mul64(uint64(previous), uint64(uncoveredMs))
	rh, rl := bits.Mul64(uint64(room+1), uint64(durationMs))
	return ph < rh || ph == rh && pl < rl
}

// Carried returns floor(previous * uncoveredMs / durationMs): the whole units that the previous cell still holds.
func Carried(previous, uncoveredMs, durationMs int64) int64 {
	hi, lo := bits.Mul64(uint64(previous), uint64(uncoveredMs))
	q, _ := bits.Div64(hi, lo, uint64(durationMs)) // uncovered <= duration: the quotient fits
	return int64(q)
}

// Remaining returns the largest cost that Fits, never negative. Callers get it as their remaining budget.
func Remaining(current, previous, limit, uncoveredMs, durationMs int64) int64 {
	return max(0, limit-current-Carried(previous, uncoveredMs, durationMs))
}

// PassesAt returns the earliest Unix millisecond >= tMs at which Fits holds for cost, if nothing else is counted
// meanwhile. ok is false if cost > limit, because then it never holds. PassesAt examines this cell, the next cell (in
// which current has become previous), and the cell after that (in which both are gone).
func PassesAt(current, previous, cost, limit, tMs, durationMs int64) (atMs int64, ok bool) {
	return PassesAfter(Start(Sequence(tMs, durationMs), durationMs), current, previous, cost, limit, tMs, durationMs)
}

// PassesAfter is PassesAt for callers that have the start of the cell of tMs already: it saves a division.
func PassesAfter(startMs, current, previous, cost, limit, tMs, durationMs int64) (atMs int64, ok bool) {
	if cost > limit {
		return 0, false
	}
	if elapsed, ok := passesWithin(previous, limit-current-cost, durationMs); ok {
		return max(tMs, startMs+elapsed), true
	}
	if elapsed, ok := passesWithin(current, limit-cost, durationMs); ok {
		return startMs + durationMs + elapsed, true
	}
	return startMs + 2*durationMs, true
}

// passesWithin solves previous*(duration-elapsed) < (room+1)*duration for the least
// elapsed in [0, duration): elapsed = duration - floor(((room+1)*duration - 1)/previous).
func passesWithin(previous, room, durationMs int64) (elapsedMs int64, ok bool) {
	if room < 0 {
		return 0, false
	}
	if previous <= room {
		return 0, true
	}
	hi, lo := bits.Mul64(uint64(room+1), uint64(durationMs))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(previous)) // room+1 <= previous: the quotient is < duration
	if q == 0 {
		return 0, false
	}
	return durationMs - int64(q), true
}
