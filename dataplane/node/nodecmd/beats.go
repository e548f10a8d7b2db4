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

// beats is the node's store.Settings. It adds to the limiter's heartbeats the state of the node's
// relay and the problems of its surroundings. The limiter sends one heartbeat at a time.
type beats struct {
	inner   store.Settings
	figures func() relay.Figures // nil without a relay
	watch   *watch               // nil without Redis
	lags    map[string]lag       // the newest of each region
}

// lag is the 99th percentile of an interval between two heartbeats.
type lag struct{ p99Ms, atMs int64 }

// withRelay returns a store whose heartbeats also hold the relay's figures and the problems that
// watch has found.
func withRelay(settings store.Settings, figures func() relay.Figures, watch *watch) store.Settings {
	return &beats{inner: settings, figures: figures, watch: watch, lags: make(map[string]lag)}
}

// Settings implements store.Settings.
func (b *beats) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	return b.inner.Settings(ctx, region)
}

// Heartbeat implements store.Settings.
func (b *beats) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	beats = slices.Clone(beats)
	for i := range beats {
		if b.figures != nil {
			beats[i].Health.Relay = b.relay(beats[i].SentAtMs)
		}
		beats[i].Health.Problems = b.watch.texts()
	}
	return b.inner.Heartbeat(ctx, beats...)
}

func (b *beats) relay(nowMs int64) *heartbeat.Relay {
	f := b.figures()
	b.watch.relayed(&f, time.UnixMilli(nowMs))
	r := &heartbeat.Relay{
		Held: f.Held, Shards: f.Shards, UnpublishedMs: f.Unpublished.Milliseconds(), LagP99Ms: b.lagsOf(f.LagP99, nowMs),
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
	for region, l := range b.lags { // of a clock that was ahead: it stands no longer for it
		b.lags[region] = lag{l.p99Ms, min(l.atMs, nowMs)}
	}
	maps.DeleteFunc(b.lags, func(_ string, l lag) bool { return nowMs-l.atMs > heartbeat.LagKeptFor.Milliseconds() })
	slowest := slices.SortedFunc(maps.Keys(b.lags), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.lags[y].p99Ms, b.lags[x].p99Ms), cmp.Compare(x, y))
	})
	all := make(map[string]int64)
	for _, region := range slowest[:min(len(slowest), heartbeat.RegionsMax)] {
		all[region] = b.lags[region].p99Ms
	}
	return all
}
