package tuning

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// HeartbeatAge returns the largest age in the database of the newest heartbeat of a live node with
// tuning t, if no call fails. Between two heartbeats of a node, and between two rounds of the relay
// that stores them, there is at most one interval plus jitter. A change of settings takes as long
// to reach a node.
func (t Tuning) HeartbeatAge() time.Duration {
	return t.SettingsEvery() + time.Duration((1+2*t.Jitter)*float64(t.SettingsEvery()))
}

// SettingsIntervalMax returns the longest SettingsInterval with which heartbeats arrive within heartbeat.StandsFor: 25
// s at the default jitter. With a longer interval, nodes would count as gone between two of their heartbeats.
func (t Tuning) SettingsIntervalMax() time.Duration {
	return time.Duration(float64(heartbeat.StandsFor) / (2 + 2*t.Jitter)).Truncate(time.Millisecond)
}

// SettingsEvery returns the interval that nodes and relays use: SettingsInterval, or SettingsIntervalMax if that is
// shorter. A document that an earlier build stored may have a longer interval.
func (t Tuning) SettingsEvery() time.Duration {
	return min(t.SettingsInterval.Std(), t.SettingsIntervalMax())
}

// ValidateRelations reports all fields that contradict another field, joined into one error. Parse
// calls it for documents that operators write. Read does not, because documents that an earlier
// build stored must stay readable.
//
// CheckTimes checks the relations to parameters outside a tuning: those of a rollout's plan and of
// the control plane.
func (t Tuning) ValidateRelations() error {
	var bad []error
	least := func(field string, v, least time.Duration, because string) {
		if v < least {
			bad = append(bad, fmt.Errorf("%w: %s is %d (at least %d: %s)", ErrInvalid, field, v.Milliseconds(),
				least.Milliseconds(), because))
		}
	}
	if is, most := t.SettingsInterval.Std(), t.SettingsIntervalMax(); is > most {
		bad = append(bad, fmt.Errorf("%w: settings_interval_ms is %d (at most %d with jitter %v: nodes without a heartbeat "+
			"for %v count as gone)", ErrInvalid, is.Milliseconds(), most.Milliseconds(), t.Jitter, heartbeat.StandsFor))
	}
	least("min_global_duration_ms", t.MinGlobalDuration.Std(), 3*t.FeedInterval.Std(), "three times feed_interval_ms")
	least("min_global_duration_ms", t.MinGlobalDuration.Std(), 2*t.ReplayTick.Std(), "twice replay_tick_ms")
	least("fresh_for_ms", t.FreshFor.Std(), t.ReplayTick.Std(), "replay_tick_ms")
	return errors.Join(bad...)
}

// Times are parameters outside a tuning that must fit its intervals. CheckTimes ignores zero
// values.
type Times struct {
	Lease        time.Duration // of a trial, lease_ms of a rollout's plan
	ApplyTimeout time.Duration // apply_timeout_ms of a rollout's plan
	LiveWithin   time.Duration // --node-live-within of the control plane
}

// CheckTimes returns an error for the first parameter that is too short for t. Otherwise nodes
// would leave a trial before its renewal reaches them, be given up before they can report a tuning,
// or be listed as gone between two heartbeats.
func (t Tuning) CheckTimes(of Times) error {
	age := t.HeartbeatAge()
	for _, c := range []struct {
		name        string
		is          time.Duration
		times       int64
		consequence string
	}{
		{"lease_ms", of.Lease, 3, "nodes would leave the trial before its renewal reaches them"},
		{"apply_timeout_ms", of.ApplyTimeout, 1, "nodes could not report the tuning in time"},
		{"node-live-within", of.LiveWithin, 1, "nodes would be listed as gone between two heartbeats"},
	} {
		if least := time.Duration(c.times) * age; c.is > 0 && c.is < least {
			return fmt.Errorf("%w: %s is %d ms (at least %d ms with settings_interval_ms %d and jitter %v: %s)", ErrInvalid,
				c.name, c.is.Milliseconds(), least.Milliseconds(), t.SettingsInterval.Std().Milliseconds(), t.Jitter,
				c.consequence)
		}
	}
	return nil
}
