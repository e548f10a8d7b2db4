package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/window"
)

func TestOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) store.Origin { return memstore.NewOrigin(memstore.OriginOptions{}) })
}

// Conformance 28: "none lives past (sequence+2)*duration + grace + jitter".
func TestOriginForgetsCells(t *testing.T) {
	now := time.Now()
	o := memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }, Grace: 10 * time.Second})
	cells := make([]window.Cell, 100)
	var adds []store.Add
	for i := range cells {
		cells[i] = minuteCell(fmt.Sprint(i))
		cells[i].Sequence = window.Sequence(now.UnixMilli(), time.Minute.Milliseconds())
		adds = append(adds, store.Add{Cell: cells[i], Cost: 1})
	}
	o.Add(t.Context(), adds)

	expires := time.UnixMilli(cells[0].ExpiresAtMs())
	for _, step := range []struct {
		after       time.Duration // they have expired
		least, most int           // of them are there
	}{
		{-time.Minute, 100, 100},
		{10*time.Second - time.Millisecond, 100, 100},
		{13 * time.Second, 1, 99}, // in the middle of the jitter, a tenth of the duration
		{16*time.Second + time.Millisecond, 0, 0},
	} {
		now = expires.Add(step.after)
		totals, err := o.Read(t.Context(), cells)
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for _, total := range totals {
			alive += int(total)
		}
		if listed := len(o.Rows()); listed != alive {
			t.Errorf("%v after they expired %d rows are listed and %d can be read", step.after, listed, alive)
		}
		if alive < step.least || alive > step.most {
			t.Errorf("%v after they expired %d cells are there, want %d to %d", step.after, alive, step.least, step.most)
		}
	}
}

// What has expired is removed in passing, so that memory follows what is alive.
func TestOriginDoesNotPileUp(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	o := memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }})
	for second := range 2000 {
		now = now.Add(time.Second)
		var adds []store.Add
		for i := range 10 {
			key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(second, i), Duration: time.Second}
			adds = append(adds, store.Add{Cell: window.Cell{Key: key, Sequence: window.Sequence(now.UnixMilli(), 1000)}, Cost: 1})
		}
		o.Add(t.Context(), adds)
		if n := memstore.OriginSize(o); n > 1024 {
			t.Fatalf("after %d s, with some 320 cells alive, %d are kept", second, n)
		}
	}
	if n := len(o.Rows()); n < 300 || n > 340 {
		t.Errorf("%d cells are alive", n)
	}
}

func TestOriginCountsCalls(t *testing.T) {
	o := memstore.NewOrigin(memstore.OriginOptions{})
	a, b := minuteCell("a"), minuteCell("b")
	o.Add(t.Context(), []store.Add{{Cell: a, Cost: 3}, {Cell: b, Cost: 4}})
	if err := o.Raise(t.Context(), []store.Add{{Cell: a, Cost: 2}, {Cell: b, Cost: 5}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(t.Context(), []window.Cell{a, b, a}); err != nil {
		t.Fatal(err)
	}
	o.Faults.Fail(errDown)
	o.Add(t.Context(), []store.Add{{Cell: a, Cost: 3}})
	want := memstore.OriginStats{Reads: 1, Adds: 2, Raises: 1, CellsRead: 3, CellsAdded: 2, CellsRaised: 1}
	if got := o.Stats(); got != want || got.Calls() != 4 {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	o.Wipe()
	if rows := o.Rows(); len(rows) != 0 {
		t.Errorf("after a wipe: %v", rows)
	}
}

func TestShardedOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) store.Origin {
		return memstore.NewOrigin(memstore.OriginOptions{Shards: 3})
	})
}

func TestKeysSpreadOverShards(t *testing.T) {
	if n := memstore.NewOrigin(memstore.OriginOptions{}).Shards(); n != 1 {
		t.Errorf("%d shards unless set", n)
	}
	o := memstore.NewOrigin(memstore.OriginOptions{Shards: 4})
	keys := make([]int, o.Shards())
	for i := range 4000 {
		c := minuteCell(fmt.Sprint("user-", i))
		keys[o.ShardOf(&c.Key)]++
	}
	for shard, n := range keys {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d has %d of 4,000 keys", shard, n)
		}
	}
}
