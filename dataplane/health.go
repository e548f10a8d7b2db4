package dataplane

import (
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Health is a snapshot of a node's own figures, as its heartbeat reports them. Counts start at 0 when the limiter is
// made, and only grow, except the counts whose comments say "at the moment". A zero time means never.
type Health struct {
	Allowed, Denied, Shadowed int64 // decisions
	Degraded                  int64 // of these: decisions that needed the origin's answer and did not get it

	Entries     int64     // in the table at the moment
	TableFull   int64     // first requests of keys that found the table full
	TableFullAt time.Time // time of the last of them

	PendingCost  int64 // accepted, and not confirmed by the origin at the moment
	DroppedCost  int64 // accepted, and did not reach the origin before its cell expired
	ReplayErrors int64
	ReplayedAt   time.Time // when all pending cost was last confirmed
	BreakersOpen int64     // shards of the origin that get no calls now, or only trial calls, or refuse writes

	// DecisionP99 is the 99th percentile of a sample of recent decisions made from memory: of the last half to whole
	// minute, or of all decisions without heartbeats. It is 0 with fewer than 100 samples. One of 256 requests is timed.
	// Batches and handles are not timed.
	DecisionP99 time.Duration

	// ActiveKeys have accepted cost in their current or previous cell. HotKeys are the active keys past half their
	// limits. SharedKeys are the hot keys that other regions use too, or -1 if the node cannot count them. All three are
	// measured from time to time, for windows that regions share.
	ActiveKeys, HotKeys, SharedKeys int64

	SettingsErrors  int64
	SettingsAt      time.Time // last settings read
	SettingsProblem string    // why the newest settings are not in force; "" if they are in force
	Trial           int64     // number of the trial of a tuning or of limits that the node runs; 0: none
	TuningHash      string    // tuning.Tuning.Hash of the tuning in force
	ResetAt         time.Time // time of the newest reset of a key in force, by the count store's clock
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
