package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// node acts like a limiter for a single cell: it sends the cost that it accepts, and all of it again in a new epoch.
type node struct {
	*region
	origin   *memstore.Origin
	cell     window.Cell
	stream   uint64
	chunk    int64
	accepted int64 // all accepted cost
	unsent   int64 // cost since the last acknowledged chunk
	known    int64 // highest region total in an answer
	epoch    store.Epoch
}

func (n *node) accept(cost int64) {
	n.accepted += cost
	n.unsent += cost
	n.region.accepted[n.cell] += cost
}

// send sends until it has an answer in the current epoch.
func (n *node) send() {
	n.Helper()
	cost := store.Cost{Cell: n.cell, Epoch: n.epoch, Add: n.unsent, Limit: 1000}
	for {
		n.chunk++
		reply, err := n.origin.Send(context.Background(), store.Chunk{Stream: n.stream, Number: n.chunk, Costs: []store.Cost{cost}})
		if err != nil {
			n.Fatal(err)
		}
		total := reply.Totals[0]
		n.epoch = total.Epoch
		if total.Err == nil {
			n.unsent, n.known = 0, max(n.known, total.Region)
			return
		}
		if !errors.Is(total.Err, store.ErrEpoch) {
			n.Fatal(total.Err)
		}
		cost = store.Cost{Cell: n.cell, Epoch: n.epoch, Restore: n.accepted, Known: n.known, Limit: 1000}
	}
}

// R6: an origin that was emptied, at any moment of its relay's work, ends with at least the cost that the remaining
// nodes have accepted, at least the total that other regions have received, and at most the cost that was accepted. R1
// holds all the time.
func TestR6AnOriginThatWasEmptied(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { emptied(t, rand.New(rand.NewPCG(seed, 6))) })
	}
}

func emptied(t *testing.T, random *rand.Rand) {
	w, eu, us := newPair(t)
	w.tuning.Floor, w.tuning.Step = 0.01, 0.01
	eu.away = true
	relays := []*stepper{eu.stepped("a", true)}
	if random.IntN(2) == 0 {
		relays = append(relays, eu.stepped("b", true))
	}
	c := eu.cell("k", time.Hour)
	us.accept(c, 100, 1000)
	nodes := []*node{{region: eu, cell: c, stream: 11, origin: eu.origin.Client()}, {region: eu, cell: c, stream: 12, origin: eu.origin.Client()}}
	for range 200 {
		n := nodes[random.IntN(len(nodes))]
		switch random.IntN(12) {
		case 0, 1:
			n.accept(1 + random.Int64N(20))
		case 2, 3:
			n.send()
		case 4:
			w.run(interval)
		case 5:
			if random.IntN(6) == 0 {
				eu.origin.Wipe()
				w.seen["eu"] = nil // it is another origin
			}
		case 6:
			if len(nodes) == 2 && random.IntN(6) == 0 {
				nodes = nodes[:1]
			}
		default:
			relays[random.IntN(len(relays))].next()
		}
		w.checkR1()
	}
	if random.IntN(2) == 0 {
		eu.origin.Wipe()
		w.seen["eu"] = nil
	}
	for range 25 { // an emptied origin has lost its lease too, so the other relay may acquire it
		for _, r := range relays {
			r.finish()
		}
		for _, n := range nodes {
			n.send()
		}
		w.run(interval)
	}
	left := int64(0)
	for _, n := range nodes {
		left += n.accepted
	}
	got, published := eu.total(c), us.total(c).Foreign
	if least := max(left, published); got.Region < least || got.Region > eu.accepted[c] {
		t.Errorf("R6: eu has %d of %d accepted; the nodes that are left have accepted %d, us was told %d", got.Region, eu.accepted[c], left, published)
	}
	if got.Foreign != us.accepted[c] || published < got.Region {
		t.Errorf("R2: eu knows %d of %d, us %d of %d", got.Foreign, us.accepted[c], published, got.Region)
	}
}

// R6: an origin that loses its counts while MySQL is down is healed from its relay's memory.
func TestR6WithoutMySQL(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 400, 1000)
	us.accept(c, 100, 1000)
	w.run(2 * time.Second)
	w.feed.Faults.Fail(errDown)
	w.counts.Faults.Fail(errDown)
	eu.accept(c, 30, 1000)
	w.run(time.Second)
	eu.origin.Wipe()
	w.seen["eu"] = nil
	w.run(time.Second)
	if got := eu.total(c); got.Region != 430 || got.Foreign != 100 {
		t.Errorf("without a node that remembers eu has %+v, want the 430 that its relay took and the 100 that it was told", got)
	}
}

// R6: a replica that was promoted without its healed mark has not lost its counts, so the relay must not add them a
// second time.
func TestR6APromotedReplicaIsNotCountedTwice(t *testing.T) {
	w, eu, _ := newPair(t)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 40, 100)
	unmarked := eu.origin.State()
	w.run(time.Second)
	eu.origin.Rollback(unmarked)
	w.seen["eu"] = nil
	w.run(time.Second)
	if got := eu.total(c).Region; got != 40 {
		t.Errorf("eu has %d of 40", got)
	}
}

// R6: the same holds if MySQL is down, so that the relay has read its origin only for peers before the replica is
// promoted.
func TestR6APromotedReplicaIsNotCountedTwiceAfterAReadForPeers(t *testing.T) {
	w, eu, _ := newPair(t)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 40, 100)
	unmarked := eu.origin.State()
	w.run(time.Second)
	eu.stopRelay()
	w.feed.Faults.Fail(errDown)
	eu.publishingRelay()
	w.run(time.Second)
	eu.origin.Rollback(unmarked)
	w.seen["eu"] = nil
	w.feed.Faults.Fail(nil)
	w.run(10 * time.Second)
	if got := eu.total(c).Region; got != 40 {
		t.Errorf("eu has %d of 40", got)
	}
}

// R6: a relay that takes over an emptied origin raises it to the published counts and to the stored counts, each
// without the other.
func TestR6ATakeoverOfAnEmptiedOrigin(t *testing.T) {
	for _, what := range []string{"only told", "only stored"} {
		w := newWorld(t, "eu")
		eu := w.regions[0]
		if what == "only told" {
			w.counts.Faults.RefuseRow(func(store.Count) bool { return true })
		}
		c := eu.cell("k", time.Hour)
		eu.accept(c, 40, 100)
		w.run(2 * time.Second)
		eu.stopRelay()
		if what == "only stored" {
			w.feed.Wipe()
		}
		eu.origin.Wipe()
		eu.relay = eu.newRelay("second")
		w.run(time.Second)
		if got := eu.total(c).Region; got != 40 {
			t.Errorf("%s: eu has %d of 40", what, got)
		}
	}
}

// R6: an origin is marked as healed only after all its counts were raised. A relay whose call fails in between begins
// again.
func TestR6NothingIsHealedThatWasNotRaised(t *testing.T) {
	w, eu, _ := newPair(t)
	c := eu.cell("k", time.Hour)
	w.run(time.Second)
	eu.accept(c, 80, 100)
	w.run(time.Second)
	eu.relayOrigin.Faults.Hook(failing(memstore.OpRaise))
	eu.origin.Wipe()
	w.run(time.Second)
	if total := eu.total(c); total.Region != 0 {
		t.Fatalf("the origin has %d, and was raised to nothing", total.Region)
	}
	eu.relayOrigin.Faults.Hook(nil)
	w.run(time.Second)
	if total := eu.total(c); total.Region != 80 {
		t.Errorf("the origin is healed with %d of the 80", total.Region)
	}
}

// R6: if an origin is emptied while a relay that takes over scans it, it is not raised to totals of the new epoch that
// the scan has found, because the origin counts them already.
func TestR6AnOriginThatIsEmptiedDuringAScan(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	eu.stopRelay()
	c := eu.cell("k", time.Hour)
	scans := 0
	eu.relayOrigin.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpScan {
			if scans++; scans == 1 {
				eu.origin.Wipe()
				eu.total(c) // the node notices the new epoch
				eu.accept(c, 30, 100)
			}
		}
		return nil
	})
	eu.relay = eu.newRelay("second")
	w.run(2 * time.Second)
	if got := eu.total(c).Region; got != 30 || scans < 2 {
		t.Errorf("after %d scans the origin has %d, and 30 were accepted", scans, got)
	}
	w.wantKnown(c)
}

// R6: an emptied origin is raised to the counts that its relay sent to peers while MySQL was down, and to the counts
// that the relay had kept back from them, which it sends as soon as another region uses the cell.
func TestR6WhatPeersReceiveWithoutMySQLIsRestored(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	handed, kept := eu.cell("handed", time.Hour), eu.cell("kept back", time.Hour)
	eu.accept(handed, 1, 1000)
	eu.accept(kept, 1, 1000)
	w.feed.Faults.Fail(errDown)
	w.run(interval) // a row waits for MySQL
	eu.accept(handed, 400, 1000)
	eu.accept(kept, 50, 1000)
	w.run(interval)
	eu.origin.Wipe()
	w.run(time.Second)
	w.feed.Faults.Fail(nil)
	us.accept(kept, 1, 1000)
	w.run(time.Second)
	wantOfPeers(t, *published, map[window.Cell]int64{handed: 401, kept: 51})
	for c, want := range map[window.Cell]int64{handed: 401, kept: 51} {
		if got := eu.total(c).Region; got != want {
			t.Errorf("%s: the origin has %d of %d", c.Identifier, got, want)
		}
	}
	w.wantKnown(handed, kept)
}

// wantOfPeers checks the largest counts that peers were sent.
func wantOfPeers(t *testing.T, rows []store.FeedRow, want map[window.Cell]int64) {
	t.Helper()
	got := make(map[window.Cell]int64)
	for _, row := range rows {
		err := relay.Decode(row.Payload, func(c window.Cell, total int64) { got[c] = max(got[c], total) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("peers were handed %v, want %v", got, want)
	}
}

// R6: a relay that takes over while MySQL is down reads its origin before it has loaded: counts that changed, and
// counts that its predecessor had kept back. Peers may receive all of them, so the load raises an emptied origin to
// them.
func TestR6WhatARelayReadsBeforeItsLoadIsRestored(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.Floor = 0.5
	w.run(time.Second)
	keptBack, changed := eu.cell("kept back", time.Hour), eu.cell("changed", time.Hour)
	for _, cost := range []int64{1, 30} {
		eu.accept(keptBack, cost, 100)
		w.run(interval)
	}
	w.feed.Faults.Fail(errDown)
	eu.stopRelay()
	eu.publishingRelay()
	w.run(interval)
	eu.accept(changed, 70, 100)
	w.run(interval)
	eu.origin.Wipe()
	w.run(interval)
	w.feed.Faults.Fail(nil)
	w.run(10 * time.Second)
	for c, want := range map[window.Cell]int64{keptBack: 31, changed: 70} {
		if got := eu.total(c).Region; got != want {
			t.Errorf("%s: the origin has %d of %d", c.Identifier, got, want)
		}
	}
}

// R6: if an origin is emptied while a relay scans it for peers, because MySQL is down, it is not raised to totals of
// the new epoch that the scan has found, because the origin counts them already.
func TestR6AnOriginThatIsEmptiedDuringAScanForPeers(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	eu.stopRelay()
	w.feed.Faults.Fail(errDown)
	c := eu.cell("k", time.Hour)
	scans := 0
	eu.relayOrigin.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpScan {
			if scans++; scans == 1 {
				eu.origin.Wipe()
				eu.total(c) // the node notices the new epoch
				eu.accept(c, 30, 100)
			}
		}
		return nil
	})
	eu.publishingRelay()
	w.run(time.Second)
	w.feed.Faults.Fail(nil)
	w.run(10 * time.Second)
	if got := eu.total(c).Region; got != 30 || scans < 2 {
		t.Errorf("after %d scans the origin has %d, and 30 were accepted", scans, got)
	}
	w.wantKnown(c)
}
