package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

var errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'")

// settingsOf returns a source of settings with one namespace, "acme"/"api".
func settingsOf(policy, nodeShare string) *memstore.Counts {
	counts := memstore.NewCounts(memstore.CountsOptions{})
	counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: policy, NodeShare: nodeShare})
	return counts
}

// startedFor starts a node, and stops it at the end of the test.
func startedFor(t *testing.T, cfg dataplane.Config) *dataplane.Limiter {
	t.Helper()
	cfg.Region = "eu"
	l, err := dataplane.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	return l
}

// asked has the ways to send a request.
var asked = map[string]func(*testing.T, *dataplane.Limiter, dataplane.Request) dataplane.Decision{
	"single": func(t *testing.T, l *dataplane.Limiter, r dataplane.Request) dataplane.Decision {
		return l.Allow(t.Context(), r)
	},
	"batch": func(t *testing.T, l *dataplane.Limiter, r dataplane.Request) dataplane.Decision {
		b := l.AllowMany(t.Context(), []dataplane.Request{r})
		if b.Allowed != b.Decisions[0].Allowed {
			t.Errorf("%+v", b)
		}
		return b.Decisions[0]
	},
	"handle": func(t *testing.T, l *dataplane.Limiter, r dataplane.Request) dataplane.Decision {
		h, err := l.Handle(r.Workspace, r.Namespace, r.Identifier, r.Duration)
		if err != nil {
			t.Fatal(err)
		}
		return h.Allow(t.Context(), r.Limit, dataplane.Cost(r.Cost))
	},
}

// A Redis that answers reads but refuses writes is an outage for a closed namespace: its nodes' cost reaches no other
// node, so four of them would accept four limits.
func TestAClosedNamespaceIsClosedWhileWritesAreRefused(t *testing.T) {
	for _, nodeShare := range []string{"flush", "wait"} {
		for how, ask1 := range asked {
			for _, room := range []int{0, 1} { // 1: the keys find no room in the table
				t.Run(fmt.Sprintf("%s/%s/room=%d", nodeShare, how, room), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin, settings := memstore.NewOrigin(memstore.OriginOptions{}), settingsOf("closed", nodeShare)
						var nodes []*dataplane.Limiter
						var ways []*memstore.Origin
						for i := range 4 {
							ways = append(ways, origin.Client())
							nodes = append(nodes, startedFor(t, dataplane.Config{NodeID: fmt.Sprint("n", i), Origin: ways[i],
								Settings: settings, RegionNodes: 4, EntriesMax: room}))
							if room > 0 {
								nodes[i].Allow(t.Context(), ask("blocked", 1, 1)) // pinned: it is at its limit
							}
						}
						time.Sleep(time.Second)
						for _, way := range ways {
							way.Faults.Refuse(errFull, memstore.OriginWrites()...)
						}
						allowed, last := 0, dataplane.Decision{}
						for range 150 {
							for _, n := range nodes {
								if last = ask1(t, n, ask("k", 1, 100)); last.Allowed {
									allowed++
								}
							}
							time.Sleep(100 * time.Millisecond)
						}
						if allowed > 100 {
							t.Errorf("%d of 100 were allowed in 15 s", allowed)
						}
						if last.Allowed || last.Source != dataplane.SourceDegradedClosed || last.RetryAfter <= 0 {
							t.Errorf("after 15 s: %+v", last)
						}
						if h := nodes[0].Health(); h.BreakersOpen != 1 || h.Degraded == 0 {
							t.Errorf("the health of a node does not show it: %+v", h)
						}
						for _, way := range ways {
							way.Faults.Refuse(nil)
						}
						time.Sleep(2 * time.Second)
						for i, n := range nodes {
							for range 3 { // the number of calls that the breaker of reads and claims needs
								ask1(t, n, ask("new", 1, 100))
							}
							if d := ask1(t, n, ask("new", 1, 100)); !d.Allowed || d.Source.Degraded() || n.Health().BreakersOpen != 0 {
								t.Errorf("node %d, 2 s after writes are taken again: %+v, %+v", i, d, n.Health())
							}
						}
					})
				})
			}
		}
	}
}

// Only the shard that refuses writes is out, and the other policies work as in an outage.
func TestPoliciesWhileOneShardRefusesWrites(t *testing.T) {
	for policy, want := range map[string]dataplane.Decision{
		"local":  {Allowed: false, Source: dataplane.SourceLocal},
		"open":   {Allowed: true, Source: dataplane.SourceDegradedOpen},
		"closed": {Allowed: false, Source: dataplane.SourceDegradedClosed},
	} {
		for how, ask1 := range asked {
			t.Run(policy+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
					l := startedFor(t, dataplane.Config{Origin: origin, Settings: settingsOf(policy, "flush")})
					keys := [2]string{}
					for i := 0; keys[0] == "" || keys[1] == ""; i++ {
						key := windowKey(ask(fmt.Sprint("k", i), 1, 4))
						keys[origin.ShardOf(&key)] = key.Identifier
					}
					time.Sleep(time.Second)
					origin.ShardFaults(1).Refuse(errFull, memstore.OriginWrites()...)
					for range 4 { // up to the limit
						ask1(t, l, ask(keys[1], 1, 4))
					}
					time.Sleep(300 * time.Millisecond)
					if policy == "open" { // a denial makes decisions about the key read the origin first
						ask1(t, l, ask(keys[1], 1, 4))
						ask1(t, l, ask(keys[1], 1, 4))
					}
					r := ask(keys[1], 1, 4)
					if policy == "closed" {
						r.Limit = 40 // the counts alone would allow it
					}
					if d := ask1(t, l, r); d.Allowed != want.Allowed || d.Source != want.Source {
						t.Errorf("on the shard that refuses: %+v, want %+v", d, want)
					}
					if d := ask1(t, l, ask(keys[0], 1, 4)); !d.Allowed || d.Source.Degraded() {
						t.Errorf("on the other shard: %+v", d)
					}
					if got := l.Health().BreakersOpen; got != 1 {
						t.Errorf("%d shards are reported as out, want 1", got)
					}
					origin.ShardFaults(1).Refuse(nil)
				})
			})
		}
	}
}

// Refused claims are each decided by the policy, and have no effect on sends; refused reads are an outage of their
// keys. A single lost reply is neither.
func TestOneRefusedKindOfCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l := startedFor(t, dataplane.Config{Origin: origin, Settings: settingsOf("closed", "wait"), RegionNodes: 4})
		time.Sleep(time.Second)
		origin.Faults.Refuse(errFull, memstore.OpClaim)
		if d := l.Allow(t.Context(), ask("claimed", 5, 10)); d.Allowed || d.Source != dataplane.SourceDegradedClosed {
			t.Errorf("a claim that is refused: %+v", d)
		}
		if d := l.Allow(t.Context(), ask("far", 1, 1000)); !d.Allowed || d.Source.Degraded() {
			t.Errorf("far from its limit, with claims refused: %+v", d)
		}
		origin.Faults.Refuse(nil)
		origin.Faults.Refuse(errFull, memstore.OpRead)
		if d := l.Allow(t.Context(), ask("cold", 1, 1000)); d.Allowed || d.Source != dataplane.SourceDegradedClosed {
			t.Errorf("a cold key with reads refused: %+v", d)
		}
		if d := l.Allow(t.Context(), ask("far", 1, 1000)); !d.Allowed {
			t.Errorf("a fresh key with reads refused: %+v", d)
		}
		origin.Faults.Refuse(nil)
		origin.Faults.LoseReplies(true)
		for errors := l.Health().ReplayErrors; l.Health().ReplayErrors == errors; {
			time.Sleep(time.Millisecond) // until the send of "far" has failed once
		}
		origin.Faults.LoseReplies(false)
		if d := l.Allow(t.Context(), ask("far", 1, 1000)); !d.Allowed {
			t.Errorf("after one lost reply: %+v", d)
		}
	})
}
