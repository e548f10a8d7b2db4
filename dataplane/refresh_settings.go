package dataplane

import (
	"context"
	"time"
)

// RelayTuning is what the tuning in force means to a relay that runs beside a Limiter.
type RelayTuning struct {
	// shares of its limit: from which a count is told and stored, and by which it must have grown since
	Floor, Step       float64
	FeedInterval      time.Duration // between two rounds of telling and reading
	SettingsInterval  time.Duration // between two reads of settings
	MinGlobalDuration time.Duration // shortest window that regions share
}

// RelayTuning is from what operators have set, or the built-in default.
func (l *Limiter) RelayTuning() RelayTuning {
	t := &l.engine.rules.InForce().Tuning
	return RelayTuning{
		Floor: t.Floor, Step: t.Step, FeedInterval: t.FeedInterval.Std(), SettingsInterval: t.SettingsEvery(),
		MinGlobalDuration: t.MinGlobalDuration.Std(),
	}
}

// TuningChanged returns a channel that is closed when the tuning changes. Loops that read an
// interval of RelayTuning should wait for it beside their timers.
func (l *Limiter) TuningChanged() <-chan struct{} { return l.engine.rules.Changed() }

// RefreshSettings reads settings now, before Start or between two of its reads: for a source that knows when they
// change. An error names what is not in force; everything else is.
func (l *Limiter) RefreshSettings(ctx context.Context) error {
	if l.cfg.Settings == nil {
		return ErrNoSettings
	}
	if l.calls.IsStopped() {
		return ErrStopped
	}
	return l.engine.rules.Load(ctx)
}
