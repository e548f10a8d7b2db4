package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A replica of the origin is promoted that lacks the last answered calls. Each stream of a node repeats them within
// two seconds, although it has nothing else to send.

// failover is a node whose origin has a replica that has not received the calls of spend.
type failover struct {
	*node
	w *world
}

// after calls spend, and then promotes a replica that lacks those calls.
func (f *failover) after(spend func()) {
	state := f.w.origin("eu").State()
	spend()
	f.w.origin("eu").Rollback(state)
}

// pass lets time pass, so that the node's loops run.
func (f *failover) pass(d time.Duration) {
	f.w.t.Helper()
	for ; d > 0; d -= 500 * time.Millisecond {
		time.Sleep(500 * time.Millisecond)
		f.w.clock.advance(500 * time.Millisecond)
		f.replay()
		f.sync()
	}
}

// stream is a stream by which a node sends accepted cost to the origin.
type stream struct {
	node  func(w *world) *node
	spend func(f *failover) // 7
	cell  func(w *world) int64
}

func streams() map[string]stream {
	return map[string]stream{
		"replay": {
			func(w *world) *node { return w.node("eu", "a") },
			func(f *failover) { f.take("k", 7, 10); f.replay() },
			func(w *world) int64 { return totals(w.origin("eu"))[w.cell("k")] },
		},
		"syncs": {
			func(w *world) *node { w.estimates(""); return w.node("eu", "a") },
			func(f *failover) { f.take("k", 7, 10); f.sync() },
			func(w *world) int64 { return totals(w.origin("eu"))[w.estimateCell("k", 0)] },
		},
		"claims": {
			func(w *world) *node {
				w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait"})
				return w.node("eu", "a")
			},
			func(f *failover) { f.take("k", 7, 10) },
			func(w *world) int64 { return totals(w.origin("eu"))[w.cell("k")] },
		},
		"untracked keys": {
			func(w *world) *node { return w.fullTable("api") },
			func(f *failover) {
				f.AllowMany(context.Background(), []dataplane.Request{ask("k", 7, 10), ask("l", 1, 10)})
			},
			func(w *world) int64 { return totals(w.origin("eu"))[w.cell("k")] },
		},
	}
}

// eachStream tests each stream: the origin has answered 7, and then follows runs.
func eachStream(t *testing.T, follows func(f *failover)) {
	for name, stream := range streams() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				f := &failover{stream.node(w), w}
				f.pass(time.Second) // the epoch is drawn
				f.after(func() { stream.spend(f) })
				if got := stream.cell(w); got != 0 {
					t.Fatalf("the replica has %d", got)
				}
				follows(f)
				f.pass(2 * time.Second)
				if got := stream.cell(w); got != 7 {
					t.Errorf("the origin has %d, want the 7 that were answered before the failover", got)
				}
			})
		})
	}
}

func TestASilentStreamRepeatsWhatAFailoverLost(t *testing.T) {
	eachStream(t, func(*failover) {})
}

// Cost that was repeated after a failover may be lost in the next failover.
func TestASilentStreamRepeatsWhatTwoFailoversLost(t *testing.T) {
	eachStream(t, func(f *failover) {
		f.after(func() { f.pass(store.KeepFor + time.Second/2) }) // the cost is repeated in the first second of this
	})
}

// A stream that sends nothing more keeps comparing until it keeps no chunk, and then stops.
func TestSilentStreamsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.estimates("")
		f := &failover{w.node("eu", "a"), w}
		f.take("k", 7, 10)
		f.sync()
		f.pass(store.KeepFor + 3*time.Second)
		before := w.origin("eu").Stats().Sends
		f.pass(10 * time.Second)
		if got := w.origin("eu").Stats().Sends - before; got > 10 {
			t.Errorf("%d sends in 10 s, want one a second: replay's alone", got)
		}
	})
}

var errGone = errors.New("connection reset")

// A stream that has stopped comparing must start again after its cost was repeated.
func TestASilentStreamRepeatsWhatALaterFailoverLost(t *testing.T) {
	for name, stream := range streams() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				f := &failover{stream.node(w), w}
				f.pass(time.Second)
				f.after(func() { stream.spend(f); f.pass(store.KeepFor - time.Second/2) })
				f.after(func() { f.pass(store.KeepFor) })
				f.pass(2 * time.Second)
				if got := stream.cell(w); got != 7 {
					t.Errorf("the origin has %d, want 7", got)
				}
			})
		})
	}
}

// While the origin does not answer, the node keeps the chunks that a replica may lack, and compares them afterwards.
func TestAFailoverThatTakesLongLosesNothing(t *testing.T) {
	eachStream(t, func(f *failover) {
		f.w.origin("eu").Faults.Hook(func(memstore.Op) error { return errGone })
		for range 20 {
			time.Sleep(time.Second)
			f.w.clock.advance(time.Second)
			_, _ = f.ReplayOnce(f.w.t.Context()), f.SyncOnce(f.w.t.Context())
		}
		f.w.origin("eu").Faults.Hook(nil)
	})
}

// A node whose keys are all idle finds that the origin has lost its counts, and restores its accepted cost.
func TestASilentNodeRestoresAnEmptiedOrigin(t *testing.T) {
	for name, row := range map[string]store.NamespaceRow{
		"exact":             {},
		"estimate":          {Mode: "estimate"},
		"waits for a share": {NodeShare: "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				row.Workspace, row.Namespace = "acme", "api"
				w.counts.SetNamespaces(row)
				f := &failover{w.node("eu", "a"), w}
				for range 10 {
					f.take("k", 10, 100)
				}
				for range 2 { // once for each epoch
					f.pass(2 * time.Second)
					w.origin("eu").Wipe()
					f.pass(2 * time.Second)
					total := int64(0)
					for _, count := range totals(w.origin("eu")) {
						total += count
					}
					if total != 100 {
						t.Errorf("the emptied origin has %d, want the 100 that the node has accepted", total)
					}
				}
			})
		})
	}
}

// A chunk whose answer was lost is applied once while its windows last, however long its node is cut off. After a day
// it may be applied again. Then only the cost that the node had in flight counts twice.
func TestAChunkIsRememberedWhileItsWindowsLast(t *testing.T) {
	for name, c := range map[string]struct {
		window, cutOff time.Duration
		want           int64
	}{
		"two hours in a window of six": {6 * time.Hour, 2 * time.Hour, 7},
		"a day in a window of a week":  {7 * 24 * time.Hour, 24*time.Hour - time.Minute, 7},
		"more than a day":              {7 * 24 * time.Hour, 25 * time.Hour, 14},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node("eu", "a")
			r := ask("k", 7, 100)
			r.Duration = c.window
			if d := n.Allow(t.Context(), r); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			w.origin("eu").Faults.LoseReplies(true)
			if err := n.ReplayOnce(t.Context()); err == nil {
				t.Fatal("the reply was not lost")
			}
			w.origin("eu").Faults.LoseReplies(false)
			w.clock.advance(c.cutOff)
			n.replay()
			total := int64(0)
			for _, count := range totals(w.origin("eu")) {
				total += count
			}
			if total != c.want {
				t.Errorf("the origin has %d, want %d", total, c.want)
			}
		})
	}
}

// A node has cost in several shards, and goes on in only one of them. It also restores the other shards, which were
// emptied.
func TestASilentShardIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 3})
		nodes := region(t, 1, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		spend := func(key string, cost int64) { nodes[0].Allow(t.Context(), ask(key, cost, 1000)) }
		for i := range 30 {
			spend(fmt.Sprint("silent", i), 10)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			origin.WipeShard(i)
			for range 20 {
				spend("busy", 1)
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(300 * time.Millisecond) // the last of them is sent
			total := int64(0)
			for _, count := range totals(origin) {
				total += count
			}
			if want := int64(300 + 20*(i+1)); total != want {
				t.Errorf("2 s after shard %d was emptied the origin has %d, want %d", i, total, want)
			}
		}
	})
}

// noRoom is an origin in which other nodes have taken all room, while on is set.
type noRoom struct {
	store.FullOrigin
	on bool
}

func (o *noRoom) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if o.on && chunk.Bounded() {
		chunk.Costs = slices.Clone(chunk.Costs)
		for i := range chunk.Costs {
			chunk.Costs[i].AtMost = -1
		}
	}
	return o.FullOrigin.Send(ctx, chunk)
}

// A claim that finds no room may carry repeated claims that a failover lost. The stream then keeps comparing for
// another store.KeepFor, as after an added claim: the next failover loses nothing either.
func TestARefusedClaimThatRepeatsLostOnesKeepsTheStreamAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait"})
		origin := &noRoom{FullOrigin: w.origin("eu")}
		f := &failover{w.node("eu", "a", func(c *dataplane.Config) { c.Origin = origin }), w}
		f.pass(time.Second)
		before := w.origin("eu").State()
		f.take("k", 7, 10)
		f.pass(store.KeepFor - time.Second/2)
		w.origin("eu").Rollback(before)
		origin.on = true
		f.take("l", 7, 10)
		origin.on = false
		if got := totals(w.origin("eu"))[w.cell("k")]; got != 7 {
			t.Fatalf("after the refused claim the origin has %d, want the 7 that were lost", got)
		}
		f.pass(store.KeepFor - 3*time.Second/2)
		w.origin("eu").Rollback(before)
		f.pass(2 * time.Second)
		if got := totals(w.origin("eu"))[w.cell("k")]; got != 7 {
			t.Errorf("after another failover the origin has %d, want 7", got)
		}
	})
}
