package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// publishingRelay replaces a region's relay by a relay whose rows for peers are kept, as a peer's link keeps them.
func (r *region) publishingRelay() *[]store.FeedRow {
	published := new([]store.FeedRow)
	made, err := relay.New(relay.Config{Region: r.name, Holder: "first", Origin: r.relayOrigin, Feed: r.feed, Counts: r.counts,
		Clock: r.clock, Tuning: func() relay.Tuning { return r.tuning },
		Publish: func(row store.FeedRow) { *published = append(*published, row) }})
	if err != nil {
		r.Fatal(err)
	}
	r.relay = made
	return published
}

// A row from a peer is applied at once, applied again when it is read from the feed, and moves no cursor.
func TestARowIsHeardAndReadAllTheSame(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	us.away = true
	w.run(interval)
	if len(*published) != 1 {
		t.Fatalf("%d rows are told, want 1", len(*published))
	}
	for range 2 {
		if err := us.relay.Apply((*published)[0]); err != nil {
			t.Fatal(err)
		}
	}
	w.feed.Faults.Fail(errDown)
	_ = us.relay.Step(t.Context())
	w.wantKnown(c)
	wantMetric(t, us.relay, `weir_relay_feed_rows_total{direction="received"} 2`, `weir_relay_feed_rows_total{direction="read"} 1`)
	w.feed.Faults.Fail(nil)
	us.away = false
	w.run(2 * interval)
	wantMetric(t, us.relay, `weir_relay_feed_rows_total{direction="read"} 2`)
	w.wantKnown(c)
	w.checkR1()
}

// An older row that is applied after a newer row lowers nothing. A count from a peer makes the own region publish its
// count of the cell.
func TestRowsAreHeardInAnyOrder(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	c, few := eu.cell("k", time.Hour), eu.cell("few", time.Hour)
	us.accept(few, 2, 100)
	w.run(2 * interval)
	us.away = true
	eu.accept(few, 1, 100)
	for _, cost := range []int64{20, 30, 40} {
		eu.accept(c, cost, 100)
		w.run(interval)
	}
	slices.Reverse(*published)
	for _, row := range *published {
		if err := us.relay.Apply(row); err != nil {
			t.Fatal(err)
		}
		_ = us.relay.Step(t.Context())
		w.checkR1()
	}
	w.wantKnown(c)
	if got := us.total(few).Foreign; got != 1 {
		t.Errorf("us knows %d of 1", got)
	}
	us.away = false
	w.run(2 * interval)
	w.wantKnown(few)
}

// Peers receive a count once, before it is stored, however often its row is appended. They receive no snapshots and no
// empty rows.
func TestARowIsToldOnce(t *testing.T) {
	w, eu, _ := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	eu.accept(eu.cell("short", time.Second), 50, 100) // too short to publish: only acknowledged
	w.run(time.Second)
	if len(*published) != 0 {
		t.Fatalf("%d rows are told, and nothing that is shared is accepted", len(*published))
	}
	w.feed.Faults.Hook(failing(memstore.OpAppend))
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	w.run(time.Second)
	if len(*published) != 1 {
		t.Errorf("%d rows are told, want 1", len(*published))
	}
	w.feed.Faults.Hook(nil)
	w.run(2 * time.Minute) // long enough for snapshots
	if len(*published) != 1 {
		t.Errorf("%d rows are told, want 1", len(*published))
	}
	w.wantKnown(c)
}

// A relay that has been replaced may publish rows to peers that are never stored. They are lower bounds all the same,
// and do no harm.
func TestR1ARelayWithoutItsNumberMayTell(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	taken := store.FeedRow{Stream: store.Stream{Region: "eu"}, Sequence: rows[len(rows)-1].Sequence + 1, Writer: 99, Payload: []byte{1, 0, 0}}
	if err := w.feed.Append(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	_ = eu.relay.Step(context.Background())
	wantMetric(t, eu.relay, "weir_relay_fenced_total 1")
	if len(*published) != 1 {
		t.Fatalf("%d rows are told, want the one that was refused", len(*published))
	}
	if err := us.relay.Apply((*published)[0]); err != nil {
		t.Fatal(err)
	}
	w.step()
	eu.accept(c, 30, 100)
	w.run(time.Second)
	w.wantKnown(c)
}

// A relay that takes over while MySQL is down exchanges with peers as its predecessor did: counts that its region
// accepts from then on, counts that were accepted while MySQL was down already, and counts that waited in the origin
// until another region used their cells.
func TestARelayThatTakesOverWithoutMySQLExchangesWithPeers(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.Floor = 0.5
	publishedEu, publishedUs := eu.publishingRelay(), us.publishingRelay()
	deliver := func() {
		for range 3 {
			w.run(interval)
			for _, row := range *publishedEu {
				_ = us.relay.Apply(row)
			}
			for _, row := range *publishedUs {
				_ = eu.relay.Apply(row)
			}
			*publishedEu, *publishedUs = nil, nil
		}
		w.run(interval)
	}
	w.run(time.Second)
	before, waits, later := eu.cell("before", time.Hour), eu.cell("waits", time.Hour), eu.cell("later", time.Hour)
	for _, cost := range []int64{1, 30} { // the second count waits
		eu.accept(waits, cost, 100)
		deliver()
	}
	w.feed.Faults.Fail(errDown)
	w.counts.Faults.Fail(errDown)
	eu.accept(before, 60, 100)
	w.run(interval)
	eu.stopRelay()
	publishedEu = eu.publishingRelay() // the last rows that its predecessor sent to peers are lost
	w.run(interval)
	eu.accept(later, 70, 100)
	us.accept(later, 20, 100)
	us.accept(waits, 1, 100)
	deliver()
	w.wantKnown(before, waits, later)
	eu.accept(later, 1, 100)
	us.accept(later, 2, 100)
	w.run(20 * time.Second) // loads fail meanwhile
	deliver()
	w.wantKnown(before, waits, later)
}

// A relay repeats for a peer all counts that peers or Feed received before, in as many rows as it needs, and no counts
// that were kept back. Without the lease it repeats nothing.
func TestARelayRepeatsWhatPeersReceivedBefore(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	published := eu.publishingRelay()
	w.run(time.Second)
	const n = 1_600
	name := strings.Repeat("x", 200)
	for i := range n {
		eu.accept(eu.cell(fmt.Sprint(i, name), time.Hour), 3, 100)
	}
	w.run(time.Second)
	if len(*published) == 0 {
		t.Fatal("peers received nothing")
	}
	kept := eu.cell(fmt.Sprint(7, name), time.Hour)
	eu.accept(kept, 2, 100) // is kept back, because no other region uses the cell
	w.run(time.Second)
	rows, got := 0, make(map[window.Cell]int64)
	for row := range eu.relay.Handed() {
		rows++
		if len(row.Payload) > store.FeedBytesMax || row.Region != "eu" || row.Sequence != 0 {
			t.Errorf("row %d is of %v and has %d bytes", row.Sequence, row.Stream, len(row.Payload))
		}
		if err := relay.Decode(row.Payload, func(c window.Cell, total int64) { got[c] += total }); err != nil {
			t.Fatal(err)
		}
	}
	if rows < 2 || len(got) != n || got[kept] != 3 {
		t.Errorf("%d rows have %d counts, want more than 1 and %d; one that was kept back is %d, want the 3 of before", rows,
			len(got), n, got[kept])
	}
	eu.stopRelay()
	for row := range eu.relay.Handed() {
		t.Fatalf("without the lease it repeats a row of %d bytes", len(row.Payload))
	}
}

// Lost counts each time that the relay loses its lease, and with it the counts that peers had sent.
func TestARelayCountsHowOftenItHasForgotten(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	if n := eu.relay.Lost(); n != 0 {
		t.Errorf("it has lost its lease %d times", n)
	}
	for want := 1; want < 3; want++ {
		eu.relayOrigin.Faults.Fail(errDown)
		w.run(5 * time.Second)
		if n := eu.relay.Lost(); n != want {
			t.Errorf("it has lost its lease %d times, want %d", n, want)
		}
		eu.relayOrigin.Faults.Fail(nil)
		w.run(2 * time.Second)
	}
}

// Apply rejects the whole row if no relay of another region can have written it.
func TestApplyRefuses(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	next := eu.cell("next", time.Minute)
	next.Sequence++
	eu.accept(next, 50, 100)
	_ = eu.relay.Step(t.Context())
	good := (*published)[0]
	late := eu.cell("late", time.Minute)
	late.Sequence += 3
	for what, spoil := range map[string]func(*store.FeedRow){
		"own":               func(r *store.FeedRow) { r.Region = "us" },
		"region":            func(r *store.FeedRow) { r.Region = "" },
		"region is":         func(r *store.FeedRow) { r.Region = strings.Repeat("x", store.RegionBytesMax+1) },
		"shard":             func(r *store.FeedRow) { r.Shard = store.FeedShardsMax },
		"shard is":          func(r *store.FeedRow) { r.Shard = -1 },
		"payload":           func(r *store.FeedRow) { r.Payload = nil },
		"version":           func(r *store.FeedRow) { r.Payload = []byte{99} },
		"bytes":             func(r *store.FeedRow) { r.Payload = make([]byte, store.FeedBytesMax+1) },
		"more bytes than":   func(r *store.FeedRow) { r.Payload = r.Payload[:len(r.Payload)-1] },
		"a cell expires at": func(r *store.FeedRow) { r.Payload = relay.Encode(late) },
		"number 1,":         func(r *store.FeedRow) { r.Payload = relay.EncodeName(next, 1) },
		"number 7,":         func(r *store.FeedRow) { r.Payload = relay.EncodeNumber(next, 7, 50) },
	} {
		bad := good
		spoil(&bad)
		if err := us.relay.Apply(bad); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if sizes := relay.Sizes(us.relay); sizes.Cells != 0 {
		t.Errorf("of what was refused it holds %+v", sizes)
	}
	if err := us.relay.Apply(good); err != nil {
		t.Error(err)
	}
	if sizes := relay.Sizes(us.relay); sizes.Cells != 2 {
		t.Errorf("of what was taken in it holds %+v, want 2 cells, one of the next window", sizes)
	}
}

// A relay that leads no shard applies nothing, and holds nothing.
func TestApplyWithoutALease(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	_ = eu.relay.Step(t.Context())
	second := us.newRelay("second")
	for range 2 {
		if err := second.Apply((*published)[0]); !errors.Is(err, relay.ErrIdle) || second.Leads() {
			t.Errorf("%v; leads: %v", err, second.Leads())
		}
		_ = second.Step(t.Context()) // us's first relay has the lease
	}
	if err := us.relay.Apply((*published)[0]); err != nil || !us.relay.Leads() {
		t.Errorf("%v; leads: %v", err, us.relay.Leads())
	}
	us.relayOrigin.Faults.Fail(errDown)
	w.now = w.now.Add(4 * time.Second)
	for range 2 {
		if err := us.relay.Apply((*published)[0]); !errors.Is(err, relay.ErrIdle) {
			t.Errorf("after its lease has ended: %v", err)
		}
		_ = us.relay.Step(t.Context())
	}
	us.relayOrigin.Faults.Fail(nil)
	w.now = w.now.Add(4 * time.Second)
	var early []error
	us.relayOrigin.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpChanges { // it has the lease, but has not read yet
			early = append(early, us.relay.Apply((*published)[0]))
		}
		return nil
	})
	_ = us.relay.Step(t.Context())
	if len(early) == 0 || !errors.Is(early[0], relay.ErrIdle) {
		t.Errorf("with a new lease, before it has begun to read: %v", early)
	}
	if err := us.relay.Apply((*published)[0]); err != nil {
		t.Errorf("after it has begun to read: %v", err)
	}
}

// Apply applies a row as a whole or not at all, whatever a peer sends, and does not panic.
func FuzzApply(f *testing.F) {
	w, eu, us := newPair(f)
	published := eu.publishingRelay()
	w.run(time.Second)
	for _, d := range []time.Duration{time.Hour, time.Minute} {
		eu.accept(eu.cell("k", d), 50, 100)
		eu.accept(eu.cell("l", d), 1, 100)
	}
	_ = eu.relay.Step(context.Background())
	for _, row := range *published {
		f.Add(row.Region, row.Shard, row.Payload)
		f.Add("us", row.Shard, row.Payload)
		f.Add(row.Region, -1, row.Payload[:len(row.Payload)/2])
	}
	f.Fuzz(func(t *testing.T, region string, shard int, payload []byte) {
		before := relay.Sizes(us.relay)
		err := us.relay.Apply(store.FeedRow{Stream: store.Stream{Region: region, Shard: shard}, Payload: payload})
		after := relay.Sizes(us.relay)
		if err != nil && (!errors.Is(err, store.ErrRefused) || after != before) {
			t.Errorf("%v; before %+v, after %+v", err, before, after)
		}
		if grown := after.Cells - before.Cells; grown > len(payload) {
			t.Errorf("%d bytes make %d cells", len(payload), grown)
		}
	})
}

// Counts from peers are applied to the origin at once, not with the next interval.
func TestWhatIsHeardIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "us")
		us := w.regions[0]
		start(t, us.relay)
		time.Sleep(2*time.Second + interval/2)
		c := us.cell("k", time.Hour)
		row := store.FeedRow{Stream: store.Stream{Region: "eu"}, Sequence: 1, Writer: 1, Payload: relay.Encode(c)}
		if err := us.relay.Apply(row); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); us.total(c).Foreign != 1 { // virtual time has not moved
			t.Errorf("us knows %d of 1 that was heard", us.total(c).Foreign)
		}
	})
}

// R6: peers receive the counts of a new epoch at once, before the relay has healed the origin. The relay does not heal
// the origin with these counts, because the origin has them already.
func TestR6WhatPeersReceiveHealsNoOrigin(t *testing.T) {
	w, eu, _ := newPair(t)
	published := eu.publishingRelay()
	w.run(time.Second)
	eu.origin.Wipe()
	c := eu.cell("k", time.Hour)
	eu.total(c) // the node notices the new epoch
	eu.accept(c, 50, 100)
	w.run(interval) // first the rows for peers, then the changes, before which the relay heals the origin
	if len(*published) != 1 {
		t.Errorf("%d rows were handed to peers, want 1", len(*published))
	}
	w.run(time.Second)
	if got := eu.total(c).Region; got != 50 {
		t.Errorf("the origin was raised to %d, and 50 were accepted", got)
	}
	w.wantKnown(c)
}
