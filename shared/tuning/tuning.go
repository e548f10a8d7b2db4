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
	// Floor is the fraction of a limit from which a region tells others its count of a key,
	// 0 to 1. Below it others are told that the key is used, and the count once one of them
	// uses it, too. Counts are stored in MySQL from half of the limit on, or from the floor
	// if that is higher. Higher: less news; more that is lost with a region's origin and all
	// of its nodes at once (floor * limit a key).
	Floor float64 `json:"floor"`

	// Step sets how much a count must grow before it is stored durably again: by 25 * Step of its
	// limit, so at most 1/(25 * Step) times for each cell and region. Step is 0 to 1; 0 stores every
	// growth. A higher value writes fewer rows, but a region that loses
	// both its Redis and its news restores less. Step does not affect the counts that other regions
	// receive.
	Step float64 `json:"step"`

	// FeedInterval is the time in which a region's relay tells other regions what has
	// changed, once, and reads once what they tell, 50 ms to 1 min. Lower: sooner told,
	// more statements a second (a region and shard, not a node).
	FeedInterval Duration `json:"feed_interval_ms"`

	// SettingsInterval is the time between two heartbeats of a node, and between two reads of the
	// settings by a node or relay: 100 ms to 10 min, before jitter. In a document that an operator
	// writes, the maximum is SettingsIntervalMax. With a lower value, overrides, resets and tunings
	// take effect sooner (within two intervals), at the cost of more statements per second and
	// region.
	SettingsInterval Duration `json:"settings_interval_ms"`

	// Jitter spreads each node's settings interval and replay tick by up to this fraction
	// either way, 0 to 0.5, so that nodes do not knock together.
	Jitter float64 `json:"jitter"`

	// MinGlobalDuration is the shortest window that regions share: 1 s to 24 h. Each region limits
	// shorter windows by itself, because they end before other regions' counts arrive. It must be
	// at least three times FeedInterval and twice ReplayTick.
	MinGlobalDuration Duration `json:"min_global_duration_ms"`

	// ReplayTick is the time between two sends of accepted cost to the region's
	// origin, 10 ms to 10 s. A node that is killed loses the cost that it accepted since its last send
	// arrived: as a rule one replay tick, at most two (0.24 s with the defaults) while the origin answers.
	// Lower: fresher counts, more commands a second.
	ReplayTick Duration `json:"replay_tick_ms"`

	// FreshFor is how long decisions about a key may go without an answer of the origin, 100 ms to
	// 10 min. After that, the next decision asks the origin first. It must be at least ReplayTick.
	FreshFor Duration `json:"fresh_for_ms"`

	// StrictFor is how long after a denial a key's decisions ask the origin first:
	// 0 stands for one duration of the key; otherwise up to 24 h.
	StrictFor Duration `json:"strict_for_ms"`
}

// Default is what a fleet runs until somebody rolls out something else.
func Default() Tuning {
	return Tuning{
		Floor:             0.1,
		Step:              0.01,
		FeedInterval:      Duration(200 * time.Millisecond),
		SettingsInterval:  Duration(5 * time.Second),
		Jitter:            0.2,
		MinGlobalDuration: Duration(2 * time.Second),
		ReplayTick:        Duration(100 * time.Millisecond),
		FreshFor:          Duration(5 * time.Second),
		StrictFor:         0,
	}
}

// RFC is the tuning of the design that Weir grew out of, for comparison: half the limit
// before others are told, news every ten seconds, and so windows of a minute and more.
func RFC() Tuning {
	t := Default()
	t.Floor, t.Step = 0.5, 0
	t.FeedInterval, t.SettingsInterval = Duration(10*time.Second), Duration(10*time.Second)
	t.MinGlobalDuration = Duration(time.Minute)
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
			bad = append(bad, fmt.Errorf("%w: %s is %d (%d to %d)", ErrInvalid, field, d.Milliseconds(), least.Milliseconds(),
				most.Milliseconds()))
		}
	}
	fraction("floor", t.Floor, 1)
	fraction("step", t.Step, 1)
	fraction("jitter", t.Jitter, 0.5)
	span("feed_interval_ms", t.FeedInterval, 50*time.Millisecond, time.Minute)
	span("settings_interval_ms", t.SettingsInterval, 100*time.Millisecond, 10*time.Minute)
	span("min_global_duration_ms", t.MinGlobalDuration, time.Second, 24*time.Hour)
	span("replay_tick_ms", t.ReplayTick, 10*time.Millisecond, 10*time.Second)
	span("fresh_for_ms", t.FreshFor, 100*time.Millisecond, 10*time.Minute)
	span("strict_for_ms", t.StrictFor, 0, 24*time.Hour)
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
