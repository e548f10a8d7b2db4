package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// R2: a MySQL server that is promoted has lost a row that its predecessor had acknowledged, before another region read
// it. The region that wrote the row publishes its counts again, even if it accepts nothing more.
func TestR2ASilentRegionFindsThatItsRowsAreLost(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 100, 100)
	us.away = true
	w.run(interval)
	us.away = false
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	w.feed.Lose(store.Stream{Region: "eu"}, rows[len(rows)-1].Sequence)
	w.run(15 * time.Second)
	w.wantKnown(c)
}

// R2: the store has lost the last rows that a reader has read. The next writer has reused their numbers, and has
// written the number after them, before the reader checks. So the number of the next row is as expected, but its writer
// is not.
func TestR2LostRowsThatOthersReplaceAreRead(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	for i := range 30 { // so that the last proof of the reader's cursors is a second old
		eu.accept(eu.cell(fmt.Sprint("before", i), time.Hour), 100, 100)
		w.run(interval)
	}
	us.away = true
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	w.feed.Lose(store.Stream{Region: "eu"}, rows[len(rows)-4].Sequence)
	var cells []window.Cell
	for i := range 8 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		cells = append(cells, c)
		eu.accept(c, 100, 100)
		w.run(interval)
	}
	us.away = false
	w.run(20 * time.Second)
	w.wantKnown(cells...)
}

// R2: rows that a relay still has to delete are not deleted from a stream that has begun again with lower numbers.
func TestR2NoPruneReachesIntoARestoredStream(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.SnapshotEvery, w.tuning.StoreFloor = time.Second, 1 // so that only the change feed has the counts
	w.feed.Faults.Hook(failing(memstore.OpPrune))
	for range 30 {
		eu.accept(eu.cell("k", time.Hour), 1, 100)
		w.run(interval)
	}
	us.away = true
	w.feed.Wipe()
	w.tuning.SnapshotEvery = time.Hour
	var cells []window.Cell
	for i := range 5 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		cells = append(cells, c)
		eu.accept(c, 15, 100)
		w.run(interval)
	}
	w.feed.Faults.Hook(nil)
	w.run(interval)
	us.away = false
	w.run(5 * time.Second)
	w.wantKnown(cells...)
}
