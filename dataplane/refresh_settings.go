package dataplane

import (
	"context"
	"time"
)

// RelayTuning is the part of the tuning in force that a relay next to a Limiter uses.
type RelayTuning struct {
	// Floor and Step are fractions of a limit. The relay publishes a count when it reaches Floor, and again each time
	// that it has grown by Step.
	Floor, Step       float64
	FeedInterval      time.Duration // between two rounds of publishing and reading
	SettingsInterval  time.Duration // between two reads of settings
	MinGlobalDuration time.Duration // shortest window that regions share
}

// RelayTuning returns the part of the tuning in force that a relay uses: what operators have set, or the built-in
// default.
func (l *Limiter) RelayTuning() RelayTuning {
	t := &l.engine.rules.InForce().Tuning
	return RelayTuning{
		Floor: t.Floor, Step: t.Step, FeedInterval: t.FeedInterval.Std(), SettingsInterval: t.SettingsEvery(),
		MinGlobalDuration: t.MinGlobalDuration.Std(),
	}
}

// TuningChanged returns a channel that is closed when the tuning changes. Loops that read an interval of RelayTuning
// should wait for it together with their timers.
func (l *Limiter) TuningChanged() <-chan struct{} { return l.engine.rules.Changed() }

// RefreshSettings reads settings at once, before Start or between two regular reads. Use it if your source reports
// changes: for example, call it when a watched file was written. If a part of the settings is invalid, the error
// names that part, and all other parts are in force.
func (l *Limiter) RefreshSettings(ctx context.Context) error {
	if l.cfg.Settings == nil {
		return ErrNoSettings
	}
	if l.calls.IsStopped() {
		return ErrStopped
	}
	return l.engine.rules.Load(ctx)
}
