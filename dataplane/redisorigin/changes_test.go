package redisorigin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Among 50,000 changes, half of which change again before they are taken off, each is taken within two turns of 10
// calls: at 8 calls an interval of 200 ms, within half a second.
func TestNoChangeWaitsForOthers(t *testing.T) {
	const cells, hot, calls = 50_000, 25_000, 20
	h := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	s := &sender{h: h}
	all := make([]store.Cost, cells)
	for i := range all {
		all[i] = store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1, Limit: 1 << 40}
	}
	s.send(t, all...)
	isHot := make(map[window.Cell]bool)
	for _, c := range all[:hot] {
		isHot[c.Cell] = true
	}
	waiting := make(map[window.Cell]bool)
	for _, c := range all {
		waiting[c.Cell] = true
	}
	for call := 0; len(waiting) > 0; call++ {
		if call == calls {
			t.Fatalf("%d changes were not taken in %d calls", len(waiting), calls)
		}
		changes, err := h.Changes(t.Context(), 0, 5_000)
		if err != nil {
			t.Fatal(err)
		}
		var again []store.Cost
		for _, c := range changes.Cells {
			delete(waiting, c.Cell)
			if isHot[c.Cell] {
				again = append(again, store.Cost{Cell: c.Cell, Add: 1, Limit: 1 << 40})
			}
		}
		if len(again) > 0 {
			s.send(t, again...) // while the row is on its way
		}
		if err := h.Ack(t.Context(), 0, changes.Cells); err != nil {
			t.Fatal(err)
		}
	}
}

// Keys that are no cells, or cells that no node can count in, hide no change, however many come before it: they are
// taken off, and counted.
func TestJunkHidesNoChange(t *testing.T) {
	server := servers.RedisForTest(t)
	raw, h := rawClient(t, server.Addr()), openAt(t, server.Addr(), redisorigin.Options{})
	s := &sender{h: h}
	const cells, junk = 10, 2*store.ChangesPage + 100
	for i := range cells {
		s.send(t, store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1, Limit: 9})
	}
	soon := time.Now().Add(time.Minute).UnixMilli() // before the cells
	pipe := raw.Pipeline()
	for i := range junk {
		key := fmt.Sprintf("weir:{origin}:exact:{%s:n:%d:%d}:1", []string{"", "w"}[i%2], i, []int{1000, 999}[i%2])
		if i%3 == 0 {
			key = fmt.Sprint("no cell ", i)
		}
		pipe.HSet(t.Context(), key, "a", 1, "l", 1)
		pipe.ZAdd(t.Context(), "weir:{origin}:changes", redis.Z{Score: float64(soon), Member: key})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes, err := h.Changes(t.Context(), 0, 5*store.ChangesPage)
	if err != nil || len(changes.Cells) != cells {
		t.Errorf("%d changes of %d: %v", len(changes.Cells), cells, err)
	}
	for range 2 { // and no more in the second call
		if n := gathered(t, h)["weir_origin_garbage_values_total"]; n != junk {
			t.Errorf("%v pieces of garbage, want %d", n, junk)
		}
		if changes, err = h.Changes(t.Context(), 0, 5*store.ChangesPage); err != nil || changes.More {
			t.Errorf("%+v, %v", changes, err)
		}
	}
}

// Changes that are not taken off come again, turn after turn.
func TestChangesComeAgainAfterTheLastOne(t *testing.T) {
	h := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	s := &sender{h: h}
	const cells, calls, each = 5, 15, 2
	for i := range cells {
		s.send(t, store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1, Limit: 9})
	}
	came := make(map[window.Cell]int)
	for range calls {
		changes, err := h.Changes(t.Context(), 0, each)
		if err != nil || len(changes.Cells) != each || !changes.More {
			t.Fatalf("%+v, %v; want %d of %d changes", changes, err, each, cells)
		}
		for _, c := range changes.Cells {
			came[c.Cell]++
		}
	}
	for c, n := range came {
		if n != calls*each/cells || len(came) != cells {
			t.Errorf("%v came %d times, of %d changes", c, n, len(came))
		}
	}
}
