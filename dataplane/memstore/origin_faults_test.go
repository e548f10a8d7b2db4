package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func sendOne(t *testing.T, h *memstore.Origin, number int64, cost store.Cost) (store.Total, error) {
	t.Helper()
	reply, err := h.Send(t.Context(), store.Chunk{
		Shard: h.ShardOf(&cost.Cell.Key), Stream: 7, Number: number, Costs: []store.Cost{cost},
	})
	if err != nil {
		return store.Total{}, err
	}
	return reply.Totals[0], nil
}

// A chunk that arrives after its repetition, and after the next chunk, changes nothing.
func TestHeldChunksArriveLate(t *testing.T) {
	h := memstore.NewOrigin(memstore.OriginOptions{})
	c := minuteCell("x")
	h.HoldChunks()
	if _, err := sendOne(t, h, 1, store.Cost{Cell: c, Add: 5}); err == nil {
		t.Error("a chunk that is held was answered")
	}
	if got := h.Totals()[c].Region; got != 0 {
		t.Errorf("a chunk that is held has counted %d", got)
	}
	other := h.Client()
	if total, err := sendOne(t, other, 1, store.Cost{Cell: c, Add: 5}); err != nil || total.Region != 5 {
		t.Errorf("its repetition: %+v, %v", total, err)
	}
	if total, err := sendOne(t, other, 2, store.Cost{Cell: c, Add: 1}); err != nil || total.Region != 6 {
		t.Errorf("the next one: %+v, %v", total, err)
	}
	h.DeliverChunks()
	if got := h.Totals()[c].Region; got != 6 {
		t.Errorf("after it has arrived the total is %d, want 6", got)
	}
	if total, err := sendOne(t, h, 3, store.Cost{Cell: c, Add: 1}); err != nil || total.Region != 7 {
		t.Errorf("after nothing is held: %+v, %v", total, err)
	}
}

// Each way has faults of its own, and each shard.
func TestWaysToAnOriginFailApart(t *testing.T) {
	h := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
	other := h.Client()
	cells := make([]window.Cell, 2)
	for i := 0; cells[0].Workspace == "" || cells[1].Workspace == ""; i++ {
		c := minuteCell(fmt.Sprint(i))
		cells[h.ShardOf(&c.Key)] = c
	}
	h.ShardFaults(1).Fail(errDown)
	for shard, c := range cells {
		_, err := h.Read(t.Context(), []window.Cell{c})
		_, otherErr := other.Read(t.Context(), []window.Cell{c})
		if errors.Is(err, errDown) != (shard == 1) || otherErr != nil {
			t.Errorf("shard %d: %v, over the other way %v", shard, err, otherErr)
		}
	}
	if _, err := h.Read(t.Context(), cells); err == nil {
		t.Error("cells of two shards were answered")
	}
	for i, c := range cells {
		if _, err := sendOne(t, other, int64(i+1), store.Cost{Cell: c, Add: 1}); err != nil {
			t.Fatal(err)
		}
	}
	h.WipeShard(0)
	if totals := h.Totals(); len(totals) != 1 || totals[cells[1]].Region != 1 {
		t.Errorf("after shard 0 was emptied: %v", totals)
	}
}

// "until ctx ends (nil) or the connection is lost".
func TestListenersLoseTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memstore.NewOrigin(memstore.OriginOptions{})
		listener := h.Client()
		listener.Faults.Delay(100 * time.Millisecond)
		var delivered []time.Duration
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			ended <- listener.Listen(t.Context(), 0, func([]store.Foreign) { delivered = append(delivered, time.Since(began)) })
		}()
		apply := func(count int64) {
			synctest.Wait()
			if _, err := h.Apply(t.Context(), 0, []store.Foreign{{Cell: minuteCell("x"), Count: count}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		apply(1)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(delivered) != 1 || delivered[0] != 1050*time.Millisecond {
			t.Errorf("heard after %v", delivered)
		}
		listener.Faults.Fail(errDown)
		apply(2)
		if err := <-ended; !errors.Is(err, errDown) || len(delivered) != 1 {
			t.Errorf("ended with %v after %d messages", err, len(delivered))
		}
		if err := listener.Listen(context.Background(), 0, nil); !errors.Is(err, errDown) {
			t.Errorf("with the origin down it ended with %v", err)
		}
	})
}

// Conformance 28: "none lives past (sequence+2)*duration + grace + jitter".
func TestOriginDoesNotPileUp(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	h := memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }})
	for second := range 2000 {
		now = now.Add(time.Second)
		costs := make([]store.Cost, 10)
		for i := range costs {
			key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(second, i), Duration: time.Second}
			at := window.Cell{Key: key, Sequence: window.Sequence(now.UnixMilli(), 1000)}
			costs[i] = store.Cost{Cell: at, Add: 1, Limit: 5}
		}
		if _, err := h.Send(t.Context(), store.Chunk{Stream: 7, Number: int64(second + 1), Costs: costs}); err != nil {
			t.Fatal(err)
		}
		if n := memstore.OriginSize(h); n > 2*1024 {
			t.Fatalf("after %d s, with some 320 cells alive, %d cells and changes are kept", second, n)
		}
	}
	if n := len(h.Totals()); n < 300 || n > 340 {
		t.Errorf("%d cells are alive", n)
	}
}

func TestKeysSpreadOverShards(t *testing.T) {
	if n := memstore.NewOrigin(memstore.OriginOptions{}).Shards(); n != 1 {
		t.Errorf("%d shards unless set", n)
	}
	h := memstore.NewOrigin(memstore.OriginOptions{Shards: 4})
	keys := make([]int, h.Shards())
	for i := range 4000 {
		c := minuteCell(fmt.Sprint("user-", i))
		keys[h.ShardOf(&c.Key)]++
	}
	for shard, n := range keys {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d has %d of 4,000 keys", shard, n)
		}
	}
}

func TestStatsCountCallsAndCells(t *testing.T) {
	h := memstore.NewOrigin(memstore.OriginOptions{})
	c := minuteCell("x")
	for number := range int64(2) {
		if _, err := sendOne(t, h, number+1, store.Cost{Cell: c, Add: 1}); err != nil {
			t.Fatal(err)
		}
	}
	bounded := store.Cost{Cell: c, Add: 1, AtMost: 3}
	chunk := store.Chunk{Stream: 8, Number: 1, Costs: []store.Cost{bounded, bounded}}
	if _, err := h.Send(t.Context(), chunk); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Read(t.Context(), []window.Cell{c, minuteCell("y")}); err != nil {
		t.Fatal(err)
	}
	h.Faults.Fail(errDown)
	if _, err := h.Read(t.Context(), []window.Cell{c}); err == nil {
		t.Fatal("no error")
	}
	want := memstore.OriginStats{Gets: 2, Sends: 2, Claims: 1, CellsRead: 2, CellsAdded: 2, CellsClaimed: 1}
	if got := h.Stats(); got != want || got.Calls() != 5 {
		t.Errorf("%+v, %d calls, want %+v", got, got.Calls(), want)
	}
}
