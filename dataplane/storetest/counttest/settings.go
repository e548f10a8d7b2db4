package counttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

func settings(t testing.TB, s store.Settings, region string) store.SettingsRows {
	t.Helper()
	rows, err := s.Settings(t.Context(), region)
	if err != nil {
		t.Fatalf("settings of %q: %v", region, err)
	}
	return rows
}

func testSettings(t *testing.T, open func(t testing.TB) Store) {
	hooks := open(t)
	for _, s := range []struct {
		has bool
		subtest[Store]
	}{
		{true, subtest[Store]{"version 0 and no document when no tuning was ever stored", testNoSettings}},
		{hooks.PutTuning != nil, subtest[Store]{"the newest tuning for the region, or the fleet's where it has none",
			testTuning}},
		{hooks.PutTrial != nil, subtest[Store]{
			"the trial of the region, or of regions without a tuning or a trial of their own", testTrials}},
		{hooks.PutNamespaces != nil, subtest[Store]{"all namespaces", testNamespaces}},
		{hooks.PutOverrides != nil, subtest[Store]{"all overrides", testOverrides}},
		{hooks.PutResets != nil, subtest[Store]{"all resets", testResets}},
	} {
		if s.has {
			run(t, open, []subtest[Store]{s.subtest})
		}
	}
}

func testNoSettings(t *testing.T, s Store) {
	got := settings(t, s, "eu")
	if got.TuningVersion != 0 || got.TuningDocument != nil || len(got.Namespaces) != 0 || len(got.Overrides) != 0 {
		t.Errorf("an empty store's settings are %+v", got)
	}
}

func testTuning(t *testing.T, s Store) {
	document := func(version int64) []byte { return fmt.Appendf(nil, `{"floor":0.%d}`, version) }
	for _, step := range []struct {
		region string
		put    int64
		eu, us int64 // the versions in force afterwards
	}{
		{"us", 1, 0, 1},
		{"", 2, 2, 1}, // the region's own document wins though the fleet's is newer
		{"", 3, 3, 1},
		{"us", 4, 3, 4},
		{"US", 5, 3, 4}, // another region
		{"eu", 6, 6, 4},
		{"", 7, 6, 4},
	} {
		s.PutTuning(t, step.region, step.put, document(step.put))
		for region, want := range map[string]int64{"eu": step.eu, "us": step.us} {
			got := settings(t, s, region)
			if got.TuningVersion != want {
				t.Errorf("after version %d for %q: %q runs version %d, want %d", step.put, step.region, region,
					got.TuningVersion, want)
			}
			if want > 0 && string(got.TuningDocument) != string(document(want)) {
				t.Errorf("after version %d for %q: %q reads %s", step.put, step.region, region, got.TuningDocument)
			}
		}
	}
}

// A trial stands until it ends, or until its region has another tuning.
func testTrials(t *testing.T, s Store) {
	trial := func(number int64) store.TrialRow {
		return store.TrialRow{Number: number, Document: fmt.Appendf(nil, `{"floor":0.%d}`, number), Below: number << 20,
			Left: time.Hour}
	}
	put := func(region string, over, number int64) func() {
		return func() { s.PutTrial(t, region, over, trial(number)) }
	}
	tune := func(region string, version int64) func() {
		return func() { s.PutTuning(t, region, version, []byte(`{}`)) }
	}
	for _, step := range []struct {
		name       string
		do         func()
		eu, us, ap int64 // the trials afterwards
	}{
		{"none", func() {}, 0, 0, 0},
		{"of a region without a tuning", put("eu", 0, 1), 1, 0, 0},
		{"of the fleet", put("", 0, 2), 1, 2, 2},
		{"the fleet is tuned", tune("", 3), 1, 0, 0},
		{"of the fleet as it is tuned", put("", 3, 4), 1, 4, 4},
		{"a region is tuned", tune("us", 5), 1, 0, 4},
		{"of that region as it was", put("us", 0, 6), 1, 0, 4},
		{"of that region as it is", put("us", 5, 7), 1, 7, 4},
		{"in place of the one before", put("us", 5, 8), 1, 8, 4},
		{"the region of the first is tuned", tune("eu", 9), 0, 8, 4},
		{"over another version", put("eu", 8, 10), 0, 8, 4},
		{"one that is over", func() {
			over := trial(11)
			over.Left = -time.Millisecond
			s.PutTrial(t, "us", 5, over)
		}, 0, 0, 4},
	} {
		step.do()
		for region, number := range map[string]int64{"eu": step.eu, "us": step.us, "ap": step.ap} {
			got := settings(t, s, region).Trial
			want := store.TrialRow{}
			if number != 0 {
				want = trial(number)
			}
			if got.Number != number || string(got.Document) != string(want.Document) || got.Below != want.Below {
				t.Errorf("%s: trial of %q is %+v, want %d", step.name, region, got, number)
			}
			if got.Left > want.Left || got.Left < want.Left-10*time.Minute {
				t.Errorf("%s: trial of %q goes on for %v, want about %v", step.name, region, got.Left, want.Left)
			}
		}
	}
}

func testNamespaces(t *testing.T, s Store) {
	var want []store.NamespaceRow
	for i, name := range suite.Lookalikes {
		row := store.NamespaceRow{Workspace: "w", Namespace: name, Shadow: i%2 == 0, Mode: "exact", Outage: "closed",
			NodeShare: "wait", Window: store.WindowPrecise}
		if i%3 == 0 {
			row.Mode, row.Outage, row.NodeShare, row.Window, row.Estimate = "estimate", "open", "flush", store.WindowCells,
				fmt.Sprintf(`{"count":"offered 🙂","n":%d}`, i)
		}
		want = append(want, row)
	}
	want = append(want,
		store.NamespaceRow{Workspace: "W", Namespace: "n"},
		store.NamespaceRow{Workspace: strings.Repeat("w", window.WorkspaceBytesMax),
			Namespace: strings.Repeat("\xff", window.NamespaceBytesMax), Shadow: true,
			Mode: "of a newer build", Outage: "no such thing", NodeShare: "whatever", Window: "of this week",
			Estimate: strings.Repeat("x", store.EstimateBytesMax)})
	s.PutNamespaces(t, want...)
	suite.WantSame(t, "namespaces", settings(t, s, "eu").Namespaces, want)
}

func testOverrides(t *testing.T, s Store) {
	want := []store.OverrideRow{
		{Workspace: "w", Namespace: "n", Pattern: "*"},
		{Workspace: "w", Namespace: "n", Pattern: "user-*", Limit: window.LimitMax, Candidate: window.LimitMax, Shadow: true},
		{Workspace: "w", Namespace: "n", Pattern: "user-1", Limit: 1, DurationMs: 1000},
		{Workspace: "w", Namespace: "n", Pattern: "User-1", Limit: 2, DurationMs: window.DurationMax.Milliseconds()},
		{Workspace: "w", Namespace: "m", Pattern: strings.Repeat("\xff", window.IdentifierBytesMax), Limit: 3},
	}
	for i, name := range suite.Lookalikes {
		want = append(want, store.OverrideRow{Workspace: "v", Namespace: "n", Pattern: name, Limit: int64(i)})
	}
	s.PutOverrides(t, want...)
	suite.WantSame(t, "overrides", settings(t, s, "eu").Overrides, want)
}

func testResets(t *testing.T, s Store) {
	want := []store.ResetRow{
		{Workspace: "w", Namespace: "n", Identifier: "user-1", Generation: 1, AtMs: 1_700_000_000_000,
			ExpiresAtMs: 1_700_000_120_000},
		{Workspace: "W", Namespace: "n", Identifier: strings.Repeat("\xff", window.IdentifierBytesMax),
			Generation: int64(window.GenerationMax), AtMs: 1, ExpiresAtMs: 1 << 50},
	}
	for i, name := range suite.Lookalikes {
		want = append(want, store.ResetRow{Workspace: "v", Namespace: "n", Identifier: name, Generation: int64(i + 1),
			AtMs: 5, ExpiresAtMs: 6})
	}
	s.PutResets(t, want...)
	suite.WantSame(t, "resets", settings(t, s, "eu").Resets, want)
}

func testHeartbeat(t *testing.T, open func(t testing.TB) Store) {
	hooks := open(t)
	if hooks.Heartbeats == nil {
		return
	}
	full := suite.FullHeartbeat(t, "node-1")
	full.Region, full.Stopped, full.Top, full.Usage = "eu", false, "", "" // a store need not keep usage with the heartbeat
	run := func(name string, f func(t *testing.T, s Store)) {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}

	run("records what a node says of itself", func(t *testing.T, s Store) {
		suite.Beat(t, s, full)
		wantHeartbeats(t, s, full)
	})
	run("records several nodes' words at once", func(t *testing.T, s Store) {
		second, third := full, full
		second.NodeID, third.NodeID, third.Top = "node-0", "node-2", `{"hot":[]}`
		suite.Beat(t, s, full, second, third)
		wantHeartbeats(t, s, full, second, third)
		full := full
		full.SentAtMs++
		suite.Beat(t, s, full, third)
		wantHeartbeats(t, s, full, second, third)
		suite.Beat(t, s)
	})
	run("counts a node as live until it says that it has stopped", func(t *testing.T, s Store) {
		first, second := full, full
		second.NodeID += "'s neighbour"
		suite.Beat(t, s, first)
		suite.Beat(t, s, second)
		second.Stopped = true
		for _, want := range []int{2, 1, 1} { // the third after a last heartbeat that was sent twice
			if got := settings(t, s, full.Region).NodesLive; got != want {
				t.Errorf("%d live nodes, want %d", got, want)
			}
			suite.Beat(t, s, second)
		}
		late := second
		late.Stopped = false // it was sent before the last word, and comes after it
		suite.Beat(t, s, late)
		if got := settings(t, s, full.Region).NodesLive; got != 1 {
			t.Errorf("%d live nodes after the second has stopped, want 1", got)
		}
		second.Stopped = false // it was started again
		second.StartedAtMs++
		suite.Beat(t, s, second)
		if got := settings(t, s, full.Region).NodesLive; got != 2 {
			t.Errorf("%d live nodes after the second came back, want 2", got)
		}
	})
	run("replaces its earlier word", func(t *testing.T, s Store) {
		later := heartbeat.Heartbeat{NodeID: full.NodeID, Region: "us", Build: "v1.2.4", TuningVersion: 6,
			StartedAtMs: 1_700_000_090_000, SentAtMs: 1_700_000_091_000}
		suite.Beat(t, s, full)
		suite.Beat(t, s, later)
		wantHeartbeats(t, s, later)
	})
	run("keeps its top keys until it tells of others", func(t *testing.T, s Store) {
		later, after := full, full
		later.SentAtMs, later.Top = full.SentAtMs+1, `{"hot":[{"w":"/w=="}]}`
		after.SentAtMs = full.SentAtMs + 2
		suite.Beat(t, s, full)
		wantHeartbeats(t, s, full)
		suite.Beat(t, s, later)
		suite.Beat(t, s, after)
		after.Top = later.Top
		wantHeartbeats(t, s, after)
		after.Top = `{"hot":[]}`
		suite.Beat(t, s, after)
		wantHeartbeats(t, s, after)
	})
	run("nodes are apart", func(t *testing.T, s Store) {
		var want []heartbeat.Heartbeat
		for _, id := range []string{"n", "N", "n ", "\xff", strings.Repeat("n", 64)} {
			b := full
			b.NodeID, b.Region = id, strings.Repeat("r", 48)
			suite.Beat(t, s, b)
			want = append(want, b)
		}
		wantHeartbeats(t, s, want...)
	})
}

func wantHeartbeats(t testing.TB, s Store, want ...heartbeat.Heartbeat) {
	t.Helper()
	suite.WantSame(t, "beats", suite.Worded(t, s.Heartbeats(t)), suite.Worded(t, want))
}

// "All methods may run concurrently and obey ctx's deadline."
func testCountContext(t *testing.T, s Store) {
	c := suite.LiveCell("w", "x")
	publish(t, s, "us", store.Count{Cell: c, Count: 1})
	suite.EndedContexts(t, func(ended string, ctx context.Context, want error) {
		for method, err := range map[string]error{
			"Publish":   s.Publish(ctx, "eu", []store.Count{{Cell: c, Count: 1}}),
			"Import":    s.Import(ctx, suite.Began.UnixMilli(), func(string, store.Count) {}),
			"Settings":  errOf(s.Settings(ctx, "eu")),
			"Heartbeat": s.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "n", Region: "eu"}),
		} {
			if !errors.Is(err, want) || errors.Is(err, store.ErrRefused) {
				t.Errorf("%s with %s: %v", method, ended, err)
			}
		}
	})
}
