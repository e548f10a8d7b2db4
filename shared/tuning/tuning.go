// Package tuning is what a rollout can change about a fleet's data planes: the
// fields, their units, bounds and defaults, and one document form for all of them.
//
// Whatever must be equal on every node of a region is tuning and comes from the
// database; whatever is a node's own (addresses, secrets) is configuration. A
// document is validated as a whole and applied as a whole.
package tuning

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// DocumentBytesMax bounds a stored document.
const DocumentBytesMax = 16 << 10

// ErrInvalid is wrapped by every error about a document; the message names the
// field and its bound.
var ErrInvalid = errors.New("invalid tuning")

// Tuning is one complete document. The zero value is not valid; start from
// Default. Durations are written as milliseconds in JSON (`…_ms`).
type Tuning struct {
	// Floor is the fraction of a limit that a region's count must reach before
	// the region publishes it to the others, 0 to 1. Higher: fewer rows in MySQL,
	// more that a caller who spreads evenly can take unseen (regions * floor * limit).
	Floor float64 `json:"floor"`

	// Step is the fraction of a limit by which a count must have grown since it
	// was last published before it is published again, 0 to 1. At most 1/step
	// writes a cell and node, however short the intervals. Higher: fewer rows,
	// staler counts elsewhere (by up to step*limit a region).
	Step float64 `json:"step"`

	// SlowInterval is the time between two publications and two imports of counts,
	// 100 ms to 10 min, before jitter.
	SlowInterval Duration `json:"slow_interval_ms"`

	// FastInterval replaces SlowInterval for keys near their limit; at most SlowInterval.
	FastInterval Duration `json:"fast_interval_ms"`

	// FullInterval is the time between two imports that read every count instead of
	// what has changed, 100 ms to 24 h, before jitter. They find what no region was told
	// of: rows of a publisher that died at the wrong moment, and counts of the own region
	// that its origin has lost. Each costs as many rows as there are, a node.
	FullInterval Duration `json:"full_interval_ms"`

	// DigestInterval is the time between two digests in which a node tells other regions
	// which keys it sees at all, 0 or 100 ms to 10 min, before jitter. With all regions'
	// digests at hand only keys that several of them use need to be told of at once. 0:
	// no digests, every count past the floor is told to everybody.
	DigestInterval Duration `json:"digest_interval_ms"`

	// Jitter spreads each node's intervals by up to this fraction either way,
	// 0 to 0.5, so that nodes do not knock together.
	Jitter float64 `json:"jitter"`

	// MinGlobalDuration is the shortest window that is shared across regions,
	// 1 s to 24 h. Shorter windows are over before the news arrives.
	MinGlobalDuration Duration `json:"min_global_duration_ms"`

	// ReplayTick is the time between two sends of accepted cost to the region's
	// origin, 10 ms to 10 s. What a killed node loses is at most one tick. Lower:
	// fresher counts, more commands a second.
	ReplayTick Duration `json:"replay_tick_ms"`

	// FreshFor is how long a key may be decided without hearing from the origin
	// before a decision asks it first, 100 ms to 10 min.
	FreshFor Duration `json:"fresh_for_ms"`

	// StrictFor is how long after a denial a key's decisions ask the origin first:
	// 0 stands for one duration of the key; otherwise up to 24 h.
	StrictFor Duration `json:"strict_for_ms"`
}

// Default is what a fleet runs until somebody rolls out something else.
func Default() Tuning {
	return Tuning{
		Floor:             0.2,
		Step:              0.05,
		SlowInterval:      Duration(5 * time.Second),
		FastInterval:      Duration(time.Second),
		FullInterval:      Duration(10 * time.Minute),
		DigestInterval:    Duration(5 * time.Second),
		Jitter:            0.2,
		MinGlobalDuration: Duration(time.Minute),
		ReplayTick:        Duration(100 * time.Millisecond),
		FreshFor:          Duration(5 * time.Second),
		StrictFor:         0,
	}
}

// RFC is the tuning of the design that Weir grew out of, for comparison: half the
// limit unseen, ten-second intervals, every growth published, everything read each time.
func RFC() Tuning {
	t := Default()
	t.Floor, t.Step = 0.5, 0
	t.SlowInterval, t.FastInterval = Duration(10*time.Second), Duration(10*time.Second)
	t.FullInterval, t.DigestInterval = Duration(10*time.Second), 0
	return t
}

// Preset looks a named document up: "default" or "rfc".
func Preset(name string) (Tuning, error) {
	switch name {
	case "default":
		return Default(), nil
	case "rfc":
		return RFC(), nil
	}
	return Tuning{}, fmt.Errorf("%w: preset %q is unknown (default, rfc)", ErrInvalid, name)
}

// Validate reports every field outside its bounds, joined into one error.
func (t Tuning) Validate() error {
	var bad []error
	fraction := func(field string, v, most float64) {
		if !(v >= 0 && v <= most) { // also refuses NaN
			bad = append(bad, fmt.Errorf("%w: %s is %v (0 to %v)", ErrInvalid, field, v, most))
		}
	}
	span := func(field string, v Duration, least, most time.Duration) {
		if d := time.Duration(v); d < least || d > most {
			bad = append(bad, fmt.Errorf("%w: %s is %d (%d to %d)", ErrInvalid, field, d.Milliseconds(), least.Milliseconds(), most.Milliseconds()))
		}
	}
	fraction("floor", t.Floor, 1)
	fraction("step", t.Step, 1)
	fraction("jitter", t.Jitter, 0.5)
	span("slow_interval_ms", t.SlowInterval, 100*time.Millisecond, 10*time.Minute)
	span("fast_interval_ms", t.FastInterval, 100*time.Millisecond, 10*time.Minute)
	span("full_interval_ms", t.FullInterval, 100*time.Millisecond, 24*time.Hour)
	if t.DigestInterval != 0 {
		span("digest_interval_ms", t.DigestInterval, 100*time.Millisecond, 10*time.Minute)
	}
	span("min_global_duration_ms", t.MinGlobalDuration, time.Second, 24*time.Hour)
	span("replay_tick_ms", t.ReplayTick, 10*time.Millisecond, 10*time.Second)
	span("fresh_for_ms", t.FreshFor, 100*time.Millisecond, 10*time.Minute)
	span("strict_for_ms", t.StrictFor, 0, 24*time.Hour)
	if t.FastInterval > t.SlowInterval {
		bad = append(bad, fmt.Errorf("%w: fast_interval_ms is %d, more than slow_interval_ms, %d", ErrInvalid,
			time.Duration(t.FastInterval).Milliseconds(), time.Duration(t.SlowInterval).Milliseconds()))
	}
	return errors.Join(bad...)
}

// Duration is a time.Duration that is whole milliseconds in JSON.
type Duration time.Duration

// Std is the standard library's form.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the standard library's.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes whole milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).Milliseconds())
}

// UnmarshalJSON reads whole milliseconds; fractions and text are errors, and so
// is a number of milliseconds that no time.Duration can hold.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var ms int64
	if err := json.Unmarshal(b, &ms); err != nil {
		return fmt.Errorf("%s is not a whole number of milliseconds", b)
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if ms > most || ms < -most {
		return fmt.Errorf("%d ms is out of range", ms)
	}
	*d = Duration(time.Duration(ms) * time.Millisecond)
	return nil
}
