package dataplane_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// inParts is an origin that answers each bounded cost separately, such as a cluster whose servers fail separately.
type inParts struct {
	store.FullOrigin
	rand  *rand.Rand
	now   func() time.Time
	fails atomic.Bool

	streams map[string]uint64 // of each cell, and of the further costs of a cell in a chunk
	arrived map[string]int64  // the last number of each stream that has arrived
}

func (o *inParts) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	chunk.After = nil // it loses nothing, and it forwards costs under other streams
	if !chunk.Bounded() {
		return o.FullOrigin.Send(ctx, chunk)
	}
	if o.fails.Load() && o.rand.IntN(3) == 0 {
		time.Sleep(20 * time.Millisecond) // longer than some callers wait
	}
	reply := store.Reply{Now: o.now()}
	seen := make(map[window.Cell]int)
	for _, c := range chunk.Costs {
		seen[c.Cell]++
		reply.Totals = append(reply.Totals, o.decide(ctx, chunk, c, fmt.Sprint(c.Cell, seen[c.Cell])))
	}
	if o.fails.Load() && o.rand.IntN(8) == 0 {
		reply.Totals = reply.Totals[:o.rand.IntN(len(reply.Totals))]
	}
	return reply, nil
}

// decide answers one cost of a chunk.
func (o *inParts) decide(ctx context.Context, chunk store.Chunk, c store.Cost, stream string) store.Total {
	arrives, answer := true, error(nil)
	if o.fails.Load() {
		switch o.rand.IntN(6) {
		case 0:
			answer = errDown
		case 1:
			arrives, answer = false, errDown
		case 2:
			arrives, answer = false, fmt.Errorf("%w: %w", store.ErrNotApplied, errDown)
		case 3: // the cell does not take the cost
			if at, err := o.Read(ctx, []window.Cell{c.Cell}); err == nil && o.arrived[stream] != chunk.Number {
				return store.Total{Epoch: at.Totals[0].Epoch, Err: errDown}
			}
		}
	}
	if o.streams[stream] == 0 {
		o.streams[stream] = o.rand.Uint64() | 1
	}
	if !arrives {
		return store.Total{Err: answer}
	}
	o.arrived[stream] = chunk.Number
	reply, err := o.FullOrigin.Send(ctx, store.Chunk{Shard: chunk.Shard, Stream: o.streams[stream], Number: chunk.Number,
		Costs: []store.Cost{c}})
	if err != nil || answer != nil {
		return store.Total{Err: cmp.Or(err, answer)}
	}
	return reply.Totals[0]
}

// Whatever the outcome of each claim of a call, and whether or not its caller waits, the origin has each accepted
// cost once. It has nothing else, except for the node's credit.
func TestClaimsThatAreAnsweredInPartsAreCountedOnce(t *testing.T) {
	for _, outage := range []string{"local", "open", "closed"} {
		for seed := range uint64(60) {
			t.Run(fmt.Sprint(outage, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testInParts(t, outage, seed) })
			})
		}
	}
}

func testInParts(t *testing.T, outage string, seed uint64) {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait", Outage: outage})
	random := rand.New(rand.NewPCG(seed, 1))
	origin := &inParts{FullOrigin: w.origin("eu"), rand: rand.New(rand.NewPCG(seed, 2)), now: w.clock.Now,
		streams: make(map[string]uint64), arrived: make(map[string]int64)}
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = origin })
	f := &failover{n, w}
	keys := []string{"k", "l", "m"}
	for _, key := range keys {
		n.Peek(t.Context(), ask(key, 0, 40))
	}
	f.pass(time.Second)
	origin.fails.Store(true)
	accepted := make(map[string]int64)
	var mu sync.Mutex
	for range 40 {
		var callers sync.WaitGroup
		for range 1 + random.IntN(4) {
			key, cost, leaves := keys[random.IntN(len(keys))], 1+random.Int64N(4), random.IntN(2) == 0
			callers.Go(func() {
				ctx, cancel := t.Context(), func() {}
				if leaves {
					ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
				}
				defer cancel()
				if d := n.Allow(ctx, ask(key, cost, 40)); d.Allowed {
					mu.Lock()
					accepted[key] += cost
					mu.Unlock()
				}
			})
			if random.IntN(2) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		callers.Wait()
		if random.IntN(4) == 0 {
			n.AwaitCalls()
			time.Sleep(500 * time.Millisecond)
			w.clock.advance(500 * time.Millisecond)
			_ = n.ReplayOnce(t.Context())
		}
	}
	n.AwaitCalls()
	origin.fails.Store(false)
	f.pass(6 * time.Second)
	for _, key := range keys {
		c := n.Cell(w.cell(key))
		if got := totals(w.origin("eu"))[w.cell(key)]; got != accepted[key]+c.Credit || c.Claiming != 0 || c.Unsent != 0 {
			t.Errorf("%s: the origin has %d, of which %d were accepted: %+v", key, got, accepted[key], c)
		}
		if outage != "open" && accepted[key] > 40 {
			t.Errorf("%s: %d were accepted of a limit of 40", key, accepted[key])
		}
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
