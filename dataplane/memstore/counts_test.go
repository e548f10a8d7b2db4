package memstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

func TestCountsKeepTheContract(t *testing.T) {
	counttest.TestCountStore(t, func(testing.TB) counttest.Store {
		c := memstore.NewCounts(memstore.CountsOptions{})
		return counttest.Store{
			Counts: c,
			PutTuning: func(_ testing.TB, region string, version int64, document []byte) {
				c.SetTuning(region, version, document)
			},
			PutTrial: func(_ testing.TB, region string, over int64, row store.TrialRow) {
				c.SetTrial(region, memstore.Trial{TrialRow: row, Over: over, Ends: time.Now().Add(row.Left)})
			},
			PutNamespaces: func(_ testing.TB, rows ...store.NamespaceRow) { c.SetNamespaces(rows...) },
			PutOverrides:  func(_ testing.TB, rows ...store.OverrideRow) { c.SetOverrides(rows...) },
			PutResets:     func(_ testing.TB, rows ...store.ResetRow) { c.SetResets(rows...) },
			Heartbeats:    func(testing.TB) []heartbeat.Heartbeat { return c.Heartbeats() },
		}
	})
}

// A row stays for a while after its cell has expired, and goes in passing.
func TestCountsDoNotPileUp(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	c := memstore.NewCounts(memstore.CountsOptions{Clock: func() time.Time { return now }, Keep: time.Minute})
	for second := range 3000 {
		now = now.Add(time.Second)
		key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(second), Duration: time.Second}
		cell := window.Cell{Key: key, Sequence: window.Sequence(now.UnixMilli(), 1000)}
		if err := c.Publish(t.Context(), "eu", []store.Count{{Cell: cell, Count: 1}}); err != nil {
			t.Fatal(err)
		}
		if n := memstore.CountsSize(c); n > 1024 {
			t.Fatalf("after %d s, with a minute's cells to keep, %d are kept", second, n)
		}
	}
	if n := len(c.Rows()); n < 61 || n > 62 {
		t.Errorf("%d cells are kept for a minute", n)
	}
}

func TestCountsListsWhatEachRegionHas(t *testing.T) {
	c := memstore.NewCounts(memstore.CountsOptions{})
	a, b := minuteCell("a"), minuteCell("b")
	for region, count := range map[string]int64{"us": 2, "eu": 1} {
		if err := c.Publish(t.Context(), region, []store.Count{{Cell: a, Count: count}, {Cell: b, Count: 10 * count}}); err != nil {
			t.Fatal(err)
		}
	}
	want := []memstore.Row{{"eu", a, 1}, {"us", a, 2}, {"eu", b, 10}, {"us", b, 20}}
	if got := c.Rows(); !slices.Equal(got, want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
	if got := c.Totals(); len(got) != 2 || got[a] != 3 || got[b] != 30 {
		t.Errorf("totals are %v", got)
	}
}
