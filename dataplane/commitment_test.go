package dataplane_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// waiting returns n nodes of a region whose namespace waits. All of them have read the key.
func waiting(t *testing.T, n int, origin store.Origin, limit int64, row store.NamespaceRow, change ...func(*dataplane.Config)) []*dataplane.Limiter {
	row.NodeShare = "wait"
	nodes := region(t, n, origin, row, change...)
	for _, l := range nodes {
		l.Peek(t.Context(), ask("k", 0, limit))
	}
	return nodes
}

// While a claim of 100 of 100 is in flight, singles of 1 are sent → at most 100 in total. The same holds with
// batches, with mixed costs, and on five nodes.
func TestAClaimOnItsWayIsACommitment(t *testing.T) {
	single := func(n *dataplane.Limiter, cost int64) bool {
		return n.Allow(context.Background(), ask("k", cost, 100)).Allowed
	}
	for name, spend := range map[string]func(n *dataplane.Limiter, cost int64) bool{
		"singles": single,
		"handles": func(n *dataplane.Limiter, cost int64) bool {
			key, err := n.Handle("acme", "api", "k", time.Minute)
			return err == nil && key.Allow(context.Background(), 100, dataplane.Cost(cost)).Allowed
		},
		"batches": func(n *dataplane.Limiter, cost int64) bool {
			return n.AllowMany(context.Background(), []dataplane.Request{ask("k", cost, 100)}).Allowed
		},
	} {
		for _, claim := range []string{"single", "batch"} {
			for _, costs := range [][]int64{{1}, {1, 7, 30}} {
				for _, n := range []int{1, 5} {
					t.Run(fmt.Sprintf("%s beside a %s, costs %v, nodes %d", name, claim, costs, n), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							origin := memstore.NewOrigin(memstore.OriginOptions{})
							origin.Faults.Delay(5 * time.Millisecond)
							nodes := waiting(t, n, origin, 100, store.NamespaceRow{})
							defer stopAll(nodes)
							var admitted atomic.Int64
							var claiming sync.WaitGroup
							claiming.Go(func() {
								if claim == "single" && single(nodes[0], 100) {
									admitted.Add(100)
								} else if claim == "batch" && nodes[0].AllowMany(context.Background(), []dataplane.Request{ask("k", 60, 100), ask("k", 40, 100)}).Allowed {
									admitted.Add(100)
								}
							})
							time.Sleep(time.Millisecond) // the claim is in flight
							together(n, func(node int) {
								for i := range 120 {
									if cost := costs[i%len(costs)]; spend(nodes[node], cost) {
										admitted.Add(cost)
									}
								}
							})
							claiming.Wait()
							if got := admitted.Load(); got > 100 || got < 60 {
								t.Errorf("%d of 100 were admitted", got)
							}
						})
					})
				}
			}
		}
	}
}

// If a caller's context ends, nothing changes for other callers: no rest, no outage, and none of the limit.
func TestACallerWhoLeavesChangesNothingForOthers(t *testing.T) {
	for _, outage := range []string{"closed", "local", "open"} {
		for name, leave := range map[string]func(ctx context.Context, n *dataplane.Limiter, cost int64) bool{
			"single": func(ctx context.Context, n *dataplane.Limiter, cost int64) bool {
				return n.Allow(ctx, ask("k", cost, 20)).Allowed
			},
			"batch": func(ctx context.Context, n *dataplane.Limiter, cost int64) bool {
				return n.AllowMany(ctx, []dataplane.Request{ask("k", cost, 20)}).Allowed
			},
		} {
			for _, cost := range []int64{1, 10} { // waits for a reply, and for a claim
				t.Run(fmt.Sprintf("%s, %s, cost %d", outage, name, cost), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						origin.Faults.Delay(5 * time.Millisecond)
						nodes := waiting(t, 2, origin, 20, store.NamespaceRow{Outage: outage})
						defer stopAll(nodes)
						var admitted int64
						for range 6 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
							if leave(ctx, nodes[0], cost) {
								admitted += cost
							}
							cancel()
						}
						if outage == "open" && admitted >= 20 {
							return // all requests, by the policy
						}
						time.Sleep(20 * time.Millisecond)
						for range 20 {
							d := nodes[0].Allow(t.Context(), ask("k", 1, 20))
							if d.Source.Degraded() {
								t.Fatalf("a caller gave up, and for others the origin is %v", d.Source)
							}
							if d.Allowed {
								admitted++
							}
						}
						if admitted != 20 {
							t.Errorf("%d of 20 were admitted", admitted)
						}
					})
				})
			}
		}
	}
}

// "No decision waits longer than ReadTimeout", however many waits it has.
func TestADecisionHasOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(45 * time.Millisecond)
		nodes := region(t, 2, origin, store.NamespaceRow{NodeShare: "wait"})
		defer stopAll(nodes)
		for name, decide := range map[string]func(identifier string) bool{
			"single": func(id string) bool { return nodes[0].Allow(context.Background(), ask(id, 2, 3)).Allowed },
			"batch": func(id string) bool {
				return nodes[0].AllowMany(context.Background(), []dataplane.Request{ask(id, 2, 3), ask(id+" too", 2, 3)}).Allowed
			},
		} {
			began := time.Now()
			allowed := decide(name)
			if took := time.Since(began); took != 50*time.Millisecond || !allowed {
				t.Errorf("%s: allowed %v after %v; ReadTimeout is 50 ms, and the policy local", name, allowed, took)
			}
			time.Sleep(time.Second)
			if got := totals(origin)[minuteCell(name)]; got != 2 {
				t.Errorf("%s: the origin has %d of the 2 that were accepted", name, got)
			}
		}
	})
}

// minuteCell returns the current one-minute cell of ask's key.
func minuteCell(identifier string) window.Cell {
	return window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}, Sequence: window.Sequence(time.Now().UnixMilli(), time.Minute.Milliseconds())}
}

// A claim is denied if it leaves too little room for the cost that other nodes may have accepted. After two ticks,
// when their cost would have arrived, the whole remaining limit can be claimed.
func TestALargeClaimLeavesRoomForOthers(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(time.Millisecond)
			nodes := waiting(t, 5, origin, 100, store.NamespaceRow{})
			defer stopAll(nodes)
			take := func(cost int64) dataplane.Decision {
				if batch {
					return nodes[0].AllowMany(t.Context(), []dataplane.Request{ask("k", cost, 100)}).Decisions[0]
				}
				return nodes[0].Allow(t.Context(), ask("k", cost, 100))
			}
			if d := nodes[1].Allow(t.Context(), ask("k", 5, 100)); !d.Allowed {
				t.Errorf("5 of 100: %+v", d)
			}
			time.Sleep(200 * time.Millisecond) // until its node has sent it
			if d := take(60); d.Allowed || d.RetryAfter != 200*time.Millisecond || d.Source != dataplane.SourceOrigin {
				t.Errorf("batch %v: 60 of 95, of which the others may have accepted 36: %+v", batch, d)
			}
			if d := take(59); !d.Allowed {
				t.Errorf("batch %v: 59 of 95: %+v", batch, d)
			}
			time.Sleep(200 * time.Millisecond)
			if d := take(36); !d.Allowed {
				t.Errorf("batch %v: no cost of others has come for two ticks, and 36 of 36 are denied: %+v", batch, d)
			}
		})
	}
}

// A cost of up to the whole limit passes at once if no other node has sent any cost.
func TestALargeClaimOnAnUnusedKeyPasses(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(time.Millisecond)
			nodes := waiting(t, 5, origin, 100, store.NamespaceRow{})
			defer stopAll(nodes)
			for _, cost := range []int64{20, 80} {
				began := time.Now()
				var d dataplane.Decision
				if batch {
					d = nodes[0].AllowMany(t.Context(), []dataplane.Request{ask("k", cost, 100)}).Decisions[0]
				} else {
					d = nodes[0].Allow(t.Context(), ask("k", cost, 100))
				}
				if took := time.Since(began); !d.Allowed || took > 10*time.Millisecond {
					t.Errorf("batch %v: %d after %v: %+v", batch, cost, took, d)
				}
			}
		})
	}
}

// Nodes of a region wait for their shares, with costs of all sizes, in singles and batches, at any delays, and
// callers leave at any time. A single node never admits more than the limit, and several nodes admit no more than
// their shares add. In the end the origin holds exactly the admitted cost and the credit, and no claim is open any
// more.
func TestNodesThatWaitAccountForEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(0, 30_000), 16, 16).Draw(rt, "delays in µs")
		n := rapid.IntRange(1, 5).Draw(rt, "nodes")
		limit := rapid.SampledFrom([]int64{1, 10, 100, 1000}).Draw(rt, "limit")
		outage := rapid.SampledFrom([]string{"local", "closed"}).Draw(rt, "outage")
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller { return drawCaller(rt, n, limit) }), 1, 24).Draw(rt, "callers")
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			nodes := waiting(t, n, &uneven{Origin: origin, delays: delays}, limit, store.NamespaceRow{Outage: outage},
				func(c *dataplane.Config) { c.ReadTimeout = time.Second; c.Breaker.CallsMin = 1_000_000 })
			cell := minuteCell("k")
			var admitted, degraded atomic.Int64
			together(len(callers), func(i int) {
				got, local := callers[i].run(nodes[callers[i].node], limit)
				admitted.Add(got)
				degraded.Add(local)
			})
			synctest.Wait()
			time.Sleep(time.Second)
			var credit int64
			for i, l := range nodes {
				s := l.Cell(cell)
				if s.Claiming != 0 || s.Unsent != 0 {
					rt.Errorf("node %d: %+v", i, s)
				}
				credit += s.Credit
			}
			stopAll(nodes)
			got, total := admitted.Load(), totals(origin)[cell]
			if total != got+credit {
				rt.Errorf("the origin has %d, %d were admitted and %d are credit", total, got, credit)
			}
			if most := limit + limit*int64(n-1)/int64(2*n) + degraded.Load(); n == 1 && got > limit || got > most {
				rt.Errorf("%d of %d were admitted by %d nodes, %d of it by callers who left", got, limit, n, degraded.Load())
			}
		})
	})
}

// caller sends requests to a node, one after another.
type caller struct {
	node              int
	startsUs, everyUs int
	costs             []int64
	batch             bool
	patienceUs        int
}

func drawCaller(rt *rapid.T, nodes int, limit int64) caller {
	return caller{
		node: rapid.IntRange(0, nodes-1).Draw(rt, "node"), startsUs: rapid.IntRange(0, 50_000).Draw(rt, "starts"), everyUs: rapid.IntRange(0, 20_000).Draw(rt, "every"),
		costs:      rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(1, max(1, limit/20)), rapid.Int64Range(1, limit)), 1, 8).Draw(rt, "costs"),
		batch:      rapid.Bool().Draw(rt, "batch"),
		patienceUs: rapid.SampledFrom([]int{1_000_000_000, 1_000_000_000, 100, 5_000}).Draw(rt, "patience"),
	}
}

// run returns the admitted cost, and the part of it that was admitted without an answer of the origin.
func (c caller) run(n *dataplane.Limiter, limit int64) (admitted, degraded int64) {
	time.Sleep(time.Duration(c.startsUs) * time.Microsecond) // in virtual time
	for _, cost := range c.costs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.patienceUs)*time.Microsecond)
		var d dataplane.Decision
		if c.batch {
			b := n.AllowMany(ctx, []dataplane.Request{ask("k", cost, limit), ask("other", 1, 1<<40)})
			d = b.Decisions[0]
			d.Allowed = b.Allowed
		} else {
			d = n.Allow(ctx, ask("k", cost, limit))
		}
		cancel()
		if d.Allowed {
			admitted += cost
			if d.Source.Degraded() {
				degraded += cost
			}
		}
		time.Sleep(time.Duration(c.everyUs) * time.Microsecond)
	}
	return admitted, degraded
}

// Cost that was accepted while a claim waited for its call is sent first, because no total includes it.
func TestAClaimWaitsForWhatIsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := waiting(t, 2, origin, 100, store.NamespaceRow{}, func(c *dataplane.Config) { c.RegionNodes = 1 }, tick(t, 10*time.Second))
		defer stopAll(nodes)
		a, b := nodes[0], nodes[1]
		a.Peek(t.Context(), ask("another", 0, 1))
		if !b.Allow(t.Context(), ask("k", 50, 100)).Allowed {
			t.Fatal("50 of 100")
		}
		origin.Faults.Delay(5 * time.Millisecond)
		admitted := int64(50)
		var asking sync.WaitGroup
		asking.Go(func() { a.Allow(t.Context(), ask("another", 1, 1)) }) // their call is in flight
		time.Sleep(time.Millisecond)
		asking.Go(func() {
			if a.Allow(t.Context(), ask("k", 50, 100)).Allowed {
				admitted += 50
			}
		})
		time.Sleep(time.Millisecond)
		if !a.Allow(t.Context(), ask("k", 1, 100)).Allowed {
			t.Fatal("1 of the 100 that a knows of")
		}
		asking.Wait()
		if admitted++; admitted != 51 {
			t.Errorf("%d of 100 were admitted", admitted)
		}
	})
}
