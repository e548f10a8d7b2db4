package dataplane_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// keysByShard finds n identifiers for each shard.
func keysByShard(origin *memstore.Origin, n int) [][]string {
	keys := make([][]string, origin.Shards())
	for i, missing := 0, len(keys)*n; missing > 0; i++ {
		r := ask(fmt.Sprint("k", i), 1, 1000)
		key := windowKey(r)
		if shard := origin.ShardOf(&key); len(keys[shard]) < n {
			keys[shard] = append(keys[shard], r.Identifier)
			missing--
		}
	}
	return keys
}

// Each shard has its own worker, breaker and health, and a shard that is down degrades only its own keys: a shard
// that hangs delays neither replay nor reads nor healing of another.
func TestASlowShardDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 3})
		keys := keysByShard(origin, 4)
		l := started(t, "eu", "a", origin, nil)
		origin.ShardFaults(1).Delay(time.Hour)
		for _, k := range append(keys[0], keys[2]...) {
			if d := l.Allow(t.Context(), ask(k, 5, 1000)); d.Source != dataplane.SourceOrigin {
				t.Errorf("%s: %+v", k, d)
			}
		}
		began := time.Now()
		if d := l.Allow(t.Context(), ask(keys[1][0], 5, 1000)); !d.Allowed || d.Source != dataplane.SourceDegraded || time.Since(began) != 50*time.Millisecond {
			t.Errorf("on the dead shard: %+v after %v", d, time.Since(began))
		}
		time.Sleep(250 * time.Millisecond)
		if got := len(totals(origin)); got != 8 {
			t.Errorf("%d cells replayed, want the 8 of the others", got)
		}
		origin.Wipe() // the other shards heal
		for _, k := range append(keys[0], keys[2]...) {
			l.Allow(t.Context(), ask(k, 1, 1000))
		}
		time.Sleep(250 * time.Millisecond)
		for cell, total := range totals(origin) {
			if total != 6 {
				t.Errorf("%v is %d after the wipe, want 6", cell, total)
			}
		}
		time.Sleep(20 * time.Second)
		if got := []string{breakerState(t, l, 0, "sends"), breakerState(t, l, 1, "sends"), breakerState(t, l, 2, "sends")}; got[0] != "closed" || got[1] == "closed" || got[2] != "closed" {
			t.Errorf("breakers: %v", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		l.Allow(t.Context(), ask(keys[2][0], 1, 1000))
		err := l.Stop(ctx) // the drain of a shard does not wait for another, and the error names the shard that failed
		if err == nil || !strings.Contains(err.Error(), "shard 1: cost 5 was not confirmed") || strings.Contains(err.Error(), "shard 2") {
			t.Errorf("Stop: %v", err)
		}
	})
}

// A cold batch of 100 keys costs one origin round trip (a pipeline), not 200, to each shard with a key, all at the
// same time.
func TestAColdBatchIsOneRoundTripAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 4})
		origin.Faults.Delay(10 * time.Millisecond)
		l := liveNode(t, origin)
		var batch []dataplane.Request
		for _, keys := range keysByShard(origin, 25) {
			for _, k := range keys {
				batch = append(batch, ask(k, 1, 10))
			}
		}
		began := time.Now()
		b := l.AllowMany(t.Context(), batch)
		if s := origin.Stats(); !b.Allowed || s.Gets != 4 || s.CellsRead != 200 || time.Since(began) != 10*time.Millisecond {
			t.Errorf("%v: %d round trips for %d cells in %v", b.Allowed, s.Gets, s.CellsRead, time.Since(began))
		}
		origin.ShardFaults(2).Fail(errDown)
		time.Sleep(6 * time.Second)
		b = l.AllowMany(t.Context(), batch)
		degraded := 0
		for _, d := range b.Decisions {
			if d.Source == dataplane.SourceDegraded {
				degraded++
			}
		}
		if !b.Allowed || degraded != 25 {
			t.Errorf("%d items degraded, want those of the dead shard", degraded)
		}
	})
}

// A tick's bound is per shard; the next tick sends the rest.
func TestEachShardCarriesItsRestOver(t *testing.T) {
	const keys = 45_000
	origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2, Clock: func() time.Time { return epoch }})
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Clock: func() time.Time { return epoch }})
	if err != nil {
		t.Fatal(err)
	}
	origin.Faults.Hook(func(op memstore.Op) error { // no reads: this test is about sending
		if op == memstore.OpRead {
			return errDown
		}
		return nil
	})
	for i := range keys {
		l.Allow(t.Context(), ask(fmt.Sprint("k", i), 1, 10))
	}
	origin.Faults.Hook(nil) // a node that has received nothing for a second reads by itself: a slow machine takes as long
	l.BreakersOff()
	var sent []int
	for range 3 {
		if err := l.ReplayOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, len(totals(origin)))
	}
	if sent[0] < 40_000 || sent[0] > 41_000 || sent[1] != keys || sent[2] != keys {
		t.Errorf("cells at the origin after each tick: %v", sent)
	}
}
