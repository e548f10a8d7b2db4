package dataplane_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// fullRegion starts n nodes whose namespace waits, each with a table full of other keys at their limits.
func fullRegion(t *testing.T, n int, origin *memstore.Origin) []*dataplane.Limiter {
	t.Helper()
	const entries = 20
	nodes := region(t, n, origin, store.NamespaceRow{NodeShare: "wait", Outage: "closed"}, func(c *dataplane.Config) { c.EntriesMax = entries })
	together(n, func(node int) {
		for i := range 4 * entries {
			nodes[node].Allow(context.Background(), ask(fmt.Sprint("pinned ", node, " ", i), 1, 1))
		}
	})
	return nodes
}

// A limit of up to 2n costs is exact across nodes in singles, in batches and in both at once, also for keys without
// room in their tables.
func TestSmallLimitsAreExactHoweverAsked(t *testing.T) {
	const n = 5
	for name, take := range map[string]func(l *dataplane.Limiter, worker, i int, limit int64) bool{
		"singles": func(l *dataplane.Limiter, _, _ int, limit int64) bool {
			return l.Allow(context.Background(), ask("victim", 1, limit)).Allowed
		},
		"batches": func(l *dataplane.Limiter, _, _ int, limit int64) bool {
			return l.AllowMany(context.Background(), []dataplane.Request{ask("victim", 1, limit)}).Allowed
		},
		"batches of two keys": func(l *dataplane.Limiter, worker, i int, limit int64) bool {
			other := ask(fmt.Sprint("other ", worker, " ", i), 1, 1000)
			return l.AllowMany(context.Background(), []dataplane.Request{other, ask("victim", 1, limit)}).Allowed
		},
		"both": func(l *dataplane.Limiter, worker, _ int, limit int64) bool {
			if worker%2 == 0 {
				return l.Allow(context.Background(), ask("victim", 1, limit)).Allowed
			}
			return l.AllowMany(context.Background(), []dataplane.Request{ask("victim", 1, limit)}).Allowed
		},
	} {
		for _, limit := range []int64{1, 4, 2 * n} {
			for _, full := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, limit %d, full %v", name, limit, full), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						nodes := nodesWithRoom(t, n, origin, !full)
						defer stopAll(nodes)
						origin.Faults.Delay(4 * time.Millisecond)
						var admitted atomic.Int64
						together(4*n, func(worker int) {
							time.Sleep(time.Duration(worker) * 300 * time.Microsecond) // of virtual time
							for i := range 4 {
								if take(nodes[worker%n], worker, i, limit) {
									admitted.Add(1)
								}
							}
						})
						if got, total := admitted.Load(), totals(origin)[minuteCell("victim")]; got != limit || total != limit {
							t.Errorf("%d were admitted, and the origin has %d; the limit is %d", got, total, limit)
						}
						for i, l := range nodes {
							if held := l.Entry(minuteCell("victim").Key) != nil; held == full {
								t.Errorf("node %d holds the key: %v; nothing is proved", i, held)
							}
						}
					})
				})
			}
		}
	}
}

func nodesWithRoom(t *testing.T, n int, origin *memstore.Origin, room bool) []*dataplane.Limiter {
	t.Helper()
	if !room {
		return fullRegion(t, n, origin)
	}
	return region(t, n, origin, store.NamespaceRow{NodeShare: "wait", Outage: "closed"})
}

// A large cost of a key without room is claimed once and granted if it fits, because an untracked key cannot store
// that it was refused to leave room for other nodes.
func TestALargeClaimOfAKeyWithoutRoomIsGranted(t *testing.T) {
	for name, take := range map[string]func(l *dataplane.Limiter) dataplane.Decision{
		"single": func(l *dataplane.Limiter) dataplane.Decision {
			return l.Allow(context.Background(), ask("victim", 61, 100))
		},
		"batch": func(l *dataplane.Limiter) dataplane.Decision {
			return l.AllowMany(context.Background(), []dataplane.Request{ask("victim", 61, 100)}).Decisions[0]
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			nodes := fullRegion(t, 5, origin)
			defer stopAll(nodes)
			origin.Faults.Delay(4 * time.Millisecond)
			before := origin.Stats().Claims
			d := take(nodes[0])
			if total := totals(origin)[minuteCell("victim")]; !d.Allowed || d.Source != dataplane.SourceOrigin || total != 61 {
				t.Errorf("%s: 61 of 100: %+v; the origin has %d", name, d, total)
			}
			if got := origin.Stats().Claims - before; got != 1 {
				t.Errorf("%s: %d claims", name, got)
			}
		})
	}
}

// Cost that was claimed for a batch that fails after all is not lost: it pays for the node's next cost.
func TestABatchThatFailsLeavesItsClaimsAsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := nodesWithRoom(t, 2, origin, true)
		defer stopAll(nodes)
		for _, identifier := range []string{"left", "spent"} {
			nodes[0].Peek(t.Context(), ask(identifier, 0, 3))
		}
		if !nodes[1].Allow(t.Context(), ask("spent", 3, 3)).Allowed {
			t.Fatal("3 of 3")
		}
		b := nodes[0].AllowMany(t.Context(), []dataplane.Request{ask("left", 3, 3), ask("spent", 1, 3)})
		if b.Allowed || !b.Decisions[0].Allowed || b.Decisions[1].Allowed {
			t.Errorf("%+v", b)
		}
		cell := minuteCell("left")
		if s := nodes[0].Cell(cell); s.Credit != 3 || s.Claiming != 0 {
			t.Errorf("claimed for nothing: %+v", s)
		}
		if d := nodes[0].Allow(t.Context(), ask("left", 3, 3)); !d.Allowed {
			t.Errorf("3 of the 3 that nobody has spent: %+v", d)
		}
		time.Sleep(time.Second)
		if got := totals(origin)[cell]; got != 3 {
			t.Errorf("the origin has %d of 3", got)
		}
	})
}

// If a key of a batch leaves the table after another key, without room, was claimed, the batch is decided again with
// the claimed cost: the origin counts it once.
func TestABatchThatIsDecidedAnewClaimsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 20
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 1, origin, store.NamespaceRow{NodeShare: "wait"}, func(c *dataplane.Config) { c.EntriesMax = entries })
		defer stopAll(nodes)
		n := nodes[0]
		for i := range 4 * entries {
			n.Allow(t.Context(), ask("evicted", 1, 1000))
			n.Allow(t.Context(), ask(fmt.Sprint("pinned ", i), 1, 1))
		}
		n.Allow(t.Context(), ask("evicted", 1, 1000))
		time.Sleep(time.Second) // all of the cost is at the origin
		n.Allow(t.Context(), ask("evicted", 0, 1000))
		if n.Entry(minuteCell("evicted").Key) == nil {
			t.Fatal("the key is not in the table")
		}
		evicted := n.Evicted("idle")
		var once sync.Once
		origin.Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpClaim {
				once.Do(func() { n.MakeRoom(); n.MakeRoom() })
			}
			return nil
		})
		b := n.AllowMany(t.Context(), []dataplane.Request{ask("evicted", 1, 1000), ask("victim", 1, 100)})
		if !b.Allowed || b.Decisions[1].Remaining != 99 || n.Evicted("idle") == evicted {
			t.Errorf("%+v; %d keys were evicted", b, n.Evicted("idle")-evicted)
		}
		if got := totals(origin)[minuteCell("victim")]; got != 1 {
			t.Errorf("the origin has %d of 1", got)
		}
	})
}
