package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
)

// storeSettings stores settings as a relay, which has the leases meanwhile.
func (h *originTest) storeSettings(rows store.SettingsRows) {
	h.Helper()
	for shard := range h.Shards() {
		_, leaseErr := h.Lease(h.Context(), shard, "relay", time.Hour)
		err := h.StoreSettings(h.Context(), shard, "relay", rows, time.Time{})
		if err := errors.Join(leaseErr, err, h.Release(h.Context(), shard, "relay")); err != nil {
			h.Fatalf("store settings in shard %d: %v", shard, err)
		}
	}
}

// settle stores settings as a relay, and expects them everywhere.
func (h *originTest) settle(rows store.SettingsRows) {
	h.Helper()
	h.storeSettings(rows)
	h.wantSettings(rows)
}

// wantSettings reads settings by another way, and by this way.
func (h *originTest) wantSettings(want store.SettingsRows) {
	h.Helper()
	for name, way := range map[string]store.Mailbox{"this way": h, "another way": partsOf(h.Client(h))} {
		for range 2 { // the second finds them unchanged
			got, err := way.Settings(h.Context(), "eu")
			if err != nil {
				h.Fatalf("settings by %s: %v", name, err)
			}
			if got.Age < 0 || got.Age > time.Minute {
				h.Errorf("settings by %s are %v old", name, got.Age)
			}
			if !equalRows(got, want) {
				h.Errorf("settings by %s:\n got %+v\nwant %+v", name, got, want)
			}
		}
	}
}

func equalRows(a, b store.SettingsRows) bool {
	return a.TuningVersion == b.TuningVersion && string(a.TuningDocument) == string(b.TuningDocument) &&
		(a.TuningDocument == nil) == (b.TuningDocument == nil) && a.NodesLive == b.NodesLive &&
		fmt.Sprintf("%+v", a.Trial) == fmt.Sprintf("%+v", b.Trial) &&
		fmt.Sprint(a.Problem) == fmt.Sprint(b.Problem) &&
		slices.Equal(a.Namespaces, b.Namespaces) && slices.Equal(a.Overrides, b.Overrides) && slices.Equal(a.Resets, b.Resets)
}

// fullSettings returns settings with a value in each field, and names of any bytes.
func fullSettings() store.SettingsRows {
	rows := store.SettingsRows{
		TuningVersion: 7, TuningDocument: []byte(`{"floor":0.5}`), NodesLive: 12,
		Trial:   store.TrialRow{Number: 4, Document: []byte(`{"floor":0.25}`), Below: 1 << 31, Left: 90 * time.Second},
		Problem: errors.New("the resets are not there"),
	}
	for i, name := range []string{"a", "A", "a ", "\xff\x00", `"`, "🙂"} {
		n := int64(i + 1)
		rows.Namespaces = append(rows.Namespaces, store.NamespaceRow{
			Workspace: name, Namespace: "n" + name, Shadow: i%2 == 0, Mode: "estimate", Outage: "open", NodeShare: "wait",
			Window: store.WindowPrecise, Estimate: `{"drain":"leaky"}`})
		rows.Overrides = append(rows.Overrides, store.OverrideRow{
			Workspace: name, Namespace: "n" + name, Pattern: name + "*", Limit: store.CountMax - n, DurationMs: n,
			Candidate: 2 * n, Shadow: i%2 == 1})
		rows.Resets = append(rows.Resets, store.ResetRow{
			Workspace: name, Namespace: "n" + name, Identifier: "i" + name, Generation: n, AtMs: 1_700_000_000_000 + n,
			ExpiresAtMs: 1_800_000_000_000 + n})
	}
	return rows
}

var originSettingsTests = map[string]func(*originTest){
	"are ErrNoSettings until a relay has told some": func(h *originTest) {
		if rows, err := h.Settings(h.Context(), "eu"); !errors.Is(err, store.ErrNoSettings) {
			h.Errorf("settings that were never told: %+v, %v", rows, err)
		}
		h.settle(store.SettingsRows{})
	},
	"are what was told, whole": func(h *originTest) {
		h.settle(fullSettings())
	},
	"have a trial of limits of the greatest length": func(h *originTest) {
		rows := fullSettings()
		rows.Trial.Document = fmt.Appendf(nil, `{"limits":{"mode":"%s"},"requires":["limits"]}`,
			strings.Repeat("\u00e9", settings.TrialBytesMax/2-30))
		h.settle(rows)
	},
	"are those that were told last": func(h *originTest) {
		rows := fullSettings()
		h.settle(rows)
		rows.Resets, rows.Problem = rows.Resets[1:], nil
		h.settle(rows)
		rows.NodesLive++ // alone
		h.settle(rows)
		rows.Trial.Left += time.Minute // it is renewed
		h.settle(rows)
		rows.Trial = store.TrialRow{}
		h.settle(rows)
	},
	"grow old until they are told again": func(h *originTest) {
		h.storeSettings(fullSettings())
		age := func() time.Duration {
			rows, err := h.Settings(h.Context(), "eu")
			if err != nil {
				h.Fatal(err)
			}
			return rows.Age
		}
		const old = 50 * time.Millisecond
		for storedAt := time.Now(); time.Since(storedAt) < old; {
			age()
		}
		if last := age(); last < old-2*time.Millisecond {
			h.Errorf("settings that were told more than %v ago are %v old", old, last)
		}
		began := time.Now()
		h.storeSettings(fullSettings())
		if got, most := age(), time.Since(began); got > most+time.Millisecond {
			h.Errorf("settings that were told %v ago are %v old", most, got)
		}
	},
	"of any relay are heeded": func(h *originTest) {
		rows := fullSettings()
		h.storeSettings(rows)
		other := fullSettings()
		other.Overrides[2].Limit = 5
		way := h.Client(h)
		successor := newOriginTest(h.T, Origin{Origin: way, Client: h.Client})
		successor.storeSettings(other)
		h.wantSettings(other)
		h.settle(rows) // the first relay has stored these before
	},
	"are heeded of the relay that has the lease": func(h *originTest) {
		h.storeSettings(fullSettings())
		none, late := store.SettingsRows{}, fullSettings()
		late.NodesLive++ // of a document that is there
		refused := func(when string) {
			h.Helper()
			for _, rows := range []store.SettingsRows{none, late} {
				if err := h.StoreSettings(h.Context(), h.shard(), "a", rows, time.Time{}); !errors.Is(err, store.ErrNoLease) {
					h.Errorf("%s: %v, want ErrNoLease", when, err)
				}
			}
			h.wantSettings(fullSettings())
		}
		refused("while no relay has it")
		h.lease("b", time.Hour, "b", time.Hour)
		refused("while another relay has it")
		h.release("b")
		refused("after another relay had it")
	},
	"are as old as the moment that they are told for, however late the call comes": func(h *originTest) {
		h.lease("a", time.Hour, "a", time.Hour)
		now := h.changes(1).Now
		for name, c := range map[string]struct {
			asOf        time.Time
			least, most time.Duration
		}{
			"a minute ago":   {now.Add(-time.Minute), time.Minute, 2 * time.Minute},
			"an hour ago":    {now.Add(-time.Hour), time.Hour, time.Hour + time.Minute},
			"in an hour":     {now.Add(time.Hour), 0, time.Minute},
			"no time at all": {time.Time{}, 0, time.Minute},
		} {
			for range 2 { // the second finds the document there
				if err := h.StoreSettings(h.Context(), h.shard(), "a", fullSettings(), c.asOf); err != nil {
					h.Fatal(err)
				}
				got, err := h.Settings(h.Context(), "eu")
				if err != nil || got.Age < c.least || got.Age > c.most || got.Trial.Left != fullSettings().Trial.Left {
					h.Errorf("told for %s: %v old, the trial good for %v, %v", name, got.Age, got.Trial.Left, err)
				}
			}
		}
		h.release("a")
	},
	"that are many fit": func(h *originTest) {
		var rows store.SettingsRows
		for i := range 10_000 {
			rows.Overrides = append(rows.Overrides,
				store.OverrideRow{Workspace: "w", Namespace: "n", Pattern: fmt.Sprint("user-", i), Limit: int64(i)})
		}
		for i := range 20_000 {
			rows.Resets = append(rows.Resets, store.ResetRow{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint("user-", i),
				Generation: 1, AtMs: int64(i)})
		}
		h.settle(rows)
	},
	"that are lost with the origin are told again": func(h *originTest) {
		h.settle(fullSettings())
		h.Wipe(h)
		if _, err := h.Settings(h.Context(), "eu"); !errors.Is(err, store.ErrNoSettings) {
			h.Errorf("settings of an emptied origin: %v", err)
		}
		h.settle(fullSettings())
	},
	"are there though the reply to telling them was lost": func(h *originTest) {
		h.storeSettings(store.SettingsRows{})
		h.lease("a", time.Hour, "a", time.Hour)
		h.lost("store settings", func() error {
			return h.StoreSettings(h.Context(), h.shard(), "a", fullSettings(), time.Time{})
		})
		h.release("a")
		h.settle(fullSettings())
	},
	"keep no reference to what was told": func(h *originTest) {
		rows := fullSettings()
		h.storeSettings(rows)
		rows.Overrides[0].Limit, rows.TuningDocument[0] = 1, 'x'
		h.wantSettings(fullSettings())
	},
}

// storedHeartbeats returns the heartbeats of all shards.
func (h *originTest) storedHeartbeats(max int) (beats []store.StoredHeartbeat) {
	h.Helper()
	for shard := range h.Shards() {
		some, err := h.Heartbeats(h.Context(), shard, max)
		if err != nil || len(some) > max {
			h.Fatalf("beats of shard %d: %d of at most %d, %v", shard, len(some), max, err)
		}
		beats = append(beats, some...)
	}
	return beats
}

func (h *originTest) stored(beats ...store.StoredHeartbeat) {
	h.Helper()
	for shard := range h.Shards() {
		if err := h.AckHeartbeats(h.Context(), shard, beats); err != nil {
			h.Fatalf("stored %d beats: %v", len(beats), err)
		}
	}
}

func (h *originTest) wantKept(want ...heartbeat.Heartbeat) {
	h.Helper()
	var got []heartbeat.Heartbeat
	for _, b := range h.storedHeartbeats(100) {
		if b.Age < 0 || b.Age > time.Since(suite.Began) {
			h.Errorf("the beat of %q is %v old", b.NodeID, b.Age)
		}
		b.Age = 0
		got = append(got, b.Heartbeat)
	}
	suite.WantSame(h, "beats", suite.Worded(h, got), suite.Worded(h, want))
}

var originHeartbeatTests = map[string]func(*originTest){
	"are what nodes said of themselves, until they are stored": func(h *originTest) {
		a, b := suite.FullHeartbeat(h.T, "a"), suite.FullHeartbeat(h.T, "\xff b")
		suite.Beat(h, h, a)
		suite.Beat(h, h, b)
		for range 2 {
			h.wantKept(a, b)
		}
		h.stored(h.storedHeartbeats(100)...)
		h.wantKept()
	},
	"grow old while they wait": func(h *originTest) {
		suite.Beat(h, h, heartbeat.Heartbeat{NodeID: "a", Region: "eu"})
		await.True(h, "it is 20 ms old", func() bool { return h.storedHeartbeats(1)[0].Age >= 20*time.Millisecond })
	},
	"are a node's last": func(h *originTest) {
		first := suite.FullHeartbeat(h.T, "a")
		second := heartbeat.Heartbeat{NodeID: "a", Region: "us", StartedAtMs: first.StartedAtMs + 1, SentAtMs: 5, Top: "{}"}
		suite.Beat(h, h, first)
		kept := h.storedHeartbeats(100)
		suite.Beat(h, h, second)
		h.wantKept(second)
		h.stored(kept...) // the earlier heartbeat
		h.wantKept(second)
	},
	"are not replaced by what a process sent before, that comes late": func(h *originTest) {
		early := heartbeat.Heartbeat{NodeID: "a", Region: "eu", StartedAtMs: 10, SentAtMs: 20}
		late, last, next := early, early, early
		late.SentAtMs, last.SentAtMs, last.Stopped = 30, 25, true // the node's clock has stepped back
		next.StartedAtMs, next.SentAtMs = 5, 6                    // and so it has before the next process
		for i, step := range []struct{ sent, want heartbeat.Heartbeat }{
			{late, late}, {early, late}, {late, late}, {last, last}, {late, last}, {next, next},
		} {
			suite.Beat(h, h, step.sent)
			if kept := h.storedHeartbeats(9); len(kept) != 1 || kept[0].SentAtMs != step.want.SentAtMs {
				h.Errorf("step %d: %+v are kept, want the one of %d ms", i, kept, step.want.SentAtMs)
			}
		}
	},
	"keep the top keys that were told before": func(h *originTest) {
		b := suite.FullHeartbeat(h.T, "a")
		suite.Beat(h, h, b)
		later := heartbeat.Heartbeat{NodeID: "a", Region: "eu", StartedAtMs: b.StartedAtMs + 1, SentAtMs: 5}
		suite.Beat(h, h, later)
		later.Top = b.Top
		h.wantKept(later)
		h.stored(h.storedHeartbeats(100)...)
		later.Top = ""
		suite.Beat(h, h, later)
		h.wantKept(later)
	},
	"come longest waiting first, max at a time": func(h *originTest) {
		var ids []string
		for i := range 5 {
			ids = append(ids, fmt.Sprint("node-", i))
			suite.Beat(h, h, heartbeat.Heartbeat{NodeID: ids[i], Region: "eu"})
		}
		for len(ids) > 0 {
			some := h.storedHeartbeats(2)
			if len(some) == 0 {
				h.Fatalf("%d beats never came", len(ids))
			}
			for _, b := range some {
				if b.NodeID != ids[0] {
					h.Errorf("%s came before %s", b.NodeID, ids[0])
				}
				ids = ids[1:]
			}
			h.stored(some...)
		}
	},
	"may be several at once": func(h *originTest) {
		a, b := heartbeat.Heartbeat{NodeID: "a", Region: "eu"}, heartbeat.Heartbeat{NodeID: "b", Region: "eu"}
		suite.Beat(h, h, a, b)
		suite.Beat(h, h)
		h.wantKept(a, b)
	},
	"are there though a reply was lost": func(h *originTest) {
		a := heartbeat.Heartbeat{NodeID: "a", Region: "eu"}
		h.lost("a heartbeat", func() error { return h.Heartbeat(h.Context(), a) })
		h.lost("heartbeats", func() error { return errOf(h.Heartbeats(h.Context(), h.shard(), 9)) })
		kept := h.storedHeartbeats(9)
		for _, b := range kept { // each shard was tried
			if b.NodeID != "a" {
				h.Errorf("a beat of %q", b.NodeID)
			}
		}
		if len(kept) == 0 {
			h.Error("the beat is not there")
		}
	},
	"are for the relay alone": func(h *originTest) {
		suite.Beat(h, h, heartbeat.Heartbeat{NodeID: "a", Region: "eu"})
		if _, err := h.Settings(h.Context(), "eu"); !errors.Is(err, store.ErrNoSettings) {
			h.Errorf("after a heartbeat settings are: %v", err)
		}
	},
}
