package nodecmd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A node's heartbeat has the figures of its relay, each in its unit, in addition to the limiter's figures.
func TestHeartbeatsTellOfTheRelay(t *testing.T) {
	counts := memstore.NewCounts(memstore.CountsOptions{})
	at := time.UnixMilli(1_700_000_000_000)
	figures := relay.Figures{
		Held: []int{0, 2}, Shards: 3, Unpublished: 1500 * time.Millisecond, InStepAt: at, LagP99: map[string]time.Duration{"us": 300 * time.Millisecond},
		Errors: 4, Rows: 5, Saved: 6, Healed: 7, Fenced: 8,
	}
	beats := withRelay(counts, func() relay.Figures { return figures }, nil)
	send := func(nowMs int64) *heartbeat.Relay {
		t.Helper()
		if err := beats.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "a", Region: "eu", SentAtMs: nowMs, Health: heartbeat.Health{Entries: 9}}); err != nil {
			t.Fatal(err)
		}
		health := counts.Heartbeats()[0].Health
		if health.Entries != 9 {
			t.Errorf("the limiter's own figures: %+v", health)
		}
		return health.Relay
	}
	nowMs := at.UnixMilli()
	want := &heartbeat.Relay{
		Held: []int{0, 2}, Shards: 3, InStepAtMs: nowMs, UnpublishedMs: 1500, LagP99Ms: map[string]int64{"us": 300}, Errors: 4, Rows: 5, Stored: 6, Healed: 7, Fenced: 8,
	}
	if got := send(nowMs); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// The relay reports a region's delay once. The heartbeat keeps it as long as the region may only have nothing to
	// publish.
	figures = relay.Figures{Shards: 3, LagP99: map[string]time.Duration{"ap": time.Second}}
	if got := send(nowMs + 100_000); got.InStepAtMs != 0 || !reflect.DeepEqual(got.LagP99Ms, map[string]int64{"us": 300, "ap": 1000}) {
		t.Errorf("100 s later: %+v", got)
	}
	figures.LagP99 = nil
	if got := send(nowMs + heartbeat.LagKeptFor.Milliseconds() + 1); !reflect.DeepEqual(got.LagP99Ms, map[string]int64{"ap": 1000}) {
		t.Errorf("us has told nothing for long: %+v", got)
	}
}

// wantRelayInHeartbeats waits until the nodes of eu and us, each the only node of its region, report that they relay
// it, and the delay of the other region's changes.
func wantRelayInHeartbeats(t *testing.T, dsn string) {
	t.Helper()
	db, err := mysqlcounts.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for region, from := range map[string]string{"eu": "us", "us": "eu"} {
		await.True(t, region+" says that it relays, and reads the changes of "+from, func() bool {
			var text []byte
			var h heartbeat.Health
			if err := db.QueryRowContext(t.Context(), "SELECT health FROM ratelimit_nodes WHERE region = ?", region).Scan(&text); err != nil {
				return false
			}
			if err := json.Unmarshal(text, &h); err != nil || h.Relay == nil {
				return false
			}
			_, known := h.Relay.LagP99Ms[from]
			return known && slices.Equal(h.Relay.Held, []int{0}) && h.Relay.InStepAtMs > 0
		})
	}
}

// A lag that was read while the node's clock was ahead stands for no longer once the clock is put right.
func TestALagDoesNotOutliveACorrectionOfTheClock(t *testing.T) {
	const nowMs = 1_700_000_000_000
	b := &beats{lags: make(map[string]lag)}
	b.lagsOf(map[string]time.Duration{"us": time.Second}, nowMs+time.Hour.Milliseconds())
	if got := b.lagsOf(nil, nowMs); got["us"] != 1000 {
		t.Errorf("just after the correction: %v", got)
	}
	if got := b.lagsOf(nil, nowMs+heartbeat.LagKeptFor.Milliseconds()+1); len(got) != 0 {
		t.Errorf("a region that has been silent for long: %v", got)
	}
}

// Of more regions than a heartbeat has room for it has the slowest.
func TestHeartbeatsTellOfTheSlowestRegions(t *testing.T) {
	b := &beats{lags: make(map[string]lag)}
	lags := make(map[string]time.Duration)
	for i := range heartbeat.RegionsMax + 5 {
		lags[fmt.Sprintf("region-%03d", i)] = time.Duration(i) * time.Millisecond
	}
	got := b.lagsOf(lags, 1)
	if _, quickest := got["region-004"]; len(got) != heartbeat.RegionsMax || quickest || got["region-005"] != 5 {
		t.Errorf("%d regions: %v", len(got), got)
	}
}
