package console

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/console/pulse"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// A node's problems are described, with the time since when they exist.
func TestJudge(t *testing.T) {
	const now = 1_700_000_000_000
	well := func() *controlv1.Node {
		return &controlv1.Node{NodeId: "a", Region: "eu", Live: true, StartedAtMs: now - 600_000, SeenAtMs: now - 1000,
			Health: &controlv1.NodeHealth{ReplayedAtMs: now - 100, SettingsAtMs: now - 5000,
				Relay: &controlv1.NodeRelay{Shards: 1, Held: []int32{0}, InStepAtMs: now - 500, UnpublishedMs: 200, LagP99Ms: map[string]int64{"us": 300}}}}
	}
	for name, tc := range map[string]struct {
		change func(*controlv1.Node)
		state  string
		says   string
	}{
		"well":           {func(*controlv1.Node) {}, "ok", ""},
		"silent":         {func(n *controlv1.Node) { n.Live, n.AgeMs = false, 90_000 }, "bad", "last heartbeat at 22:13:19 (90 s ago)"},
		"breaker":        {func(n *controlv1.Node) { n.Health.BreakersOpen = 1 }, "bad", "decides without its Redis: 1 breaker is open, its last complete replay was at 22:13:19 (100 ms ago)"},
		"dropped":        {func(n *controlv1.Node) { n.Health.DroppedCostTotal = 3 }, "bad", "has lost accepted cost: 3"},
		"no replay":      {func(n *controlv1.Node) { n.Health.PendingCost, n.Health.ReplayedAtMs = 5, now-120_000 }, "late", "its accepted cost has not reached Redis since 22:11:20 (2 min)"},
		"nothing to do":  {func(n *controlv1.Node) { n.Health.ReplayedAtMs = now - 120_000 }, "ok", ""},
		"relay hangs":    {func(n *controlv1.Node) { n.Health.Relay.InStepAtMs = now - 300_000 }, "late", "relays shard 0, and has exchanged no counts with other regions since 22:08:20 (5 min)"},
		"never in step":  {func(n *controlv1.Node) { n.Health.Relay.InStepAtMs = 0 }, "late", "since 22:03:20 (10 min)"},
		"just started":   {func(n *controlv1.Node) { n.Health.Relay.InStepAtMs, n.StartedAtMs = 0, now-5000 }, "ok", ""},
		"relays nothing": {func(n *controlv1.Node) { n.Health.Relay = &controlv1.NodeRelay{Shards: 1} }, "ok", ""},
		"unpublished":    {func(n *controlv1.Node) { n.Health.Relay.UnpublishedMs = 12_000 }, "late", "its oldest unsent count is 12 s old"},
		"clock ahead": {func(n *controlv1.Node) {
			n.ClockSkewMs, n.Health.Relay.InStepAtMs, n.Health.SettingsAtMs = 3_600_000, now+3_600_000-5000, now+3_600_000
		}, "late", "its clock is off by 1 h"},
		"late counts": {func(n *controlv1.Node) { n.Health.Relay.LagP99Ms["us"] = 12_000 }, "late", "arrive late: 12 s"},
		"bad counts":  {func(n *controlv1.Node) { n.Health.Relay.LagP99Ms["us"] = 40_000 }, "bad", "arrive late: 40 s"},
		"settings":    {func(n *controlv1.Node) { n.Health.SettingsProblem = "floor is 7" }, "late", "does not run the newest settings: floor is 7"},
	} {
		n := well()
		tc.change(n)
		v := describe(pulse.Reading{Fleet: &controlv1.FleetResponse{NowMs: now, Nodes: []*controlv1.Node{n, well()}}})
		got := v.Regions[0].Nodes[0]
		said := ""
		for _, f := range v.Findings {
			said += f.Text
		}
		if got.State != tc.state || (said == "") != (tc.state == "ok") || tc.says != "" && !strings.Contains(said, tc.says) {
			t.Errorf("%s: %s, %q; want %s, %q", name, got.State, said, tc.state, tc.says)
		}
	}
}

// A region without a relay for a shard receives no counts of other regions. Nodes that have just started are expected
// to relay soon.
func TestARegionWithoutARelay(t *testing.T) {
	const now = 1_700_000_000_000
	for name, tc := range map[string]struct {
		up    int64
		held  []int32
		state string
	}{
		"one shard is missing": {600_000, []int32{1}, "bad"},
		"none is missing":      {600_000, []int32{0, 1}, "ok"},
		"just started":         {5_000, nil, "ok"},
	} {
		n := &controlv1.Node{NodeId: "a", Region: "eu", Live: true, StartedAtMs: now - tc.up, SeenAtMs: now,
			Health: &controlv1.NodeHealth{SettingsAtMs: now, Relay: &controlv1.NodeRelay{Shards: 2, Held: tc.held, InStepAtMs: now}}}
		v := describe(pulse.Reading{Fleet: &controlv1.FleetResponse{NowMs: now, Nodes: []*controlv1.Node{n}}})
		if got := v.Regions[0].State; got != tc.state {
			t.Errorf("%s: %s, %v", name, got, v.Findings)
		}
		if says := len(v.Findings) > 0 && strings.Contains(v.Findings[0].Text, "no node relays shard 0 of its Redis"); says != (tc.state == "bad") {
			t.Errorf("%s: %v", name, v.Findings)
		}
	}
}

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(int64(1_234_567)): "1\u202f234\u202f567", count(-1000): "−1\u202f000",
		rate(0): "0", rate(3.14): "3.1", rate(1234.5): "1\u202f235", percent(0.2): "20\u202f%", percent(0.125): "12.5\u202f%",
		span(0): "0 ms", span(2 * time.Second): "2 s", span(90 * time.Second): "90 s", span(150 * time.Second): "2 min 30 s",
		span(25 * time.Hour): "25 h", span(72*time.Hour + time.Hour): "3 d 1 h", span(-time.Second): "−1 s",
		clock(0): "never", plural(1, "node", "nodes"): "1 node", plural(0, "node", "nodes"): "0 nodes",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
