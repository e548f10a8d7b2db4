package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// carrier returns a region whose relay also carries settings.
func carrier(t *testing.T, shards int) *region {
	w := newWorld(t)
	r := w.addRegion("eu", w.clock, shards)
	r.relay = r.carrierOver("first", r.counts)
	return r
}

func (r *region) carrierOver(holder string, settings store.Settings) *relay.Relay {
	r.Helper()
	return r.carrierAt(holder, r.relayOrigin, settings)
}

func (r *region) carrierAt(holder string, origin store.FullOrigin, settings store.Settings) *relay.Relay {
	r.Helper()
	made, err := relay.New(relay.Config{Region: r.name, Holder: holder, Origin: origin, Feed: r.feed, Counts: r.counts,
		Settings: settings, Clock: r.clock, Tuning: func() relay.Tuning { return r.tuning }})
	if err != nil {
		r.Fatal(err)
	}
	return made
}

func (r *region) wantLimit(want int64) {
	r.Helper()
	rows, err := r.origin.Client().Settings(context.Background(), r.name)
	if err != nil || len(rows.Overrides) != 1 || rows.Overrides[0].Limit != want {
		r.Errorf("settings %+v, %v; want one override of %d", rows, err, want)
	}
}

func (r *region) override(limit int64) {
	r.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "x", Limit: limit})
}

// A relay stores operators' settings in all shards of its origin within an interval, and again after a shard was
// emptied.
func TestSettingsReachTheOrigin(t *testing.T) {
	r := carrier(t, 2)
	r.override(1)
	r.run(interval)
	for shard := range 2 {
		r.origin.ShardFaults(1 - shard).Fail(errors.New("down"))
		r.wantLimit(1)
		r.origin.ShardFaults(1 - shard).Fail(nil)
	}
	r.override(2)
	r.run(relay.DefaultTuning().SettingsInterval)
	r.wantLimit(2)
	r.origin.Wipe()
	r.run(relay.DefaultTuning().SettingsInterval)
	r.wantLimit(2)
}

// Settings are read when Feed returns another version, and once a minute, and are stored in the origin at every
// interval.
func TestSettingsAreReadWhenTheyHaveChanged(t *testing.T) {
	r := carrier(t, 1)
	r.override(1)
	r.run(time.Second)
	reads := func() int64 { return r.counts.Stats().SettingsReads }
	before := reads()
	r.run(10 * time.Minute)
	if n := reads() - before; n < 9 || n > 11 {
		t.Errorf("nothing changes, and in 10 minutes they are read %d times, want once a minute", n)
	}
	if rows, err := r.origin.Settings(context.Background(), "eu"); err != nil || rows.Age > relay.DefaultTuning().SettingsInterval {
		t.Errorf("the origin's copy is %v old, %v", rows.Age, err)
	}
	before = reads()
	for limit := range int64(5) {
		r.override(limit)
		r.run(relay.DefaultTuning().SettingsInterval)
		r.wantLimit(limit)
	}
	if n := reads() - before; n < 5 || n > 6 {
		t.Errorf("of 5 changes they are read %d times", n)
	}
}

// A trial is renewed at every interval, for the rest of its time in the store, and ends if its end is not moved.
func TestATrialIsRenewedAtEveryInterval(t *testing.T) {
	r := carrier(t, 1)
	const lease = time.Minute
	every := relay.DefaultTuning().SettingsInterval
	var ends time.Time
	renew := func() {
		ends = r.clock().Add(lease)
		r.counts.SetTrial("eu", memstore.Trial{TrialRow: store.TrialRow{Number: 1, Document: []byte(`{}`), Below: 1}, Ends: ends})
	}
	left := func() time.Duration {
		t.Helper()
		rows, err := r.origin.Settings(context.Background(), "eu")
		if err != nil {
			t.Fatal(err)
		}
		return rows.Trial.Left - rows.Age
	}
	for range 10 {
		renew()
		r.run(every)
		if got, most := left(), ends.Sub(r.clock()); got > most || got < most-2*time.Second {
			t.Errorf("the origin has it go on for %v, and it ends in %v", got, most)
		}
	}
	r.run(lease)
	if rows, err := r.origin.Settings(context.Background(), "eu"); err != nil || rows.Trial.Number != 0 {
		t.Errorf("it is over, and the origin has %+v, %v", rows.Trial, err)
	}
}

// The settings' number of nodes changes within two intervals when a node comes, stops or sends no more heartbeats,
// although the version of the settings has not changed.
func TestNodesAreCountedAsTheyComeAndGo(t *testing.T) {
	r := carrier(t, 1)
	r.run(time.Second)
	const every = 5 * time.Second
	say := func(node string, stopped bool) {
		t.Helper()
		if err := r.origin.Heartbeat(context.Background(), heartbeat.Heartbeat{NodeID: node, Region: "eu", Stopped: stopped}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(nodes int) {
		t.Helper()
		if rows, err := r.origin.Settings(context.Background(), "eu"); err != nil || rows.NodesLive != nodes {
			t.Errorf("%d nodes live, %v, want %d", rows.NodesLive, err, nodes)
		}
	}
	for range 20 {
		say("a", false)
		say("b", false)
		r.run(every)
	}
	want(2)
	say("c", false)
	r.run(2 * every)
	want(3)
	say("b", true)
	r.run(2 * every)
	want(2)
	for range 18 { // c sends no heartbeats
		say("a", false)
		r.run(every)
	}
	want(1)
}

// While the change feed cannot be read, the settings' version is unknown, so the settings are read.
func TestSettingsAreReadWithoutTheFeed(t *testing.T) {
	r := carrier(t, 1)
	r.override(1)
	r.run(10 * time.Second)
	r.feed.Faults.Fail(errDown)
	r.run(10 * time.Second)
	r.override(2)
	r.run(relay.DefaultTuning().SettingsInterval)
	r.wantLimit(2)
}

// While the store is down, the origin keeps its copy, and the copy's Age shows that no relay reads the settings.
func TestSettingsStayWhileTheStoreIsDown(t *testing.T) {
	r := carrier(t, 1)
	r.override(1)
	r.run(interval)
	r.counts.Faults.Fail(errors.New("down"))
	r.override(2)
	r.run(time.Minute)
	r.wantLimit(1)
	rows, err := r.origin.Settings(context.Background(), "eu")
	if err != nil || rows.Age < time.Minute-relay.DefaultTuning().SettingsInterval || rows.Age > time.Minute+interval {
		t.Errorf("after a minute they are %v old, %v", rows.Age, err)
	}
	r.counts.Faults.Fail(nil)
	r.run(relay.DefaultTuning().SettingsInterval)
	r.wantLimit(2)
}

// Several heartbeats are stored with the same statement, so a relay's writes do not grow with the number of nodes.
func TestHeartbeatsAreStoredTogether(t *testing.T) {
	r := carrier(t, 1)
	const nodes = 66
	statements := func(rounds int) int64 {
		before := r.counts.Stats()
		for range rounds {
			for i := range nodes {
				if err := r.origin.Heartbeat(context.Background(), heartbeat.Heartbeat{NodeID: fmt.Sprint("node-", i), Region: "eu"}); err != nil {
					t.Fatal(err)
				}
			}
			r.run(relay.DefaultTuning().SettingsInterval)
		}
		return r.counts.Stats().Heartbeats - before.Heartbeats
	}
	if n := statements(10); n < 10 || n > 11 {
		t.Errorf("%d statements in 10 intervals", n)
	}
	if n := len(r.counts.Heartbeats()); n != nodes {
		t.Errorf("%d of %d nodes are known", n, nodes)
	}
	rows, err := r.origin.Settings(context.Background(), "eu")
	if err != nil || rows.NodesLive != nodes {
		t.Errorf("the origin tells of %d live nodes, %v", rows.NodesLive, err)
	}
	if kept, err := r.origin.Heartbeats(context.Background(), 0, 9); err != nil || len(kept) > 0 {
		t.Errorf("%d heartbeats wait that are stored, %v", len(kept), err)
	}
}

// Heartbeats that the store could not take are stored later, and a heartbeat that it always refuses delays no other.
func TestHeartbeatsWaitForTheStore(t *testing.T) {
	r := carrier(t, 1)
	bad := refusing{Counts: r.counts, node: "bad"}
	r.relay = r.carrierOver("first", bad)
	r.run(interval)
	r.counts.Faults.Fail(errors.New("down"))
	for _, id := range []string{"bad", "a", "b"} {
		if err := r.origin.Heartbeat(context.Background(), heartbeat.Heartbeat{NodeID: id, Region: "eu"}); err != nil {
			t.Fatal(err)
		}
	}
	r.run(20 * time.Second)
	if n := len(r.counts.Heartbeats()); n != 0 {
		t.Fatalf("%d heartbeats reached a store that is down", n)
	}
	r.counts.Faults.Fail(nil)
	r.run(relay.DefaultTuning().SettingsInterval)
	if beats := r.counts.Heartbeats(); len(beats) != 2 || beats[0].NodeID != "a" || beats[1].NodeID != "b" {
		t.Errorf("stored are %+v", beats)
	}
	if kept, err := r.origin.Heartbeats(context.Background(), 0, 9); err != nil || len(kept) > 0 {
		t.Errorf("%d heartbeats wait, %v", len(kept), err)
	}
}

// refusing refuses the heartbeats of a node.
type refusing struct {
	*memstore.Counts
	node string
}

func (c refusing) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	var refused error
	var taken []heartbeat.Heartbeat
	for _, b := range beats {
		if b.NodeID == c.node {
			refused = store.ErrRefused
			continue
		}
		taken = append(taken, b)
	}
	if err := c.Counts.Heartbeat(ctx, taken...); err != nil {
		return err
	}
	return refused
}

// A relay without a lease neither reads settings nor takes heartbeats. It does both once it has the lease.
func TestOneRelayCarriesSettings(t *testing.T) {
	r := carrier(t, 1)
	second := r.carrierOver("second", r.counts)
	r.override(1)
	for turn := range 100 {
		if turn%25 == 0 {
			r.override(1)
		}
		r.run(interval)
		_ = second.Step(context.Background())
	}
	if n := r.counts.Stats().SettingsReads; n < 4 || n > 5 {
		t.Errorf("of 4 changes two relays have read the settings %d times", n)
	}
	r.away = true
	r.override(2)
	for range 10 {
		r.run(time.Second)
		_ = second.Step(context.Background())
	}
	r.wantLimit(2)
}

// The loops carry settings as Step does.
func TestLoopsCarrySettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu")
		r := w.regions[0]
		r.relay = r.carrierOver("first", r.counts)
		r.override(1)
		start(t, r.relay)
		time.Sleep(time.Second)
		r.wantLimit(1)
		r.override(2)
		time.Sleep(6 * time.Second)
		r.wantLimit(2)
		if n := r.counts.Stats().SettingsReads; n != 2 {
			t.Errorf("%d reads of settings in 7 s", n)
		}
	})
}

// An origin must have heartbeats of its own region only: heartbeats of nodes that claim another region are left out,
// and delay no others.
func TestHeartbeatsOfOtherRegionsAreLeftOut(t *testing.T) {
	r := carrier(t, 1)
	for i := range 3 * store.HeartbeatsMax {
		beat := heartbeat.Heartbeat{NodeID: fmt.Sprint("node-", i), Region: "us"}
		if i%50 == 0 {
			beat.Region = "eu"
		}
		if err := r.origin.Heartbeat(context.Background(), beat); err != nil {
			t.Fatal(err)
		}
	}
	err := r.relay.Step(context.Background())
	if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), `"node-1" claims region "us"`) {
		t.Errorf("heartbeats of us: %v", err)
	}
	beats := r.counts.Heartbeats()
	for _, b := range beats {
		if b.Region != "eu" {
			t.Errorf("%q of %q is stored by a relay of eu", b.NodeID, b.Region)
		}
	}
	if len(beats) != 6 {
		t.Errorf("%d nodes of eu are known, want 6", len(beats))
	}
	if kept, err := r.origin.Heartbeats(context.Background(), 0, 9); err != nil || len(kept) > 0 {
		t.Errorf("%d heartbeats wait, %v", len(kept), err)
	}
}

// Heartbeats are stored once a SettingsInterval, however long Interval is. So a fleet that publishes rarely still sends
// its heartbeats.
func TestHeartbeatsAreStoredOnceASettingsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t)
		w.tuning.Interval = time.Minute
		r := w.addRegion("eu", time.Now, 1)
		carrier := r.carrierOver("first", r.counts)
		start(t, carrier)
		time.Sleep(10 * time.Second)
		for range 6 {
			at := time.Now().UnixMilli()
			if err := r.origin.Client().Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "n", Region: "eu", SentAtMs: at}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(w.tuning.SettingsInterval + time.Second)
			if beats := r.counts.Heartbeats(); len(beats) != 1 || beats[0].SentAtMs < at {
				t.Fatalf("after a settings interval MySQL has %+v, want the heartbeat of %d", beats, at)
			}
		}
		_ = carrier.Stop(context.Background())
	})
}

// A relay that waits for the end of a long interval continues when a shorter interval is set.
func TestALoopOfARelayFollowsItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t)
		w.tuning.Interval, w.tuning.SettingsInterval = time.Minute, time.Minute
		r := w.addRegion("eu", time.Now, 1)
		changed := make(chan struct{})
		carrier, err := relay.New(relay.Config{Region: "eu", Holder: "first", Origin: r.relayOrigin, Feed: w.feed, Counts: w.counts,
			Settings: w.counts, Tuning: func() relay.Tuning { return w.tuning }, TuningChanged: func() <-chan struct{} { return changed }})
		if err != nil {
			t.Fatal(err)
		}
		start(t, carrier)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		old := changed
		w.tuning, changed = relay.DefaultTuning(), make(chan struct{})
		close(old)
		reads := w.counts.Stats().SettingsReads
		if err := r.origin.Client().Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "n", Region: "eu", SentAtMs: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(w.tuning.SettingsInterval + time.Second)
		if beats := w.counts.Heartbeats(); len(beats) != 1 || w.counts.Stats().SettingsReads == reads {
			t.Errorf("an interval of 5 s is in force for 6 s, and MySQL has %d heartbeats and was read %d times", len(beats),
				w.counts.Stats().SettingsReads-reads)
		}
		_ = carrier.Stop(context.Background())
	})
}
