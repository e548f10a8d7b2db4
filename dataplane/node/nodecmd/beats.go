package nodecmd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// beats are the settings' store of a node with a relay: a limiter's heartbeats get what the relay says of itself, which
// the limiter does not know. The limiter sends one heartbeat at a time.
type beats struct {
	inner   store.Settings
	figures func() relay.Figures
	lags    map[string]lag // by region, the newest of each
}

// lag is the 99th percentile of an interval between two heartbeats.
type lag struct{ p99Ms, atMs int64 }

// withRelay adds what a relay reports to a store's heartbeats.
func withRelay(settings store.Settings, figures func() relay.Figures) store.Settings {
	return &beats{inner: settings, figures: figures, lags: make(map[string]lag)}
}

// Settings implements store.Settings.
func (b *beats) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	return b.inner.Settings(ctx, region)
}

// Heartbeat implements store.Settings.
func (b *beats) Heartbeat(ctx context.Context, beats ...heartbeat.Beat) error {
	beats = slices.Clone(beats)
	for i := range beats {
		beats[i].Health.Relay = b.relay(beats[i].SentAtMs)
	}
	return b.inner.Heartbeat(ctx, beats...)
}

func (b *beats) relay(nowMs int64) *heartbeat.Relay {
	f := b.figures()
	r := &heartbeat.Relay{
		Held: f.Held, Shards: f.Shards, UntoldMs: f.Untold.Milliseconds(), LagP99Ms: b.lagsOf(f.LagP99, nowMs),
		Errors: f.Errors, Rows: f.Rows, Stored: f.Saved, Healed: f.Healed, Fenced: f.Fenced,
	}
	if !f.InStepAt.IsZero() {
		r.InStepAtMs = f.InStepAt.UnixMilli()
	}
	return r
}

// lagsOf keeps the newest lag of each region, and drops regions that have been silent for long. If a heartbeat has no
// room for all, it reports the slowest.
func (b *beats) lagsOf(newest map[string]time.Duration, nowMs int64) map[string]int64 {
	for region, p99 := range newest {
		b.lags[region] = lag{p99.Milliseconds(), nowMs}
	}
	maps.DeleteFunc(b.lags, func(_ string, l lag) bool { return nowMs-l.atMs > heartbeat.LagKeptFor.Milliseconds() })
	slowest := slices.SortedFunc(maps.Keys(b.lags), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.lags[y].p99Ms, b.lags[x].p99Ms), cmp.Compare(x, y))
	})
	told := make(map[string]int64)
	for _, region := range slowest[:min(len(slowest), heartbeat.RegionsMax)] {
		told[region] = b.lags[region].p99Ms
	}
	return told
}
