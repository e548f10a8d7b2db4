package counttest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

func testImportComponents(t *testing.T, s Store) {
	shared, alone, before := suite.LiveCell("w", "shared"), suite.LiveCell("w", "alone"), suite.LiveCell("w", "shared")
	before.Sequence--
	publish(t, s, "eu", store.Count{Cell: shared, Count: 1}, store.Count{Cell: alone, Count: 7})
	publish(t, s, "us", store.Count{Cell: before, Count: 3}, store.Count{Cell: shared, Count: 20})
	publish(t, s, "ap", store.Count{Cell: shared, Count: 300})
	wantImported(t, s, components{
		{shared, "eu"}: 1, {shared, "us"}: 20, {shared, "ap"}: 300, {alone, "eu"}: 7, {before, "us"}: 3})
}

func testImportExpiry(t *testing.T, s Store) {
	earlier, later := suite.LiveCell("w", "x"), suite.LiveCell("w", "x")
	earlier.Sequence--
	publish(t, s, "eu", store.Count{Cell: earlier, Count: 1}, store.Count{Cell: later, Count: 2})
	publish(t, s, "us", store.Count{Cell: earlier, Count: 4}, store.Count{Cell: later, Count: 8})

	for _, c := range []struct {
		name  string
		nowMs int64
		alive int // components
	}{
		{"both alive", earlier.ExpiresAtMs() - 1, 4},
		{"at the earlier cell's expiry", earlier.ExpiresAtMs(), 2},
		{"just before the later cell's", later.ExpiresAtMs() - 1, 2},
		{"at the later cell's", later.ExpiresAtMs(), 0},
		{"nowMs may go back", earlier.ExpiresAtMs() - 1, 4},
	} {
		got := imported(t, s, c.nowMs, "")
		if len(got) != c.alive {
			t.Errorf("%s: %d components, want %d", c.name, len(got), c.alive)
		}
		if eu, us := got[component{later, "eu"}], got[component{later, "us"}]; c.alive > 0 && (eu != 2 || us != 8) {
			t.Errorf("%s: the later cell has %d of eu, %d of us", c.name, eu, us)
		}
	}
}

// A region whose clock is hours ahead publishes counts of cells that have not begun anywhere.
func testImportAhead(t *testing.T, s Store) {
	now, ahead := suite.LiveCell("w", "x"), suite.LiveCell("w", "x")
	ahead.Sequence += 3
	publish(t, s, "eu", store.Count{Cell: now, Count: 1}, store.Count{Cell: ahead, Count: 100})
	wantImported(t, s, components{{now, "eu"}: 1})
}

func testImportBigCounts(t *testing.T, s Store) {
	c, want := suite.LiveCell("w", "big"), make(components)
	for i := range int64(10) {
		region := fmt.Sprint("r", i)
		publish(t, s, region, store.Count{Cell: c, Count: window.LimitMax - i - 1})
		publish(t, s, region, store.Count{Cell: c, Count: window.LimitMax - i})
		want[component{c, region}] = window.LimitMax - i
	}
	wantImported(t, s, want)
}

func testImportInterrupted(t *testing.T, s Store) {
	rows := make(components)
	counts := suite.Numbered(suite.LiveCells(2000), countOf)
	rows.publish("us", counts)
	publish(t, s, "us", counts...)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	yielded := 0
	err := s.Import(ctx, suite.Began.UnixMilli(), func(region string, n store.Count) {
		if want := rows[component{n.Cell, region}]; n.Count != want {
			t.Errorf("yielded %d of %q in %v, want %d", n.Count, region, n.Cell, want)
		}
		if yielded++; yielded == 10 {
			cancel()
		}
	})
	if err == nil && yielded != len(rows) {
		t.Errorf("no error after %d of %d components", yielded, len(rows))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while importing: %v", err)
	}
}
