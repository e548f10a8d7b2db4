package relay_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A relay that takes over does not repeat first counts that its predecessor has published.
func TestATakeoverTellsNoFirstCountAgain(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	for i := range 500 {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 1, 100)
	}
	w.run(2 * time.Second)
	eu.stopRelay()
	before := w.feed.Stats().BytesStored
	eu.relay = eu.newRelay("second")
	w.run(2 * time.Second)
	if published := w.feed.Stats().BytesStored - before; published > 100 {
		t.Errorf("it told %d bytes", published)
	}
}

// R2: if only the CountStore shows that another region uses a cell, the own region's count is still published at once.
func TestR2WhatIsStoredTellsWhoUsesACell(t *testing.T) {
	w := newWorld(t, "us")
	us := w.regions[0]
	w.run(time.Second)
	c := us.cell("k", time.Hour)
	us.accept(c, 50, 100)
	w.run(6 * time.Second)
	us.away = true
	w.feed.Wipe()
	eu := w.addRegion("eu", w.clock, 1)
	w.run(time.Second)
	for range 2 { // the first count is always published
		eu.accept(c, 1, 100)
		w.run(interval)
	}
	counts := 0
	for _, row := range w.feed.Rows(store.Stream{Region: "eu"}) {
		if err := relay.Decode(row.Payload, func(window.Cell, int64) { counts++ }); err != nil {
			t.Fatal(err)
		}
	}
	if counts != 2 {
		t.Errorf("eu has told %d counts, want both of the cell that us uses", counts)
	}
}

// A stored count goes to the shard of its cell, and to no other shard.
func TestAShardTakesItsStoredCounts(t *testing.T) {
	w := newWorld(t)
	eu := w.addRegion("eu", w.clock, 3)
	w.run(time.Second)
	const n = 60
	for i := range n {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 50, 100)
	}
	w.run(2 * time.Second)
	eu.stopRelay()
	eu.relay = eu.newRelay("second")
	w.run(time.Second)
	if s := relay.Sizes(eu.relay); s.Cells != n {
		t.Errorf("three shards hold %d cells, want %d", s.Cells, n)
	}
}

// A relay that takes over reads the CountStore once, however many shards it has.
func TestATakeoverReadsWhatIsStoredOnce(t *testing.T) {
	const shards = 8
	w := newWorld(t)
	eu := w.addRegion("eu", w.clock, shards)
	w.run(time.Second)
	for i := range 80 {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 50, 100)
	}
	w.run(10 * time.Second)
	eu.stopRelay()
	before := w.counts.Stats().Imports
	eu.relay = eu.newRelay("second")
	w.run(time.Second)
	if got := w.counts.Stats().Imports - before; got != 1 {
		t.Errorf("%d imports for %d shards, want 1", got, shards)
	}
	if s := relay.Sizes(eu.relay); s.Cells != 80 {
		t.Errorf("%d shards hold %d cells, want 80", shards, s.Cells)
	}
	for i := range 80 { // each shard heals its origin with the shard's own counts
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		if got := relay.Stored(eu.relay, c); got != 50 {
			t.Fatalf("%d of %v are known to be stored, want 50", got, c)
		}
	}
}

// R2: a relay that takes over scans the totals of all cells, however many pages they fill. If another region begins to
// use such a cell, the relay publishes the count.
func TestR2ATakeoverScansAllPages(t *testing.T) {
	w, eu, us := newPair(t)
	cells := make([]window.Cell, 1_100)
	for i := range cells {
		cells[i] = eu.cell(fmt.Sprint("k", i), time.Hour)
		eu.accept(cells[i], 1, 100)
	}
	w.run(2 * time.Second)
	eu.stopRelay()
	eu.relay = eu.newRelay("second")
	w.run(2 * time.Second)
	for _, c := range cells {
		us.accept(c, 1, 100)
	}
	w.run(4 * time.Second)
	w.wantKnown(cells...)
}

// Snapshots repeat published counts only: counts that wait for another region stay unpublished, and a relay that takes
// over from a snapshot publishes nothing again.
func TestASnapshotTellsWhatHasBeenTold(t *testing.T) {
	w := newWorld(t, "eu")
	w.tuning.SnapshotEvery = time.Second
	eu := w.regions[0]
	for i := range 500 {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 1, 100)
	}
	w.run(time.Second)
	for i := range 500 {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 3, 100)
	}
	w.run(20 * time.Second)
	snapshots, others := 0, 0
	for _, row := range w.feed.Rows(store.Stream{Region: "eu"}) {
		if row.Snapshot != 0 {
			snapshots++
		}
		if err := relay.Decode(row.Payload, func(_ window.Cell, total int64) {
			if total != 1 {
				others++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if snapshots == 0 || others > 0 {
		t.Fatalf("%d parts of snapshots and the rows beside them have %d counts that were kept back", snapshots, others)
	}
	eu.stopRelay()
	before := w.feed.Stats().BytesStored
	eu.relay = eu.newRelay("second")
	w.tuning.SnapshotEvery = time.Hour
	w.run(2 * time.Second)
	if published := w.feed.Stats().BytesStored - before; published > 100 {
		t.Errorf("it told %d bytes", published)
	}
}

// A relay that takes over publishes no count again that its predecessor has published by a cell's number.
func TestATakeoverKnowsCountsToldByNumber(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	for range 2 {
		for i := range 50 {
			eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 20, 100)
		}
		w.run(time.Second)
	}
	eu.stopRelay()
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	last := rows[len(rows)-1].Sequence
	eu.relay = eu.newRelay("second")
	w.run(2 * time.Second)
	counts := 0
	for _, row := range w.feed.Rows(store.Stream{Region: "eu"}) {
		if row.Sequence <= last {
			continue
		}
		if err := relay.Decode(row.Payload, func(window.Cell, int64) { counts++ }); err != nil {
			t.Fatal(err)
		}
	}
	if counts > 0 {
		t.Errorf("it told %d counts again", counts)
	}
}

// A shard that is not loaded has counts for peers only. Once its lease has ended, it forgets these too.
func TestARelayThatLosesItsLeaseBeforeItHasLoadedHoldsNothing(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	eu.publishingRelay()
	w.feed.Faults.Fail(errDown)
	eu.accept(eu.cell("k", time.Minute), 50, 100)
	w.run(time.Second)
	if s := relay.Sizes(eu.relay); s.Cells != 1 {
		t.Fatalf("%d cells while it has the lease, want 1", s.Cells)
	}
	eu.relayOrigin.Faults.Fail(errDown)
	w.run(10 * time.Second)
	if s := relay.Sizes(eu.relay); s.Cells != 0 {
		t.Errorf("%d cells without a lease", s.Cells)
	}
}

// An import takes long, and the lease ends meanwhile. The relay forgets the other regions' counts that the import
// brings.
func TestARelayThatLosesItsLeaseDuringAnImportHoldsNothing(t *testing.T) {
	w := newWorld(t, "us")
	us := w.regions[0]
	us.accept(us.cell("k", time.Hour), 50, 100)
	w.run(6 * time.Second)
	us.away = true
	eu := w.addRegion("eu", w.clock, 1)
	imports := 0
	w.counts.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpImport {
			imports++
			w.now = w.now.Add(10 * time.Second)
			eu.relayOrigin.Faults.Fail(errDown)
		}
		return nil
	})
	if err := relay.Take(t.Context(), eu.relay); !errors.Is(err, errDown) {
		t.Fatalf("%v, want that the origin is down", err)
	}
	w.run(time.Second)
	if s := relay.Sizes(eu.relay); imports != 1 || s.Cells != 0 {
		t.Errorf("%d imports, %d cells without a lease", imports, s.Cells)
	}
}
