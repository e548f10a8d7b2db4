package relay_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// R2: after a minute without MySQL nothing is lost, and all counts arrive within the usual intervals and another.
func TestR2WithoutMySQLForAMinute(t *testing.T) {
	w := newWorld(t, "eu", "us", "ap")
	w.run(time.Second)
	w.feed.Faults.Fail(errDown)
	w.counts.Faults.Fail(errDown)
	var cells []window.Cell
	for i := range 60 {
		w.run(time.Second)
		c := w.regions[0].cell(fmt.Sprint("k", i), time.Hour)
		cells = append(cells, c)
		for _, r := range w.regions {
			r.accept(c, int64(1+i), 1000)
			r.accept(cells[0], 1, 1000)
		}
	}
	w.feed.Faults.Fail(nil)
	w.counts.Faults.Fail(nil)
	w.run(5 * interval)
	w.wantKnown(cells...)
}

// An origin that is down affects neither the other regions nor the region's other shards.
func TestAShardThatIsDownDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	eu, us := w.addRegion("eu", w.clock, 2), w.addRegion("us", w.clock, 2)
	w.run(time.Second)
	eu.relayOrigin.ShardFaults(1).Fail(errDown)
	var up, down []window.Cell
	for i := range 20 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		eu.accept(c, 50, 100)
		us.accept(c, 20, 100)
		if eu.origin.ShardOf(&c.Key) == 0 {
			up = append(up, c)
		} else {
			down = append(down, c)
		}
	}
	w.run(2 * interval)
	w.wantKnown(up...)
	w.run(10 * time.Second) // the other shard's lease ends
	eu.relayOrigin.ShardFaults(1).Fail(nil)
	w.run(2 * time.Second)
	w.wantKnown(append(up, down...)...)
}

// A reader whose place in a stream was pruned starts again at the last snapshot.
func TestAReaderBehindAPruneStartsAtASnapshot(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.SnapshotEvery = time.Second
	w.run(time.Second)
	early := eu.cell("early", time.Hour)
	eu.accept(early, 70, 100)
	us.away = true
	c := eu.cell("k", time.Hour)
	for range 100 {
		eu.accept(c, 70, 100)
		w.run(interval)
	}
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	if rows[0].Sequence < 50 {
		t.Fatalf("nothing was pruned: the first of %d rows is %d", len(rows), rows[0].Sequence)
	}
	us.away = false
	w.run(4 * time.Second) // its lease has ended meanwhile
	w.wantKnown(early, c)
}

// A stream has only the rows since the last two snapshots.
func TestAStreamStaysShort(t *testing.T) {
	w, eu, _ := newPair(t)
	longest := 0
	for i := range 3000 {
		eu.accept(eu.cell(fmt.Sprint("k", i%7), time.Minute), 1, 10)
		w.run(interval)
		longest = max(longest, len(w.feed.Rows(store.Stream{Region: "eu"})))
	}
	if most := 3 * int(30*time.Second/interval); longest > most {
		t.Errorf("up to %d rows were kept, want at most those of three snapshots, %d", longest, most)
	}
}

// R2: a feed that was restored from a backup has lost rows that writers and readers have seen. Readers check for that
// every 5 s.
func TestR2FeedRestoredFromABackup(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	for i := range 30 {
		eu.accept(c, 1, 20)
		us.accept(c, 1, 20)
		w.run(interval)
		switch i {
		case 10:
			w.feed.Lose(store.Stream{Region: "eu"}, 4)
		case 20:
			w.feed.Wipe()
		}
	}
	w.run(6 * time.Second)
	w.wantKnown(c)
	fresh := w.addRegion("ap", w.clock, 1)
	w.run(time.Second)
	if got := fresh.total(c).Foreign; got != w.fleet(c) {
		t.Errorf("a region that joins afterwards knows %d of %d", got, w.fleet(c))
	}
}

// R5: counts that do not fit into a row are published with a later row, the greatest shares of their limits first.
func TestR5NothingIsDiscarded(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	w.feed.Faults.Fail(errDown)
	const n = 4000 // a batch of changes, four rows
	long := fmt.Sprintf("%0200d", 0)
	cells := make([]window.Cell, n)
	for i := range cells {
		cells[i] = eu.cell(fmt.Sprint(i, long), time.Hour)
		eu.accept(cells[i], int64(100+i%100), 1000)
	}
	var hot []window.Cell
	for i := range 10 {
		hot = append(hot, eu.cell(fmt.Sprint("hot", i), time.Hour))
		eu.accept(hot[i], 900, 1000)
	}
	w.run(interval)
	w.feed.Faults.Fail(nil)
	w.run(2 * interval)
	w.wantKnown(hot...)
	w.run(2 * time.Second)
	w.wantKnown(cells...)
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	published := make([]int, len(rows))
	for i, row := range rows {
		if err := relay.Decode(row.Payload, func(c window.Cell, _ int64) {
			published[i]++
			hot = slices.DeleteFunc(hot, func(h window.Cell) bool { return h == c })
		}); err != nil {
			t.Fatal(err)
		}
		if published[i] > 0 && len(hot) > 0 {
			t.Fatalf("row %d, the first of %d counts, lacks %d of the keys that are nearest to their limits", i, published[i], len(hot))
		}
	}
	if slices.Max(published) == n {
		t.Error("all fit into one row: nothing was tested")
	}
	for _, row := range rows {
		if len(row.Payload) > store.FeedBytesMax {
			t.Errorf("row %d has %d bytes", row.Sequence, len(row.Payload))
		}
	}
}

// A relay that takes over applies all counts of the other regions to its origin, and repeats none of its own region's
// published counts.
func TestATakeoverKnowsEverything(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.SnapshotEvery = 2 * time.Second
	var cells []window.Cell
	for i := range 50 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		cells = append(cells, c)
		eu.accept(c, int64(i), 100)
		us.accept(c, int64(2*i), 100)
		w.run(interval)
	}
	eu.stopRelay()
	before := w.feed.Stats()
	eu.relay = eu.newRelay("second")
	w.run(time.Second)
	w.wantKnown(cells[1:]...)
	if grown := w.feed.Stats().BytesStored - before.BytesStored; grown > 1000 {
		t.Errorf("the second relay told %d bytes of what was told before", grown)
	}
	eu.accept(cells[3], 1, 100)
	us.accept(cells[3], 1, 100)
	w.run(2 * time.Second)
	w.wantKnown(cells[1:]...)
}

// A relay forgets cells that have expired by the origin's clock. A relay without a lease forgets all cells.
func TestMemoryIsBoundedByLiveCells(t *testing.T) {
	w, eu, us := newPair(t)
	for i := range 600 {
		a, b := eu.cell(fmt.Sprint("a", i), 10*time.Second), us.cell(fmt.Sprint("b", i), 10*time.Second)
		eu.accept(a, 50, 100)
		us.accept(a, 1, 1000)
		eu.accept(b, 1, 100)
		us.accept(b, 1, 1000)
		w.run(time.Second)
	}
	// two cells a second: of this and the last window, for the minute of keptFor, until the next sweep
	live := 2 * (20 + 60 + 10)
	for _, r := range w.regions {
		if s := relay.Sizes(r.relay); s.Cells > live || s.Cells < 20 {
			t.Errorf("%s holds %+v, want at most %d", r.name, s, live)
		}
	}
	w.now = w.now.Add(5 * time.Minute)
	w.run(10 * time.Second)
	for _, r := range w.regions {
		if s := relay.Sizes(r.relay); s.Cells+s.Due+s.Unsent > 0 {
			t.Errorf("%s still holds %+v", r.name, s)
		}
	}
}

// If a replica is promoted that lacks foreign totals, the relay applies them again.
func TestAPromotedReplicaIsToldAgain(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := us.cell("k", time.Hour)
	received := us.origin.State()
	eu.accept(c, 50, 100)
	w.run(2 * interval)
	w.wantKnown(c)
	us.origin.Rollback(received)
	w.seen["us"] = nil
	w.run(store.KeepFor + 2*interval)
	w.wantKnown(c)
	w.run(store.KeepFor + 2*interval)
	applies := 0
	us.relayOrigin.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpApply {
			applies++
		}
		return nil
	})
	w.run(time.Minute)
	if applies > 0 {
		t.Errorf("it is told %d more times", applies)
	}
}

// R2: if a second replica is promoted, it may lack the totals that the relay applied again to the first. They are
// applied once more.
func TestR2AReplicaIsPromotedAfterAnother(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := us.cell("k", time.Hour)
	received := us.origin.State()
	eu.accept(c, 50, 100)
	w.run(2 * interval)
	us.origin.Rollback(received)
	w.seen["us"] = nil
	w.run(store.KeepFor + 2*interval)
	w.wantKnown(c)
	us.origin.Rollback(received)
	w.seen["us"] = nil
	w.run(store.KeepFor + 2*interval)
	w.wantKnown(c)
}

// A snapshot of several rows, with other rows between them, has all that a later region needs, including the cells
// whose counts wait until another region uses them.
func TestARegionThatJoinsLater(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.SnapshotEvery, w.tuning.Floor = 2*time.Second, 0.01
	w.run(time.Second)
	var counts, few []window.Cell
	for i := range 3000 {
		c := eu.cell(fmt.Sprintf("%d-%0220d", i, i), time.Hour)
		eu.accept(c, int64(100+i%500), 1000)
		counts = append(counts, c)
	}
	for i := range 100 {
		c := eu.cell(fmt.Sprint("few", i), time.Hour)
		few = append(few, c)
		eu.accept(c, 1, 1000)
	}
	w.run(interval)
	for _, c := range few {
		eu.accept(c, 8, 1000) // below the floor, so it waits for another region
	}
	for i := range 100 {
		eu.accept(counts[i%7], 10, 1000)
		w.run(interval)
	}
	parts := map[int64]int{}
	for _, row := range w.feed.Rows(store.Stream{Region: "eu"}) {
		parts[row.Snapshot]++
	}
	delete(parts, 0)
	if len(parts) == 0 || slices.Max(slices.Collect(maps.Values(parts))) < 2 {
		t.Fatalf("rows by snapshot: %v", parts)
	}
	w.counts = memstore.NewCounts(memstore.CountsOptions{Clock: w.clock}) // ap cannot use stored counts
	ap := w.addRegion("ap", w.clock, 1)
	w.run(2 * interval)
	w.wantKnown(counts...)
	for _, c := range few {
		ap.accept(c, 1, 1000)
	}
	w.run(2 * interval) // after eu's rows it publishes its own counts at once
	for _, c := range few {
		if got := eu.total(c).Foreign; got != 1 {
			t.Fatalf("eu knows %d of 1", got)
		}
	}
	w.run(2 * interval)
	w.wantKnown(few[0])
	for _, c := range few {
		if got := ap.total(c).Foreign; got != 9 {
			t.Fatalf("ap knows %d of 9", got)
		}
	}
}

// The count in the CountStore outlives its relay and the change feed.
func TestStoredCountsOutliveTheFeed(t *testing.T) {
	w, _, us := newPair(t)
	w.run(time.Second)
	c := us.cell("k", time.Hour)
	us.accept(c, 100, 100)
	w.run(6 * time.Second)
	us.away = true
	w.feed.Wipe()
	ap := w.addRegion("ap", w.clock, 1)
	w.run(time.Second)
	if got := ap.total(c).Foreign; got != 100 {
		t.Errorf("ap knows %d of 100", got)
	}
}

// A row that could not be stored is stored as soon as MySQL is back, even while the origin is down.
func TestARowOnItsWayNeedsNoOrigin(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	w.feed.Faults.Fail(errDown)
	w.run(interval)
	eu.relayOrigin.Faults.Fail(errDown)
	w.feed.Faults.Fail(nil)
	w.run(2 * interval)
	w.wantKnown(c)
}

// A relay that has lost its lease holds nothing.
func TestARelayWithoutALeaseHoldsNothing(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	for i := range 20 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		eu.accept(c, int64(1+i), 100)
		us.accept(us.cell(fmt.Sprint("k", 2*i), time.Hour), int64(1+i), 100)
	}
	w.run(time.Second)
	if s := relay.Sizes(eu.relay); s.Cells < 20 {
		t.Fatalf("it holds %+v", s)
	}
	eu.relayOrigin.Faults.Fail(errDown)
	w.run(5 * time.Second)
	if s := relay.Sizes(eu.relay); s.Cells+s.Due+s.Unsent > 0 {
		t.Errorf("it still holds %+v", s)
	}
}

// A relay with the leases of some shards holds only live cells of the other shards.
func TestMemoryIsBoundedWhereAnotherRelayLeads(t *testing.T) {
	w := newWorld(t)
	eu, us := w.addRegion("eu", w.clock, 2), w.addRegion("us", w.clock, 2)
	if _, err := eu.origin.Lease(t.Context(), 1, "another", 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		us.accept(us.cell(fmt.Sprint("k", i), 10*time.Second), 50, 100)
		w.run(time.Second)
	}
	if s := relay.Sizes(eu.relay); s.Cells > 100 || s.Unsent > 100 || s.Cells < 20 {
		t.Errorf("it holds %+v, want what was told in the last 100 s", s)
	}
}

// R1: if a region gets another name together with an empty origin, the cost that it accepted under the old name counts
// once.
func TestR1ARenamedRegionWithAnEmptyOrigin(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	w.run(2 * time.Second)
	eu.away = true
	europe := w.addRegion("europe", w.clock, 1)
	w.run(2 * time.Second)
	europe.accept(c, 20, 100)
	w.run(2 * time.Second)
	if got := europe.total(c); got.Region != 20 || got.Foreign != 50 {
		t.Errorf("by its new name it has accepted %d, want 20; by its old one %d, want 50", got.Region, got.Foreign)
	}
	if got := w.regions[1].total(c).Foreign; got != 70 {
		t.Errorf("us knows %d of 70", got)
	}
}

// Rows that are no longer needed are all deleted, however many have gathered while pruning failed.
func TestAllRowsThatAreNotNeededAreDeleted(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.SnapshotEvery = time.Second
	w.feed.Faults.Hook(failing(memstore.OpPrune))
	for i := range 1200 {
		eu.accept(eu.cell(fmt.Sprint("k", i%7), time.Minute), 1, 10)
		w.run(interval)
	}
	w.feed.Faults.Hook(nil)
	w.tuning.SnapshotEvery = time.Hour // so that no later snapshot prunes
	w.run(2 * interval)
	before := w.feed.Stats().RowsPruned
	w.run(10 * interval)
	rows, pruned := w.feed.Rows(store.Stream{Region: "eu"}), w.feed.Stats().RowsPruned
	if pruned < 1100 || pruned != before || len(rows) > 100 {
		t.Errorf("%d rows are deleted, %d of them in two intervals, and %d are left", pruned, before, len(rows))
	}
}
