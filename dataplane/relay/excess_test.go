package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// If a region has more cells than a relay holds of any region, the rest takes no memory and no room of other regions,
// and the log names the region. The cells that the own region uses are applied all the same, and there is room again
// once windows have ended.
func TestARegionOfTooManyCells(t *testing.T) {
	w := newWorld(t, "us", "ap")
	us, ap := w.regions[0], w.regions[1]
	eu := w.addRegion("eu", w.clock, 1)
	var log bytes.Buffer
	made, err := relay.New(relay.Config{Region: "eu", Holder: "first", Origin: eu.relayOrigin, Feed: w.feed, Counts: w.counts, Clock: w.clock,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	const most = 10
	eu.relay = made
	relay.SetBounds(eu.relay, most)
	w.run(time.Second)
	own := eu.cell("own", 10*time.Second)
	eu.accept(own, 1, 100)
	w.run(interval)
	for i := range 5 * most {
		us.accept(us.cell(fmt.Sprint("us-", i), 10*time.Second), 50, 100)
	}
	w.run(2 * interval)
	us.accept(own, 20, 100)
	shared := ap.cell("ap", 10*time.Second)
	ap.accept(shared, 50, 100)
	w.run(2 * interval)
	if n := relay.Parts(eu.relay, "us"); n != most+1 {
		t.Errorf("eu holds %d cells of us, want %d and the own one", n, most)
	}
	if s := relay.Sizes(eu.relay); s.Cells != most+2 {
		t.Errorf("eu holds %+v", s)
	}
	wantMetric(t, eu.relay, "weir_relay_excess_cells_total 40")
	if n := strings.Count(log.String(), "region=us"); n != 1 {
		t.Errorf("us was named %d times:\n%s", n, log.String())
	}
	if got := eu.total(own).Foreign; got != 20 {
		t.Errorf("of a cell that eu uses it knows %d of 20", got)
	}
	if got := eu.total(shared).Foreign; got != 50 {
		t.Errorf("of a cell of ap eu knows %d of 50", got)
	}
	w.run(2 * time.Minute)
	if n := relay.Parts(eu.relay, "us"); n != 0 {
		t.Errorf("after their windows eu holds %d cells of us", n)
	}
	later := us.cell("later", 10*time.Second)
	us.accept(later, 50, 100)
	w.run(2 * interval)
	w.wantKnown(later)
}

// A relay that takes over holds no more of the own region's cells from MySQL than it would hold of another region's. It
// holds and publishes all cells that its origin has.
func TestTooManyCellsOfTheOwnRegion(t *testing.T) {
	w, eu, us := newPair(t)
	eu.away = true
	w.run(time.Second)
	const most = 10
	relay.SetBounds(eu.relay, most)
	own := hostile{world: w, region: "eu"}
	var stored []store.Count
	for i := range uint32(5 * most) {
		published, kept := eu.cell(fmt.Sprint("feed-", i), time.Minute), eu.cell(fmt.Sprintf("stored-%02d", i), time.Minute)
		eu.accepted[published], eu.accepted[kept] = 1, 50 // so that R1 holds
		own.publish(1, relay.EncodeName(published, i+1))
		own.publish(2, relay.EncodeName(published, 1))
		stored = append(stored, store.Count{Cell: kept, Count: 50})
	}
	if err := w.counts.Publish(t.Context(), "eu", stored); err != nil {
		t.Fatal(err)
	}
	eu.away = false
	w.run(interval)
	if n := relay.Owns(eu.relay); n != most {
		t.Errorf("eu holds %d cells of its own, want %d", n, most)
	}
	wantMetric(t, eu.relay, "weir_relay_excess_cells_total 91") // 80 rows, and 11 stored counts of 50
	c := eu.cell("k", time.Minute)
	eu.accept(c, 50, 100)
	w.run(2 * interval)
	if got := us.total(c).Foreign; got != 50 {
		t.Errorf("us knows %d of 50", got)
	}
	w.run(3 * time.Minute)
	if n := relay.Owns(eu.relay); n != 0 {
		t.Errorf("after their windows eu holds %d cells of its own", n)
	}
}

// Rows of invented regions, in the change feed or in the CountStore, cannot make a relay hold cells of more regions
// than it has room for.
func TestTooManyRegions(t *testing.T) {
	w, eu, us := newPair(t)
	const most = 10
	relay.SetRegions(eu.relay, most)
	eu.away = true
	w.run(time.Second)
	c := us.cell("k", time.Minute)
	us.accept(c, 50, 100)
	w.run(interval)
	for i := range 2 * most {
		made := fmt.Sprintf("made-up-%02d", i)
		x := eu.cell(made, time.Minute)
		us.accepted[x] = 1 // so that R1 holds
		if err := w.counts.Publish(t.Context(), made, []store.Count{{Cell: x, Count: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	eu.away = false
	w.run(interval)
	wantMetric(t, eu.relay, "weir_relay_excess_cells_total 11")
	if n := relay.Regions(eu.relay); n != most {
		t.Errorf("eu holds cells of %d regions, want %d", n, most)
	}
	w.run(3 * time.Minute)
	later := us.cell("later", time.Minute)
	us.accept(later, 50, 100)
	w.run(2 * interval)
	w.wantKnown(later)
}

// Streams beyond the number that a relay follows take no memory and no room of other streams, and are logged. Once the
// streams that it follows have gone, there is room for others.
func TestTooManyStreams(t *testing.T) {
	w, eu, us := newPair(t)
	var log bytes.Buffer
	made, err := relay.New(relay.Config{Region: "eu", Holder: "first", Origin: eu.relayOrigin, Feed: w.feed, Counts: w.counts,
		Clock: w.clock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	const most = 10
	eu.relay = made
	relay.SetStreams(eu.relay, most)
	w.run(time.Second)
	c := eu.cell("k", time.Minute)
	us.accepted[c], eu.accepted[c] = 100, 100 // so that R1 holds
	for i := range 5 * most {
		h := hostile{world: w, region: fmt.Sprintf("made-up-%02d", i)}
		h.publish(1, relay.EncodeName(c, 1))
	}
	w.run(time.Second)
	if n := relay.Streams(eu.relay); n != most {
		t.Errorf("eu follows %d streams, want %d", n, most)
	}
	if n := strings.Count(log.String(), fmt.Sprint("streams_max=", most)); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
	wantMetric(t, eu.relay, "weir_relay_full_reads_total 5")
	shared := us.cell("us", time.Minute)
	us.accept(shared, 50, 100)
	w.run(2 * interval)
	w.wantKnown(shared)
	for i := range 5 * most {
		w.feed.Lose(store.Stream{Region: fmt.Sprintf("made-up-%02d", i)}, 0)
	}
	w.run(10 * time.Second)
	ap := hostile{world: w, region: "ap"}
	ap.publish(1, relay.EncodeName(c, 1))
	w.run(interval)
	if n := relay.Streams(eu.relay); n != 2 {
		t.Errorf("eu follows %d streams, want us and ap", n)
	}
}
