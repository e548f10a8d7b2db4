package dataplane

import (
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Health is a snapshot of a node's own figures, as its heartbeat reports them. Counts only grow, from 0 when the
// limiter is made, unless they are said to be of a moment; zero times are never.
type Health struct {
	Allowed, Denied, Shadowed int64 // decisions
	Degraded                  int64 // of these: made without the origin's answer that they wanted

	Entries     int64     // keys held, at the moment
	TableFull   int64     // first contacts that found no room
	TableFullAt time.Time // when the last one did

	PendingCost  int64 // accepted, and not confirmed by the origin at the moment
	DroppedCost  int64 // accepted, and never reached the origin
	ReplayErrors int64
	ReplayedAt   time.Time // when everything pending was last confirmed
	BreakersOpen int64     // shards of the origin that are not called now, are called only as a trial, or refuse writes

	// DecisionP99 is the 99th percentile of a sample of the decisions of the last half to whole minute that were
	// made from memory, or of all without heartbeats; 0 of fewer than 100 samples. One of 256 requests is timed, and
	// neither batches nor handles are.
	DecisionP99 time.Duration

	// Keys with accepted cost in their current or previous cell, of them those past half their limits, and of those
	// the ones that other regions use too, -1 where that is not known. Measured now and then, of windows that
	// regions share.
	ActiveKeys, HotKeys, SharedKeys int64

	SettingsErrors  int64
	SettingsAt      time.Time // last settings read
	SettingsProblem string    // why the newest settings are not in force; "" if they are
	Trial           int64     // number of the trial whose tuning is in force; 0: the stored one is
	TuningHash      string    // tuning.Tuning.Hash of the tuning in force
	ResetAt         time.Time // when the newest reset of a key that is in force was made, by the count store's clock
}

func healthOf(f *heartbeat.Health) Health {
	h := Health{
		Allowed: f.AllowedTotal, Denied: f.DeniedTotal, Shadowed: f.ShadowedTotal, Degraded: f.DegradedTotal,
		Entries: f.Entries, TableFull: f.TableFull, TableFullAt: moment(f.TableFullAtMs),
		PendingCost: f.PendingCost, DroppedCost: f.DroppedCost, ReplayErrors: f.ReplayErrors,
		ReplayedAt: moment(f.ReplayedAtMs), BreakersOpen: f.BreakersOpen,
		DecisionP99: time.Duration(f.DecisionP99Us * float64(time.Microsecond)),
		ActiveKeys:  f.ActiveKeys, HotKeys: f.HotKeys, SharedKeys: -1,
		SettingsErrors: f.SettingsErrors, SettingsAt: moment(f.SettingsAtMs), SettingsProblem: f.SettingsProblem,
		Trial: f.Trial, TuningHash: f.TuningHash, ResetAt: moment(f.ResetAtMs),
	}
	if f.SharedKeys != nil {
		h.SharedKeys = *f.SharedKeys
	}
	return h
}
