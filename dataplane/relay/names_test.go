package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// R2: rows after the first count of a cell have only its number. Relays that begin at a snapshot, that follow the
// stream, and that follow another writer all find the cell.
func TestR2CountsByNumberReachEveryReader(t *testing.T) {
	for what, between := range map[string]func(*world){
		"one that follows":      func(*world) {},
		"one that begins anew":  func(w *world) { w.replace(w.regions[1], "second") },
		"one of another writer": func(w *world) { w.replace(w.regions[0], "second") },
		"of a snapshot's writer": func(w *world) {
			w.replace(w.regions[0], "second")
			w.run(5 * time.Second)
			w.replace(w.regions[1], "second")
		},
	} {
		w, eu, _ := newPair(t)
		w.tuning.SnapshotEvery, w.tuning.StoreFloor = time.Second, 1 // so that only the change feed has the counts
		var cells []window.Cell
		for i := range 100 {
			cells = append(cells, eu.cell(fmt.Sprint("k", i), time.Hour))
			eu.accept(cells[i], 20, 1000)
		}
		w.run(5 * time.Second)
		for range 3 {
			between(w)
			for i, c := range cells {
				eu.accept(c, 100+int64(i), 1000)
			}
			w.run(2 * time.Second)
		}
		eu.acceptAll(cells, 600) // this reaches the limit
		w.run(2 * time.Second)
		for _, c := range cells {
			if got, want := w.regions[1].total(c).Foreign, eu.total(c).Region; got < want-100 {
				t.Errorf("%s: us knows %d of %d of %v", what, got, want, c.Identifier)
			}
		}
	}
}

func (r *region) acceptAll(cells []window.Cell, cost int64) {
	r.Helper()
	for _, c := range cells {
		r.accept(c, cost, 1000)
	}
}

// replace stops a region's relay and starts another.
func (w *world) replace(r *region, holder string) {
	w.Helper()
	if err := r.relay.Stop(w.Context()); err != nil {
		w.Fatal(err)
	}
	r.relay = r.newRelay(holder)
}

// R2: a region reads a snapshot to its end even if it has more bytes than a page.
func TestR2ASnapshotOfManyPagesIsReadWhole(t *testing.T) {
	w := newWorld(t, "eu")
	w.tuning.SnapshotEvery, w.tuning.StoreFloor = time.Second, 1 // so that only the change feed has the counts
	eu := w.regions[0]
	var cells []window.Cell
	for i := range 2500 {
		cells = append(cells, eu.cell(fmt.Sprint(strings.Repeat("x", 250), i), time.Hour))
	}
	eu.acceptAll(cells, 200)
	w.run(5 * time.Second)
	us := w.addRegion("us", w.clock, 1)
	us.relay = us.relayOver("first", us.relayOrigin, shortPages{us.feed}, us.counts)
	w.run(time.Second)
	w.wantKnown(cells...)
}

// shortPages returns a single row in each page.
type shortPages struct{ store.Feed }

func (s shortPages) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	q.MaxBytes = 1
	return s.Feed.Read(ctx, q)
}

// R1: a number refers to a cell named by the same writer. The region's next relay assigns the number to another cell.
func TestR1WritersDoNotShareNumbers(t *testing.T) {
	w := newWorld(t, "ap", "us")
	ap, us := w.regions[0], w.regions[1]
	ap.away = true
	w.run(time.Second)
	a, b := ap.cell("a", time.Hour), ap.cell("b", time.Hour)
	for i, row := range []store.FeedRow{
		{Writer: 1, Payload: relay.EncodeName(a, 1)},
		{Writer: 2, Payload: relay.EncodeName(b, 1)},
		{Writer: 2, Payload: relay.EncodeNumber(b, 1, 7)},
		{Writer: 3, Payload: relay.EncodeNumber(b, 1, 9)},
	} {
		row.Stream, row.Sequence = store.Stream{Region: "ap"}, int64(i+1)
		if err := w.feed.Append(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	ap.accept(a, 1, 100)
	ap.accept(b, 7, 100)
	w.step()
	if gotA, gotB := us.total(a).Foreign, us.total(b).Foreign; gotA != 1 || gotB != 7 {
		t.Errorf("us knows %d and %d, want 1 and 7", gotA, gotB)
	}
}

// R2: names of windows that seem to be in the future are left out. When such a window has begun and rows have its
// cells' numbers, the stream is read again from a row with the names.
func TestR2NamesThatCameTooEarlyAreReadAgain(t *testing.T) {
	w := newWorld(t, "eu")
	w.tuning.StoreFloor = 1 // so that only the change feed has the counts
	eu, ahead := w.regions[0], 10*time.Minute
	us := w.addRegion("us", func() time.Time { return w.now.Add(ahead) }, 1)
	w.run(time.Second)
	c := us.cell("k", time.Minute)
	us.accept(c, 20, 1000)
	us.accept(c, 80, 1000)
	w.run(time.Second)
	if got := eu.total(c).Foreign; got != 0 {
		t.Fatalf("eu knows %d of a window that begins in ten minutes", got)
	}
	for ; ahead > 0; ahead -= interval { // us's clock stands still
		w.run(interval)
	}
	us.accept(c, 300, 1000)
	if n := w.intervalsUntilKnown(c); n > 4 {
		t.Errorf("known after %d intervals", n)
	}
}

// A later count of a cell takes 2 bytes, however long the cell's name is.
func TestCountsByNumberAreShort(t *testing.T) {
	w := newWorld(t, "eu")
	w.tuning.SnapshotEvery = time.Hour
	eu := w.regions[0]
	var cells []window.Cell
	for i := range 2000 {
		name := fmt.Sprintf("a name that is rather long %x", uint64(i)*0x9e3779b97f4a7c15)
		cells = append(cells, eu.cell(name, time.Hour))
	}
	eu.acceptAll(cells, 100)
	w.run(2 * time.Second)
	before := w.feed.Stats().BytesStored
	eu.acceptAll(cells, 100)
	w.run(time.Second)
	if n := w.feed.Stats().BytesStored - before; n > 2*int64(len(cells))+100 {
		t.Errorf("%d counts took %d bytes", len(cells), n)
	}
}

// A relay forgets names when their windows have expired.
func TestNamesAreForgotten(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	for i := range 50 {
		eu.accept(eu.cell(fmt.Sprint("k", i), time.Minute), 20, 100)
	}
	w.run(time.Second)
	if own, read := relay.Names(eu.relay), relay.Names(us.relay); own != 1 || read != 1 {
		t.Errorf("%d and %d groups, want 1 and 1", own, read)
	}
	w.run(5 * time.Minute)
	if own, read := relay.Names(eu.relay), relay.Names(us.relay); own != 0 || read != 0 {
		t.Errorf("%d and %d groups after the window", own, read)
	}
}

// Rows that someone else stores under a region's name cannot make a relay keep names without bound. It keeps nothing
// for numbers without names, and for names at most the bound of a region. Beyond the bound it leaves out the region's
// counts, and reads other regions as before.
func TestNamesAreBounded(t *testing.T) {
	w := newWorld(t, "eu", "us", "ap")
	eu, us := w.regions[0], w.regions[1]
	w.regions[2].away = true
	const most = 8
	relay.SetLeaves(eu.relay, most)
	w.run(time.Second)
	ap := hostile{world: w, region: "ap"}
	c := eu.cell("k", time.Minute)
	w.regions[2].accept(c, 1, 1000)
	for i := range 100 {
		other := c
		other.Namespace = fmt.Sprint("n", i)
		ap.publish(1, relay.EncodeNumber(other, uint32(i+1), 7))
	}
	w.run(interval)
	if n := relay.Names(eu.relay); n != 0 {
		t.Errorf("%d groups of names that were not told", n)
	}
	for i := range 100 {
		ap.publish(1, relay.EncodeName(c, uint32(i+1)<<10))
		ap.publish(uint64(i+2), relay.EncodeName(c, 1))
	}
	w.run(interval)
	if n := relay.Leaves(eu.relay); n != most {
		t.Errorf("%d leaves of one region, want %d", n, most)
	}
	wantMetric(t, eu.relay, fmt.Sprint("weir_relay_excess_cells_total ", 200-most))
	for _, cost := range []int64{20, 600} {
		us.accept(c, cost, 1000)
		w.run(2 * interval)
	}
	if got := eu.total(c).Foreign; got != 621 {
		t.Errorf("eu knows %d of a cell of us and ap, want 621", got)
	}
	w.run(3 * time.Minute)
	later := eu.cell("later", time.Minute)
	w.regions[2].accept(later, 1, 1000)
	ap.publish(200, relay.EncodeName(later, 1))
	w.run(interval)
	if n := relay.Leaves(eu.relay); n != 1 {
		t.Errorf("%d leaves after the window, want 1", n)
	}
}

// hostile writes rows of a region into the change feed.
type hostile struct {
	*world
	region string
	rows   int64
}

func (h *hostile) publish(writer uint64, payload []byte) {
	h.Helper()
	h.row(store.FeedRow{Writer: writer, Payload: payload})
}

func (h *hostile) row(row store.FeedRow) {
	h.Helper()
	h.rows++
	row.Stream, row.Sequence = store.Stream{Region: h.region}, h.rows
	if err := h.feed.Append(h.Context(), row); err != nil {
		h.Fatal(err)
	}
}
