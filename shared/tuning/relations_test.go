package tuning

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Values that are each within their bounds, but contradict each other, are rejected in documents that operators write.
func TestParseRefusesValuesThatDoNotFitEachOther(t *testing.T) {
	for change, want := range map[string]string{
		"settings_interval_ms=600000":           "settings_interval_ms is 600000 (at most 25000 with jitter 0.2: nodes without a heartbeat for 1m0s count as gone)",
		"settings_interval_ms=25001":            "settings_interval_ms is 25001 (at most 25000",
		"feed_interval_ms=1000":                 "min_global_duration_ms is 2000 (at least 3000: three times feed_interval_ms)",
		"replay_tick_ms=1500":                   "min_global_duration_ms is 2000 (at least 3000: twice replay_tick_ms)",
		"fresh_for_ms=100|replay_tick_ms=200":   "fresh_for_ms is 100 (at least 200: replay_tick_ms)",
		"settings_interval_ms=25000|jitter=0.5": "settings_interval_ms is 25000 (at most 20000 with jitter 0.5",
	} {
		if _, err := Edit(Default(), strings.Split(change, "|")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
	for _, change := range []string{"settings_interval_ms=25000", "feed_interval_ms=666", "replay_tick_ms=1000", "fresh_for_ms=100"} {
		if _, err := Edit(Default(), []string{change}); err != nil {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// A document that an earlier build stored stays readable, and nodes that run it send heartbeats in time.
func TestStoredValuesThatDoNotFitEachOtherAreRead(t *testing.T) {
	got, err := Read([]byte(`{"settings_interval_ms":600000}`))
	if err != nil || got.SettingsInterval.Std() != 10*time.Minute || got.SettingsEvery() != 25*time.Second || got.Hash() == "" {
		t.Errorf("%+v (every %v, hash %q), %v", got, got.SettingsEvery(), got.Hash(), err)
	}
}

// "The largest age in the database of the newest heartbeat": within heartbeat.StandsFor for every valid tuning.
func TestHeartbeatsArriveWithinTheTimeThatTheyStandFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		set := Default()
		set.Jitter = rapid.Float64Range(0, 0.5).Draw(rt, "jitter")
		set.SettingsInterval = Duration(time.Duration(rapid.Int64Range(100, 600_000).Draw(rt, "ms")) * time.Millisecond)
		if set.Validate() != nil {
			rt.Skip()
		}
		if age := set.HeartbeatAge(); age > heartbeat.StandsFor {
			rt.Fatalf("a heartbeat may be %v old", age)
		}
	})
}

// Parameters that are not part of a tuning have to fit its intervals.
func TestOtherTimesFitATuning(t *testing.T) {
	slow := Default()
	slow.SettingsInterval = Duration(20 * time.Second) // 48 s between a change and the heartbeat about it
	for want, of := range map[string]Times{
		"": {Lease: 144 * time.Second, ApplyTimeout: 48 * time.Second, LiveWithin: 48 * time.Second},
		"lease_ms is 143999 ms (at least 144000 ms with settings_interval_ms 20000 and jitter 0.2: nodes would leave the trial": {Lease: 144*time.Second - time.Millisecond},
		"apply_timeout_ms is 47000 ms (at least 48000 ms":                                                                       {ApplyTimeout: 47 * time.Second},
		"node-live-within is 30000 ms (at least 48000 ms":                                                                       {LiveWithin: 30 * time.Second},
	} {
		err := slow.CheckTimes(of)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", of, err, want)
		}
	}
}
