package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started returns a node whose loops run, in a synctest bubble.
func started(t *testing.T, region, id string, origin store.Origin, settings store.Settings) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{Region: region, NodeID: id, Origin: origin, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	return l
}

// relayed starts a region's relay, in a synctest bubble.
func relayed(t *testing.T, region string, origin *memstore.Origin, feed *memstore.Feed, counts *memstore.Counts) {
	t.Helper()
	r, err := relay.New(relay.Config{Region: region, Holder: region, Origin: origin.Client(), Feed: feed, Counts: counts})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop(context.Background()) })
}

// Two regions of two nodes run their own loops: 6 are accepted in one region and 4 in the other, and the next request
// is denied everywhere.
func TestLoopsConverge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		eu, us := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
		feed := memstore.NewFeed(memstore.FeedOptions{})
		relayed(t, "eu", eu, feed, counts)
		relayed(t, "us", us, feed, counts)
		nodes := []*dataplane.Limiter{
			started(t, "eu", "e1", eu, counts), started(t, "eu", "e2", eu, counts),
			started(t, "us", "u1", us, counts), started(t, "us", "u2", us, counts),
		}
		for i := range 6 {
			nodes[i%2].Allow(t.Context(), ask("k", 1, 10))
		}
		time.Sleep(250 * time.Millisecond) // two ticks of 100 ms, with up to a fifth of jitter
		for i := range 2 {
			nodes[i].Allow(t.Context(), ask("k", 0, 10))
		}
		if got := totals(eu); len(got) != 1 {
			t.Fatalf("eu's origin: %v", got)
		}
		for i := range 4 {
			nodes[2+i%2].Allow(t.Context(), ask("k", 1, 10))
		}
		time.Sleep(20 * time.Second)
		for i, n := range nodes {
			if d := n.Allow(t.Context(), ask("k", 1, 10)); d.Allowed {
				t.Errorf("node %d: %+v", i, d)
			}
		}
		if got := len(counts.Heartbeats()); got != 4 {
			t.Errorf("%d nodes reported", got)
		}
	})
}

// If two nodes of a region both have cost to send, they agree within two replay ticks, of 100 ms and each up to a
// fifth late: the second sender receives the first node's cost in the first tick, and the first node the other's in
// the second.
func TestNodesOfARegionAgreeWithinTwoTicks(t *testing.T) {
	const tick = 120 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		counts, origin := memstore.NewCounts(memstore.CountsOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
		a, b := started(t, "eu", "e1", origin, counts), started(t, "eu", "e2", origin, counts)
		both := func(costOfA, costOfB int64) {
			a.Allow(t.Context(), ask("k", costOfA, 200))
			b.Allow(t.Context(), ask("k", costOfB, 200))
		}
		for round := range int64(20) {
			both(2, 1)
			time.Sleep(tick)
			both(1, 1)
			time.Sleep(tick)
			for name, n := range map[string]*dataplane.Limiter{"a": a, "b": b} {
				if d := n.Allow(t.Context(), ask("k", 0, 200)); d.Current < float64(5*round+3) {
					t.Errorf("round %d: %s counts %v two ticks after the %d of both", round, name, d.Current, 5*round+3)
				}
			}
		}
	})
}

// SIGTERM under load → after the exit, the origin's totals equal the accepted cost.
func TestStopSendsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, origin := memstore.NewCounts(memstore.CountsOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(30 * time.Millisecond)
		l := started(t, "eu", "a", origin, counts)
		var accepted atomic.Int64
		for range 500 {
			for k := range 7 {
				if l.Allow(t.Context(), ask(fmt.Sprint("k", k), 1, 1000)).Allowed {
					accepted.Add(1)
				}
			}
			time.Sleep(time.Millisecond)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, n := range totals(origin) {
			total += n
		}
		if total != accepted.Load() {
			t.Errorf("origin has %d, %d were accepted", total, accepted.Load())
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Errorf("a second Stop: %v", err)
		}
		if d := l.Allow(t.Context(), ask("k0", 1, 1000)); !d.Allowed {
			t.Errorf("after Stop: %+v", d)
		}
		if err := l.Start(t.Context()); !errors.Is(err, dataplane.ErrStarted) {
			t.Errorf("Start after Stop: %v", err)
		}
	})
}

// A program that ends on a signal often stops its limiter with a context that the signal has just ended.
func TestStopSendsEverythingAfterItsContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(30 * time.Millisecond)
		l := started(t, "eu", "a", origin, nil)
		l.Allow(t.Context(), ask("k", 5, 10))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
		var total int64
		for _, n := range totals(origin) {
			total += n
		}
		if total != 5 {
			t.Errorf("the origin has %d of the 5 that were accepted", total)
		}
	})
}

// Stop does not wait without a bound for an origin that is down.
func TestStopAfterItsContextHasEndedTakesFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l := started(t, "eu", "a", origin, nil)
		l.Allow(t.Context(), ask("k", 5, 10))
		origin.Faults.Fail(errDown)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := l.Stop(ctx); err == nil {
			t.Error("Stop reports no error, and nothing was sent")
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("Stop took %v", took)
		}
	})
}

func TestStopSaysWhatItCouldNotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Fail(errDown)
		l := started(t, "eu", "a", origin, nil)
		l.Allow(t.Context(), ask("k", 5, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Stop(ctx)
		if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "cost 5 was not confirmed") {
			t.Errorf("Stop: %v", err)
		}
	})
}

// Every dependency may die, and decisions go on, without a wait for each of them.
func TestDecisionsGoOnWithoutAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, origin := memstore.NewCounts(memstore.CountsOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
		counts.Faults.Delay(time.Hour)
		origin.Faults.Delay(time.Hour)
		l := started(t, "eu", "a", origin, counts)
		began := time.Now()
		allowed := 0
		for range 100 {
			if l.Allow(t.Context(), ask("k", 1, 10)).Allowed {
				allowed++
			}
		}
		if allowed != 10 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%d allowed of 10 in %v", allowed, time.Since(began))
		}
		counts.Faults.Delay(0)
		origin.Faults.Delay(0)
		time.Sleep(40 * time.Second)
		if got := totals(origin); len(got) != 1 {
			t.Errorf("the origin after recovery: %v", got)
		}
		for _, total := range totals(origin) {
			if total < 10 || total > 20 { // a reply may have been lost
				t.Errorf("origin has %d of 10", total)
			}
		}
	})
}

// If a document cannot be read, the limiter keeps the last valid settings.
func TestTuningIsAppliedAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		l := started(t, "eu", "a", nil, counts)
		version := func() int64 {
			time.Sleep(7 * time.Second)
			beats := counts.Heartbeats()
			return beats[len(beats)-1].TuningVersion
		}
		doc, err := tuning.RFC().Document()
		if err != nil {
			t.Fatal(err)
		}
		counts.SetTuning("", 3, doc)
		if got := version(); got != 3 {
			t.Errorf("version %d, want the fleet's 3", got)
		}
		time.Sleep(30 * time.Second)
		counts.SetTuning("eu", 4, []byte(`{"floor":7}`))
		time.Sleep(20 * time.Second)
		if got := version(); got != 3 {
			t.Errorf("version %d after an unreadable one, want 3", got)
		}
		if h := l.Health(); !strings.Contains(h.SettingsProblem, "floor is 7 (0 to 1)") || h.SettingsErrors == 0 {
			t.Errorf("the problem is not reported: %+v", h)
		}
		counts.SetTuning("eu", 5, []byte(`{"floor":0.6,"of_a_newer_build":1,"requires":["of_a_newer_build"]}`))
		time.Sleep(20 * time.Second)
		if got := version(); got != 3 {
			t.Errorf("version %d after one that takes a newer build, want 3", got)
		}
		if h := l.Health(); !strings.Contains(h.SettingsProblem, `requires "of_a_newer_build"`) {
			t.Errorf("the problem is not reported: %q", h.SettingsProblem)
		}
		counts.SetTuning("eu", 6, []byte(`{"floor":0.7,"of_a_newer_build":0}`))
		time.Sleep(20 * time.Second)
		if got := version(); got != 6 {
			t.Errorf("version %d, want the region's 6", got)
		}
		if h := l.Health(); h.SettingsProblem != "" {
			t.Errorf("the problem stays: %q", h.SettingsProblem)
		}
	})
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	origin, counts := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	for _, c := range []struct {
		cfg  dataplane.Config
		want string
	}{
		{dataplane.Config{Origin: origin}, "Config.Region is required"},
		{dataplane.Config{Settings: counts, NodeID: "a"}, "Config.Region is required when Origin or Settings is set"},
		{dataplane.Config{NodeID: "a\nb"}, `Config.NodeID is "a\nb" (UTF-8 without control characters)`},
		{dataplane.Config{NodeID: "a\xff"}, `Config.NodeID is "a\xff"`}, {dataplane.Config{Build: "\x00"}, "Config.Build is"},
		{dataplane.Config{Region: strings.Repeat("r", 49)}, "Config.Region: region is 49 bytes long (1 to 48)"},
		{dataplane.Config{Region: "e\xffu"}, `Config.Region: region is "e\xffu", which is not UTF-8`},
		{dataplane.Config{NodeID: strings.Repeat("r", 65)}, "Config.NodeID is 65 bytes long"},
		{dataplane.Config{Build: strings.Repeat("r", 65)}, "Config.Build is 65 bytes long"},
		{dataplane.Config{EntriesMax: -1}, "Config.EntriesMax is -1"},
		{dataplane.Config{ReadTimeout: time.Minute}, "Config.ReadTimeout is 1m0s"},
		{dataplane.Config{ClockSkewMax: -1}, "Config.ClockSkewMax is -1ns"},
	} {
		if _, err := dataplane.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	if _, err := dataplane.New(dataplane.Config{Origin: origin}); !errors.Is(err, dataplane.ErrRegionRequired) {
		t.Error(err)
	}
}
