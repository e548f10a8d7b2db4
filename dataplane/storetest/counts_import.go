package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func testImportForeignAndOwn(t *testing.T, s Store) {
	shared, alone, next := liveCell("w", "shared"), liveCell("w", "alone"), liveCell("w", "shared")
	next.Sequence++
	publish(t, s, "eu", store.Count{Cell: shared, Count: 1}, store.Count{Cell: alone, Count: 7})
	publish(t, s, "us", store.Count{Cell: shared, Count: 20}, store.Count{Cell: next, Count: 3})
	publish(t, s, "ap", store.Count{Cell: shared, Count: 300})

	// Conformance 31: "The own row never enters the global count".
	for region, want := range map[string][]store.Imported{
		"eu": {{Cell: shared, Foreign: 320, Own: 1}, {Cell: alone, Own: 7}, {Cell: next, Foreign: 3}},
		"us": {{Cell: shared, Foreign: 301, Own: 20}, {Cell: alone, Foreign: 7}, {Cell: next, Own: 3}},
		"ap": {{Cell: shared, Foreign: 21, Own: 300}, {Cell: alone, Foreign: 7}, {Cell: next, Foreign: 3}},
		"sa": {{Cell: shared, Foreign: 321}, {Cell: alone, Foreign: 7}, {Cell: next, Foreign: 3}},
	} {
		wantImported(t, s, region, want...)
	}
}

func testImportExpiry(t *testing.T, s Store) {
	earlier, later := liveCell("w", "x"), liveCell("w", "x")
	later.Sequence++
	publish(t, s, "eu", store.Count{Cell: earlier, Count: 1}, store.Count{Cell: later, Count: 2})
	publish(t, s, "us", store.Count{Cell: earlier, Count: 4}, store.Count{Cell: later, Count: 8})

	for _, c := range []struct {
		name  string
		nowMs int64
		cells int
	}{
		{"both alive", earlier.ExpiresAtMs() - 1, 2},
		{"at the earlier cell's expiry", earlier.ExpiresAtMs(), 1},
		{"just before the later cell's", later.ExpiresAtMs() - 1, 1},
		{"at the later cell's", later.ExpiresAtMs(), 0},
		{"nowMs may go back", earlier.ExpiresAtMs() - 1, 2},
	} {
		got := imported(t, s, "eu", c.nowMs, "")
		if len(got) != c.cells {
			t.Errorf("%s: %d cells, want %d", c.name, len(got), c.cells)
		}
		if g, ok := got[later]; ok && (g.Own != 2 || g.Foreign != 8) {
			t.Errorf("%s: the later cell is %+v", c.name, g)
		}
	}
}

func testImportBigCounts(t *testing.T, s Store) {
	c := liveCell("w", "big")
	regions := []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"}
	for _, r := range regions {
		publish(t, s, r, store.Count{Cell: c, Count: window.LimitMax - 1})
		publish(t, s, r, store.Count{Cell: c, Count: window.LimitMax})
	}
	others := int64(len(regions)-1) * window.LimitMax
	wantImported(t, s, "r0", store.Imported{Cell: c, Foreign: others, Own: window.LimitMax})
	wantImported(t, s, "elsewhere", store.Imported{Cell: c, Foreign: others + window.LimitMax})
}

func testImportInterrupted(t *testing.T, s Store) {
	rows := make(map[window.Cell]int64)
	for i := range 2000 {
		rows[liveCell("w", fmt.Sprint("id-", i))] = int64(i + 1)
	}
	publish(t, s, "us", sortedCounts(rows)...)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	yielded := 0
	_, err := s.Import(ctx, "eu", began.UnixMilli(), 0, func(i store.Imported) {
		if want := (store.Imported{Cell: i.Cell, Foreign: rows[i.Cell], NewestRegion: "us"}); i != want {
			t.Errorf("yielded %+v, want %+v", i, want)
		}
		if yielded++; yielded == 10 {
			cancel()
		}
	})
	if err == nil && yielded != len(rows) {
		t.Errorf("no error after %d of %d cells", yielded, len(rows))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while importing: %v", err)
	}
}
