package redisorigin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Among 50,000 changes, half of which change again before they are taken off, each is taken within two turns of 10
// calls: at 8 calls an interval of 200 ms, within half a second.
func TestNoChangeWaitsForOthers(t *testing.T) {
	const cells, hot, calls, chunk = 50_000, 25_000, 20, 2_000
	h := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	s := &sender{h: h}
	all := make([]store.Cost, cells)
	for i := range all {
		all[i] = store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1, Limit: 1 << 40}
	}
	for i := 0; i < cells; i += chunk {
		s.send(t, all[i:i+chunk]...)
	}
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
		if err := h.Told(t.Context(), 0, changes.Cells); err != nil {
			t.Fatal(err)
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
