package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// The doctor reports for each region whether it is relayed, and how late other regions' counts arrive.
func TestExamineRelays(t *testing.T) {
	started := func(n fleet.Node, upMs int64) fleet.Node {
		n.StartedAtMs = n.SentAtMs - upMs
		return n
	}
	for name, tc := range map[string]struct {
		nodes []fleet.Node
		want  string // "check result: finding"
	}{
		"relayed": {[]fleet.Node{node("n1", "eu"), node("n2", "us"), relaysNothing(node("n3", "us"))},
			"relays ok: 2 shards of 2 regions are relayed\nconvergence ok: changes are at most 300ms old when they are read, and counts wait at most 200ms to be sent"},
		"not relayed": {[]fleet.Node{relaysNothing(node("n1", "eu")), node("n2", "us")},
			"relays fail: no node relays shard 0 of eu\nconvergence ok: changes are at most 300ms"},
		"just started": {[]fleet.Node{started(relaysNothing(node("n1", "eu")), 5000)},
			"relays ok: no node has a relay yet: a relay needs Redis and MySQL\nconvergence ok: no change of another region has been read lately"},
		"without Redis": {[]fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay = nil })},
			"relays ok: no node has a relay yet: a relay needs Redis and MySQL\nconvergence ok: no change"},
		"changes are late": {[]fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.LagP99Ms["ap"] = 11_000 })},
			"relays ok: 1 shard of 1 region is relayed\nconvergence warn: changes of ap are up to 11s old when they are read, and counts wait up to 200ms to be sent"},
		"no changes of anybody": {[]fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.LagP99Ms = nil }),
			with(node("n2", "us"), func(n *fleet.Node) { n.Health.Relay.LagP99Ms = nil })},
			"relays ok: 2 shards\nconvergence warn: no region reports how old the others' changes are"},
		"one region": {[]fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.LagP99Ms = nil })},
			"relays ok: 1 shard\nconvergence ok: no change of another region has been read lately"},
		"all send heartbeats": {[]fleet.Node{node("n1", "eu"), node("n2", "us")}, "heartbeats ok: 2 nodes send heartbeats"},
		"a node is silent": {[]fleet.Node{node("n1", "eu"), silent(node("n2", "eu"), time.Minute)},
			"heartbeats warn: 1 node sends heartbeats, and no longer n2"},
		"a node is long gone": {[]fleet.Node{node("n1", "eu"), silent(node("n2", "eu"), 2*time.Hour)},
			"heartbeats ok: 1 node sends heartbeats"},
		"all are silent": {[]fleet.Node{silent(node("n1", "eu"), time.Minute), silent(node("n2", "us"), 2*time.Hour)},
			"heartbeats fail: no node sends heartbeats, and none of eu, us does any more"},
		"a region is silent": {[]fleet.Node{node("n1", "eu"), silent(node("n2", "us"), time.Minute)},
			"heartbeats fail: 1 node sends heartbeats, and none of us does any more"},
		"counts wait": {[]fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.UnpublishedMs = 11_000 })},
			"relays ok: 1 shard\nconvergence warn: changes of ap are up to 300ms old when they are read, and counts wait up to 11s to be sent"},
	} {
		list := func(context.Context) (fleet.Fleet, error) {
			return fleet.Fleet{Now: watchNow, Nodes: tc.nodes}, nil
		}
		checks := ExamineNodes(list)(t.Context())
		for _, line := range strings.Split(tc.want, "\n") {
			said := false
			for _, c := range checks {
				said = said || strings.HasPrefix(fmt.Sprintf("%s %s: %s", c.Name, c.Result, c.What), line) && (c.Do == "") == (c.Result == CheckOK)
			}
			if !said {
				t.Errorf("%s: no %q in %+v", name, line, checks)
			}
		}
	}
}

// The time within which a node is live fits the stored tunings, whichever build wrote them.
func TestExamineLiveWithin(t *testing.T) {
	of := func(documents ...string) func(context.Context) ([]tunings.RegionTuning, error) {
		return func(context.Context) (all []tunings.RegionTuning, err error) {
			for i, d := range documents {
				all = append(all, tunings.RegionTuning{Region: []string{"", "eu"}[i], Version: int64(i + 1), Document: d})
			}
			return all, nil
		}
	}
	down := func(context.Context) ([]tunings.RegionTuning, error) {
		return nil, errors.New("MySQL does not answer")
	}
	for name, c := range map[string]struct {
		newest func(context.Context) ([]tunings.RegionTuning, error)
		want   string
	}{
		"defaults":     {of(), "ok: nodes send heartbeats within 30s by every stored tuning"},
		"fitting":      {of(`{}`, `{"settings_interval_ms":2000}`), "ok: "},
		"the fleet's":  {of(`{"settings_interval_ms":20000}`), "fail: the tuning of the fleet: invalid tuning: node-live-within is 30000 ms (at least "},
		"a region's":   {of(`{}`, `{"settings_interval_ms":20000}`), "fail: the tuning of region eu: invalid tuning: node-live-within is 30000 ms"},
		"not readable": {down, "fail: MySQL does not answer"},
	} {
		checks := ExamineLiveWithin(c.newest, 30*time.Second)(t.Context())
		if len(checks) != 1 || !strings.HasPrefix(string(checks[0].Result)+": "+checks[0].What, c.want) {
			t.Errorf("%s: %+v, want %s", name, checks, c.want)
		}
	}
}

// A listing without all nodes proves nothing about the rest.
func TestExamineNodesOfALargeFleet(t *testing.T) {
	list := func(context.Context) (fleet.Fleet, error) {
		return fleet.Fleet{Now: watchNow, Nodes: []fleet.Node{node("n1", "eu")}, Truncated: true}, nil
	}
	if c := ExamineNodes(list)(t.Context())[0]; c.Result != CheckWarn || !strings.Contains(c.What, "the rest are not checked") {
		t.Errorf("%+v", c)
	}
}

// A relay whose last success is later than its heartbeat has had no success since its clock was set back.
func TestARelaysStallDoesNotHideForACorrectionOfTheClock(t *testing.T) {
	ahead := with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.InStepAtMs = n.SentAtMs + time.Hour.Milliseconds() })
	if found := (region{name: "eu", live: []fleet.Node{ahead}}).relayFindings(time.Minute, time.Hour); len(found) != 1 || found[0].Kind != FindingRelayStalled {
		t.Errorf("%+v", found)
	}
	if h := retire.JudgeCounts(fleet.Fleet{Now: watchNow, Nodes: []fleet.Node{ahead}}, time.Minute.Milliseconds()); !strings.Contains(h.Problem, "was set back") {
		t.Errorf("%+v", h)
	}
	soon := with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.InStepAtMs = n.SentAtMs + 1000 })
	if found := (region{name: "eu", live: []fleet.Node{soon}}).relayFindings(time.Minute, time.Hour); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// Without heartbeats the doctor reports that, and checks no relays.
func TestExamineNodesWithoutHeartbeats(t *testing.T) {
	for want, list := range map[string]func(context.Context) (fleet.Fleet, error){
		"heartbeats warn": func(context.Context) (fleet.Fleet, error) { return fleet.Fleet{}, nil },
		"heartbeats fail": func(context.Context) (fleet.Fleet, error) {
			return fleet.Fleet{}, errors.New("MySQL does not answer")
		},
	} {
		checks := ExamineNodes(list)(t.Context())
		if len(checks) != 1 || checks[0].Name+" "+string(checks[0].Result) != want {
			t.Errorf("%+v, want %s", checks, want)
		}
	}
}

// However many shards a heartbeat claims, the doctor looks at no more shards than an origin has.
func TestShardsOfAHeartbeatAreBounded(t *testing.T) {
	odd := fleet.Node{Live: true, Heartbeat: heartbeat.Heartbeat{Health: heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1 << 40, Held: []int{-1, 0, 1 << 40}}}}}
	if missing := fleet.RelayedBy([]fleet.Node{odd}).Missing(); len(missing) != heartbeat.ShardsMax-1 || missing[0] != 1 {
		t.Errorf("%d shards are missing", len(missing))
	}
}
