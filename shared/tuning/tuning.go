// Package tuning defines the tuning of a fleet's data planes, which a rollout changes: the fields, their units, bounds
// and defaults, and a document form for all of them.
//
// Settings that must be equal on every node of a region are tuning, and come from the database. Settings of a single
// node, such as addresses and secrets, are configuration. A document is validated as a whole and applied as a whole.
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

// Tuning is a complete document. The zero value is not valid: start from Default, and change fields. Durations are
// written as milliseconds in JSON (`…_ms`).
type Tuning struct {
	// Floor is the fraction of a limit from which a region publishes its count of a key to other regions: 0 to 1, 0.1 by
	// default. Below it a region only publishes that the key is used, and its count once another region uses the key too.
	// Counts are stored in MySQL from half of the limit on, or from the floor if that is higher. A higher value publishes
	// less, but more is lost if a region loses its origin and all of its nodes at once: at most floor * limit for each
	// key. For example, choose 0.5 if most keys are used in a single region.
	Floor float64 `json:"floor"`

	// Step sets how much a count must grow before it is stored durably again: by 25 * Step of its limit, so at most 1/(25
	// * Step) times for each cell and region. Step is 0 to 1, 0.01 by default; 0 stores every growth. For example, with
	// 0.01 a count with a limit of 1,000 is stored after each growth of 250. A higher value writes fewer rows, but a
	// region that loses both its Redis and its rows of the change feed restores less. Step does not affect the counts that
	// other regions receive.
	Step float64 `json:"step"`

	// FeedInterval is the time between two rounds of a region's relay: 50 ms to 1 min, 200 ms by default. In each round it
	// publishes its changes once, and reads other regions' changes once. With a lower value counts arrive sooner, at the
	// cost of more statements a second for each region and shard. The number of nodes does not matter.
	FeedInterval Duration `json:"feed_interval_ms"`

	// SettingsInterval is the time between two heartbeats of a node, and between two reads of the settings by a node or
	// relay: 100 ms to 10 min before jitter, 5 s by default. In a document that an operator writes, the maximum is
	// SettingsIntervalMax. With a lower value, overrides, resets and tunings take effect sooner (within two intervals), at
	// the cost of more statements per second and region.
	SettingsInterval Duration `json:"settings_interval_ms"`

	// Jitter spreads each node's settings interval and replay tick by up to this fraction either way: 0 to 0.5, 0.2 by
	// default. So nodes do not all call at the same time.
	Jitter float64 `json:"jitter"`

	// MinGlobalDuration is the shortest window that regions share: 1 s to 24 h, 2 s by default. Each region limits shorter
	// windows by itself, because they end before other regions' counts arrive. It must be at least three times
	// FeedInterval and twice ReplayTick.
	MinGlobalDuration Duration `json:"min_global_duration_ms"`

	// ReplayTick is the time between two sends of accepted cost to the region's origin: 10 ms to 10 s, 100 ms by default.
	// A node that is killed loses the cost that it accepted since its last send arrived: as a rule one replay tick, at
	// most two (0.24 s with the defaults) while the origin answers. A lower value makes counts fresher, at the cost of
	// more commands a second.
	ReplayTick Duration `json:"replay_tick_ms"`

	// FreshFor is how long decisions about a key may go without an answer of the origin: 100 ms to 10 min, 5 s by default.
	// After that, the next decision reads the origin first. It must be at least ReplayTick.
	FreshFor Duration `json:"fresh_for_ms"`

	// StrictFor is how long after a denial a key's decisions read the origin first: up to 24 h. The default, 0, stands for
	// one duration of the key.
	StrictFor Duration `json:"strict_for_ms"`
}

// Default returns the tuning that a fleet runs until an operator rolls out another.
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

// RFC returns the tuning of the design that Weir grew out of, for comparison: counts are published from half the limit
// on and every ten seconds, and so only windows of a minute and more are shared.
func RFC() Tuning {
	t := Default()
	t.Floor, t.Step = 0.5, 0
	t.FeedInterval, t.SettingsInterval = Duration(10*time.Second), Duration(10*time.Second)
	t.MinGlobalDuration = Duration(time.Minute)
	return t
}

// Preset returns a named document: "default" or "rfc".
func Preset(name string) (Tuning, error) {
	switch name {
	case "default":
		return Default(), nil
	case "rfc":
		return RFC(), nil
	}
	return Tuning{}, fmt.Errorf("%w: preset %q is unknown (default, rfc)", ErrInvalid, name)
}

// Validate returns all fields outside their bounds, joined into one error.
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

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String prints d as time.Duration does.
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
