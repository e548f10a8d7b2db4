package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// region starts n nodes that share an origin and a namespace's node share.
func region(t testing.TB, n int, origin store.Origin, row store.NamespaceRow, change ...func(*dataplane.Config)) []*dataplane.Limiter {
	t.Helper()
	counts := memstore.NewCounts(memstore.CountsOptions{})
	row.Workspace, row.Namespace = "acme", "api"
	counts.SetNamespaces(row)
	nodes := make([]*dataplane.Limiter, n)
	for i := range nodes {
		cfg := dataplane.Config{Region: "eu", NodeID: fmt.Sprint(i), Origin: origin, Settings: counts, RegionNodes: n}
		for _, f := range change {
			f(&cfg)
		}
		l, err := dataplane.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.LoadSettings(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := l.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		nodes[i] = l
	}
	return nodes
}

// tick sets the interval of replay.
func tick(t testing.TB, every time.Duration) func(*dataplane.Config) {
	set := tuning.Default()
	set.ReplayTick = tuning.Duration(every)
	doc, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *dataplane.Config) { c.Settings.(*memstore.Counts).SetTuning("", 1, doc) }
}

func stopAll(nodes []*dataplane.Limiter) {
	together(len(nodes), func(i int) { _ = nodes[i].Stop(context.Background()) })
}

// burst runs callers on every node that send requests until they are denied, and returns the accepted cost.
func burst(nodes []*dataplane.Limiter, callers int, limit, cost int64) int64 {
	var admitted atomic.Int64
	together(len(nodes)*callers, func(i int) {
		for nodes[i%len(nodes)].Allow(context.Background(), ask("k", cost, limit)).Allowed {
			admitted.Add(cost)
		}
	})
	return admitted.Load()
}

// A burst that lands on all nodes at once is admitted up to about the limit with wait: at most 1.2 times. With flush,
// the overshoot is bounded by the cost that a round trip admits.
func TestABurstOnFiveNodes(t *testing.T) {
	for _, limit := range []int64{10, 100, 10_000} {
		for _, cost := range []int64{1, limit / 100} {
			for _, nodeShare := range []string{"wait", "flush"} {
				if cost == 0 {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					origin := memstore.NewOrigin(memstore.OriginOptions{})
					origin.Faults.Delay(time.Millisecond)
					nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: nodeShare})
					defer stopAll(nodes)
					for _, n := range nodes { // no node starts cold
						n.Allow(t.Context(), ask("k", 0, limit))
					}
					began := time.Now()
					admitted := burst(nodes, 4, limit, cost)
					ratio := float64(admitted) / float64(limit)
					t.Logf("%s, limit %d, cost %d: %.2f of the limit in %v", nodeShare, limit, cost, ratio, time.Since(began))
					if nodeShare == "wait" && (ratio > 1.2 || ratio < 1) || ratio > 5 || nodeShare == "wait" && limit <= 10 && admitted != limit {
						t.Errorf("%s, limit %d, cost %d: %d admitted", nodeShare, limit, cost, admitted)
					}
				})
			}
		}
	}
}

// Small limits are exact too: five nodes, limit 10, one burst, any delays and any order: exactly 10.
func TestSmallLimitsAreExactAcrossNodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(0, 5_000), 16, 16).Draw(rt, "delays in µs")
		starts := rapid.SliceOfN(rapid.IntRange(0, 8_000), 20, 20).Draw(rt, "starts in µs")
		limit := rapid.Int64Range(1, 10).Draw(rt, "limit")
		cells := rapid.Bool().Draw(rt, "with a previous cell")
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			slow := &uneven{Origin: origin, delays: delays}
			nodes := region(t, 5, slow, store.NamespaceRow{NodeShare: "wait", Outage: "closed"})
			defer stopAll(nodes)
			want := limit
			if spent := limit / 2; cells && spent > 0 { // a moment later a unit of it has left
				nodes[0].Allow(context.Background(), ask("k", spent, limit))
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 100*time.Millisecond)))
				want -= spent - 1
			}
			var admitted atomic.Int64
			together(20, func(i int) {
				time.Sleep(time.Duration(starts[i]) * time.Microsecond)
				for range 4 {
					if nodes[i%5].Allow(context.Background(), ask("k", 1, limit)).Allowed {
						admitted.Add(1)
					}
				}
			})
			if got := admitted.Load(); got != want {
				rt.Errorf("%d admitted, want exactly %d", got, want)
			}
		})
	})
}

// uneven is an origin whose calls take different delays in turn.
type uneven struct {
	*memstore.Origin
	delays []int
	calls  atomic.Int64
}

func (o *uneven) pause(part int64) {
	n := o.calls.Add(1)
	time.Sleep(time.Duration(o.delays[(n+part)%int64(len(o.delays))]) * time.Microsecond)
}

func (o *uneven) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	o.pause(0)
	defer o.pause(1)
	return o.Origin.Send(ctx, c)
}

// With flush, a sustained burst converges within a round trip, not within a tick: two nodes, limit 500 per second,
// 800 offered, a tick of 200 ms: 0.97 to 1.03 of the limit.
func TestASustainedLoadOnTwoNodes(t *testing.T) {
	for _, nodeShare := range []string{"flush", "wait"} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(time.Millisecond)
			nodes := region(t, 2, origin, store.NamespaceRow{NodeShare: nodeShare}, tick(t, 200*time.Millisecond))
			defer stopAll(nodes)
			r := ask("k", 1, 500)
			r.Duration = time.Second
			var admitted atomic.Int64
			const seconds, warmUp = 20, 3
			var asking sync.WaitGroup
			for i := range (seconds + warmUp) * 800 { // a waiting caller does not delay another
				asking.Go(func() {
					if nodes[i%2].Allow(t.Context(), r).Allowed && i >= warmUp*800 {
						admitted.Add(1)
					}
				})
				time.Sleep(time.Second / 800)
			}
			asking.Wait()
			ratio := float64(admitted.Load()) / (500 * seconds)
			t.Logf("%s: %.3f of the limit, %+v", nodeShare, ratio, origin.Stats())
			if ratio < 0.97 || ratio > 1.03 {
				t.Errorf("%s: %.3f of the limit", nodeShare, ratio)
			}
		})
	}
}

// A key far from its limit never waits and never flushes.
func TestAKeyFarFromItsLimitIsLeftAlone(t *testing.T) {
	for _, nodeShare := range []string{"flush", "wait"} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(10 * time.Millisecond)
			nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: nodeShare})
			defer stopAll(nodes)
			nodes[0].Allow(t.Context(), ask("k", 1, 10_000))
			began := time.Now()
			for range 400 {
				nodes[0].Allow(t.Context(), ask("k", 1, 10_000))
			}
			m := gather(t, nodes[0])
			if time.Since(began) != 0 || m["weir_node_share_flushes_total"] != 0 || m[`weir_node_share_waits_total{result="replied"}`] != 0 {
				t.Errorf("%s: took %v, %v flushes", nodeShare, time.Since(began), m["weir_node_share_flushes_total"])
			}
		})
	}
}

// "share = max(cost, (limit - confirmed) / 2n)": the previous cell's weighted cost is confirmed too, so a key that
// has filled that cell flushes from its first costs in the next.
func TestThePreviousCellLeavesASmallShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 2, origin, store.NamespaceRow{}, tick(t, 10*time.Second))
		defer stopAll(nodes)
		r := ask("k", 1, 1000)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		for nodes[0].Allow(t.Context(), r).Allowed {
		}
		time.Sleep(time.Minute + 3*time.Second)
		synctest.Wait()
		before := gather(t, nodes[0])["weir_node_share_flushes_total"]
		for range 20 { // of a remaining limit of 50, and so of a share of 12
			if !nodes[0].Allow(t.Context(), r).Allowed {
				t.Fatal("denied")
			}
			synctest.Wait()
		}
		if flushes := gather(t, nodes[0])["weir_node_share_flushes_total"] - before; flushes < 2 {
			t.Errorf("%v flushes for 20 of 50 that were left", flushes)
		}
	})
}

// If no share arrives in time, the caller follows the outage policy, and its key rests.
func TestWaitingInVainIsAnOutage(t *testing.T) {
	for policy, want := range map[string]dataplane.Source{
		"local": dataplane.SourceDegraded, "open": dataplane.SourceDegradedOpen, "closed": dataplane.SourceDegradedClosed,
	} {
		for _, limit := range []int64{5, 100} { // a claim, and a reply
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: "wait", Outage: policy})
				defer stopAll(nodes)
				n := nodes[0]
				n.Allow(t.Context(), ask("k", 0, limit))
				origin.Faults.Delay(200 * time.Millisecond)
				began := time.Now()
				var d dataplane.Decision
				for d = n.Allow(t.Context(), ask("k", 1, limit)); !d.Source.Degraded(); d = n.Allow(t.Context(), ask("k", 1, limit)) {
				}
				if took := time.Since(began); took != 50*time.Millisecond || d.Source != want || d.Allowed != (policy != "closed") {
					t.Errorf("%s, limit %d: %+v after %v", policy, limit, d, took)
				}
				began = time.Now()
				if d := n.Allow(t.Context(), ask("k", 1, limit)); d.Source != want || time.Since(began) != 0 {
					t.Errorf("%s, limit %d: while it rests: %+v after %v", policy, limit, d, time.Since(began))
				}
				origin.Faults.Delay(0)
				time.Sleep(2 * time.Second)
			})
		}
	}
}

// A send that gets no answer ends the wait of the decisions whose cost it carried: no decision takes it for a reply
// and waits again.
func TestASendWithoutAnAnswerIsNoReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 1, origin, store.NamespaceRow{NodeShare: "wait"}, func(c *dataplane.Config) { c.RegionNodes = 5 }, tick(t, 10*time.Second))
		defer stopAll(nodes)
		n := nodes[0]
		n.Allow(t.Context(), ask("k", 0, 100)) // reads that the origin has nothing
		origin.Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpSend {
				return errDown
			}
			return nil
		})
		for range 4 {
			n.Allow(t.Context(), ask("k", 4, 100))
		}
		origin.Faults.Hook(nil)
		m := gather(t, n)
		if m[`weir_node_share_waits_total{result="replied"}`] != 0 || m[`weir_node_share_waits_total{result="outage"}`] == 0 {
			t.Errorf("%v replied, %v in vain", m[`weir_node_share_waits_total{result="replied"}`], m[`weir_node_share_waits_total{result="outage"}`])
		}
	})
}

// If a claim's reply is lost, the node errs on the safe side: cost that may have been added is never granted twice.
func TestALostClaimErrsOnTheSafeSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: "wait"})
		defer stopAll(nodes)
		admitted := int64(0)
		take := func(n *dataplane.Limiter) {
			if n.Allow(t.Context(), ask("k", 1, 10)).Allowed {
				admitted++
			}
		}
		take(nodes[0])
		origin.Faults.LoseReplies(true)
		take(nodes[0])
		origin.Faults.LoseReplies(false)
		time.Sleep(time.Second)
		for range 20 {
			for _, n := range nodes {
				take(n)
			}
		}
		if admitted > 10 || admitted < 8 {
			t.Errorf("%d admitted of 10", admitted)
		}
	})
}

// A batch waits for fresh totals of all its keys together, and decides with them.
func TestABatchWaitsForFreshTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: "wait"})
		defer stopAll(nodes)
		batch := []dataplane.Request{ask("small", 1, 5), ask("big", 10, 1000)}
		nodes[0].AllowMany(t.Context(), batch)
		origin.Faults.Delay(4 * time.Millisecond)
		time.Sleep(time.Second)
		for i := range 4 { // other nodes spend the rest
			nodes[1+i].Allow(t.Context(), ask("small", 1, 5))
		}
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		b := nodes[0].AllowMany(t.Context(), batch)
		if b.Allowed || b.Decisions[0].Allowed || b.Decisions[0].Source != dataplane.SourceOrigin || time.Since(began) != 4*time.Millisecond {
			t.Errorf("%+v after %v", b, time.Since(began))
		}
	})
}

// The next tick's work is proportional to active keys: of 20,000 accepted a second on one node, all reach the origin,
// at any latency up to 50 ms, in a call or two per tick.
func TestReplayUnderLoadLosesNothing(t *testing.T) {
	for _, latency := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(latency)
			nodes := region(t, 1, origin, store.NamespaceRow{})
			const keys, seconds = 50, 10
			for i := range seconds * 1000 {
				for j := range 20 {
					r := ask(fmt.Sprint("k", (20*i+j)%keys), 1, 1<<40)
					r.Duration = time.Hour
					if !nodes[0].Allow(t.Context(), r).Allowed {
						t.Fatal("denied")
					}
				}
				time.Sleep(time.Millisecond)
			}
			if err := nodes[0].Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			var total int64
			for _, n := range totals(origin) {
				total += n
			}
			s := origin.Stats()
			t.Logf("%v: %d calls of %d cells for %d accepted", latency, s.Sends, s.CellsAdded, total)
			if total != 20_000*seconds || s.CellsAdded > keys*(seconds*1000/80+2) {
				t.Errorf("%v: the origin holds %d of %d, by %d increments", latency, total, 20_000*seconds, s.CellsAdded)
			}
		})
	}
}

// Every figure exists from the start, at 0; errors of settings name the invalid values.
func TestNodeShareFiguresAndBounds(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	m := gather(t, n.Limiter)
	for _, name := range []string{
		`weir_origin_breaker_state{calls="asks",shard="0"}`, `weir_origin_breaker_state{calls="sends",shard="0"}`, `weir_origin_pending_sync{shard="0"}`, "weir_node_share_flushes_total",
		`weir_node_share_waits_total{result="replied"}`, `weir_node_share_waits_total{result="outage"}`,
		`weir_origin_claims_total{result="added"}`, `weir_origin_claims_total{result="refused"}`, `weir_origin_claims_total{result="failed"}`,
	} {
		if got, there := m[name]; !there || got != 0 {
			t.Errorf("%s: %v, %v", name, got, there)
		}
	}
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "shove"})
	if err := n.LoadSettings(t.Context()); err == nil || !strings.Contains(err.Error(), `node_share is "shove" (wait or flush)`) {
		t.Errorf("%v", err)
	}
	if _, err := dataplane.New(dataplane.Config{RegionNodes: -1}); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "Config.RegionNodes") {
		t.Errorf("%v", err)
	}
}

// A region's nodes are the nodes with recent heartbeats.
func TestLiveNodesAreCountedByTheirHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		for _, b := range []heartbeat.Heartbeat{{NodeID: "a", Region: "eu"}, {NodeID: "b", Region: "eu"}, {NodeID: "c", Region: "us"}} {
			if err := counts.Heartbeat(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []int{2, 0} {
			if rows, err := counts.Settings(t.Context(), "eu"); err != nil || rows.NodesLive != want {
				t.Errorf("%d live nodes, %v; want %d", rows.NodesLive, err, want)
			}
			time.Sleep(store.NodeLiveFor)
		}
	})
}

// A key that was denied recently is read before it passes. The exception is a namespace that waits for its share, if
// the decision waits for an answer about the key anyway: then it waits for one answer, not for two.
func TestADecisionThatClaimsWaitsForOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := waiting(t, 5, origin, 10, store.NamespaceRow{})
		defer stopAll(nodes)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 50*time.Second)))
		for nodes[0].Allow(t.Context(), ask("k", 1, 10)).Allowed {
		}
		time.Sleep(20 * time.Second) // 8 of the 10 still have weight
		origin.Faults.Delay(4 * time.Millisecond)
		for i, want := range []struct {
			allowed bool
			took    time.Duration
		}{
			{true, 8 * time.Millisecond}, // the previous cell has not been read since it ended
			{true, 4 * time.Millisecond},
			{false, 0}, // denied by the counts in memory
		} {
			began := time.Now()
			d := nodes[0].Allow(t.Context(), ask("k", 1, 10))
			if took := time.Since(began); took != want.took || d.Allowed != want.allowed {
				t.Errorf("decision %d: %+v after %v, want %+v", i, d, took, want)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}

// If the node's share holds the cost, a key that was denied recently is read first, as it is without shares.
func TestAStrictKeyIsReadBeforeItsShareIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := waiting(t, 2, origin, 1000, store.NamespaceRow{})
		defer stopAll(nodes)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		nodes[0].Allow(t.Context(), ask("k", 500, 1000))
		nodes[0].Allow(t.Context(), ask("k", 600, 1000)) // denied
		time.Sleep(30 * time.Second)
		reads := origin.Stats().Gets
		if d := nodes[0].Allow(t.Context(), ask("k", 1, 1000)); !d.Allowed || d.Source != dataplane.SourceOrigin {
			t.Errorf("%+v", d)
		}
		if got := origin.Stats().Gets - reads; got != 1 {
			t.Errorf("%d reads, want 1", got)
		}
	})
}
