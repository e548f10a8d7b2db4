package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// quietWithin is many times the overlap of any store's imports.
const quietWithin = 10 * time.Second

// follower is a node that imports what changed, and keeps the last that it was told.
type follower struct {
	region string
	cursor store.Cursor
	seen   map[window.Cell]store.Imported
}

func follow(region string) *follower {
	return &follower{region: region, seen: make(map[window.Cell]store.Imported)}
}

// pull imports once, and returns how many cells were yielded.
func (f *follower) pull(t reporter, s store.CountStore, workspacePrefix string) (yielded int) {
	t.Helper()
	told := make(map[window.Cell]bool)
	next, err := s.Import(t.Context(), f.region, began.UnixMilli(), f.cursor, func(i store.Imported) {
		if told[i.Cell] {
			t.Errorf("import after a cursor yielded %v twice", i.Cell)
		}
		told[i.Cell] = true
		if strings.HasPrefix(i.Cell.Workspace, workspacePrefix) {
			f.seen[i.Cell] = i
			yielded++
		}
	})
	if err != nil {
		t.Fatalf("import as %q after %d: %v", f.region, f.cursor, err)
	}
	if next <= 0 {
		t.Errorf("the cursor after an import is %d, which stands for before everything", next)
	}
	f.cursor = next
	return yielded
}

// wantAll compares with a full import. Of the region's own component less may be known.
func (f *follower) wantAll(t reporter, s store.CountStore, workspacePrefix string) {
	t.Helper()
	all := imported(t, s, f.region, began.UnixMilli(), workspacePrefix)
	for c, want := range all {
		got, ok := f.seen[c]
		if want.Foreign == 0 && !ok {
			continue // nobody else has said anything of it
		}
		if got.Own > want.Own {
			t.Errorf("as %q: %v has own %d after cursors, %d in all", f.region, c, got.Own, want.Own)
		}
		if got.Own = want.Own; got != want {
			t.Errorf("as %q: %v is %+v after cursors, %+v in all", f.region, c, got, want)
		}
	}
	for c := range f.seen {
		if _, ok := all[c]; !ok {
			t.Errorf("as %q: %v is in no full import", f.region, c)
		}
	}
}

func testImportNewest(t *testing.T, s Store) {
	c, own := liveCell("w", "x"), liveCell("w", "own")
	at := func(c window.Cell, ms int64) store.Count {
		return store.Count{Cell: c, Count: 5, CountedAtMs: ms}
	}
	publish(t, s, "us", at(c, 1_700_000_000_003))
	publish(t, s, "ap", at(c, 900_000_000_009)) // fewer digits
	publish(t, s, "sa", at(c, 1_700_000_000_003), at(own, 7))
	publish(t, s, "eu", at(c, 1_700_000_000_999))
	for region, want := range map[string]struct {
		newest string
		atMs   int64
	}{
		"eu": {"us", 1_700_000_000_003}, "us": {"eu", 1_700_000_000_999}, "zz": {"eu", 1_700_000_000_999},
	} {
		got := imported(t, s, region, began.UnixMilli(), "")[c]
		if got.NewestRegion != want.newest || got.NewestAtMs != want.atMs {
			t.Errorf("as %q: the youngest is of %q at %d, want %q at %d", region, got.NewestRegion, got.NewestAtMs, want.newest, want.atMs)
		}
	}
	if got := imported(t, s, "sa", began.UnixMilli(), "")[own]; got.NewestRegion != "" || got.NewestAtMs != 0 {
		t.Errorf("without a foreign component the youngest is of %q at %d", got.NewestRegion, got.NewestAtMs)
	}
}

func testImportNewestStaysWithItsCount(t *testing.T, s Store) {
	c := liveCell("w", "x")
	for _, step := range []struct{ count, atMs, want int64 }{
		{5, 100, 100}, {5, 200, 100}, {4, 300, 100}, {6, 50, 50}, {7, 400, 400}, {8, -3, 0},
	} {
		publish(t, s, "us", store.Count{Cell: c, Count: step.count, CountedAtMs: step.atMs})
		if got := imported(t, s, "eu", began.UnixMilli(), "")[c].NewestAtMs; got != step.want {
			t.Errorf("after count %d at %d: the youngest is at %d, want %d", step.count, step.atMs, got, step.want)
		}
	}
}

func testImportSinceWhole(t *testing.T, s Store) {
	a, b := liveCell("w", "a"), liveCell("w", "b")
	publish(t, s, "us", store.Count{Cell: a, Count: 1}, store.Count{Cell: b, Count: 1})
	publish(t, s, "ap", store.Count{Cell: a, Count: 20})
	publish(t, s, "eu", store.Count{Cell: a, Count: 300})
	f := follow("eu")
	f.pull(t, s, "")
	publish(t, s, "us", store.Count{Cell: a, Count: 2, CountedAtMs: 9})
	delete(f.seen, a)
	f.pull(t, s, "")
	want := store.Imported{Cell: a, Foreign: 22, Own: 300, NewestRegion: "us", NewestAtMs: 9}
	if got := f.seen[a]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	fresh := liveCell("w", "c")
	publish(t, s, "us", store.Count{Cell: fresh, Count: 7})
	f.pull(t, s, "")
	if got := f.seen[fresh]; got.Foreign != 7 {
		t.Errorf("a cell that is new: %+v", got)
	}
	f.wantAll(t, s, "")
}

// What has not changed comes again for as long as imports overlap, and then no more.
func testImportSinceLeavesOut(t *testing.T, s Store) {
	rows := make(map[window.Cell]int64)
	for i := range 50 {
		rows[liveCell("w", fmt.Sprint("id-", i))] = int64(i + 1)
	}
	publish(t, s, "us", sortedCounts(rows)...)
	f := follow("eu")
	f.pull(t, s, "")
	deadline := time.Now().Add(quietWithin)
	for f.pull(t, s, "") > 0 {
		if time.Now().After(deadline) {
			t.Fatal("what was told before is told again and again")
		}
	}
	one := liveCell("w", "id-7")
	publish(t, s, "us", store.Count{Cell: one, Count: 100})
	if n := f.pull(t, s, ""); n != 1 || f.seen[one].Foreign != 100 {
		t.Errorf("%d cells after one has changed; it is %+v", n, f.seen[one])
	}
	// The same again, and less: nothing was raised.
	for f.pull(t, s, "") > 0 {
	}
	publish(t, s, "us", store.Count{Cell: one, Count: 100})
	publish(t, s, "us", store.Count{Cell: one, Count: 99})
	if n := f.pull(t, s, ""); n != 0 {
		t.Errorf("%d cells after nothing was raised", n)
	}
}

// "No Import has to tell of it that does not ask for all. A row that was only ever raised
// quietly is told of with the first Publish that is not quiet, whether that raises it or
// not; any other row when it is next raised by one."
func testImportSinceQuiet(t *testing.T, s Store) {
	c := liveCell("w", "x")
	f := follow("eu")
	f.pull(t, s, "")
	quiet := func(n int64) store.Count { return store.Count{Cell: c, Count: n, Quiet: true} }
	loud := func(n int64) store.Count { return store.Count{Cell: c, Count: n} }
	settle := func() {
		t.Helper()
		deadline := time.Now().Add(quietWithin)
		for f.pull(t, s, "") > 0 {
			if time.Now().After(deadline) {
				t.Fatal("what was told before is told again and again")
			}
		}
	}
	for _, step := range []struct {
		what   string
		row    store.Count
		stored int64
		told   int
	}{
		{"new and quiet", quiet(5), 5, 0},
		{"raised quietly", quiet(6), 6, 0},
		{"the same, not quiet", loud(6), 6, 1},
		{"raised quietly once more", quiet(7), 7, 0},
		{"the same, quiet", quiet(7), 7, 0},
		{"raised, not quiet", loud(8), 8, 1},
	} {
		settle()
		publish(t, s, "us", step.row)
		if n := f.pull(t, s, ""); n != step.told {
			t.Errorf("%s: %d cells told, want %d", step.what, n, step.told)
		}
		if got := imported(t, s, "eu", began.UnixMilli(), "")[c].Foreign; got != step.stored {
			t.Errorf("%s: %d is stored, want %d", step.what, got, step.stored)
		}
	}
}

func testImportSinceExpiry(t *testing.T, s Store) {
	c := liveCell("w", "x")
	f := follow("eu")
	f.pull(t, s, "")
	publish(t, s, "us", store.Count{Cell: c, Count: 1})
	for _, at := range []struct {
		nowMs int64
		want  int
	}{{c.ExpiresAtMs() - 1, 1}, {c.ExpiresAtMs(), 0}} {
		got := 0
		if _, err := s.Import(t.Context(), "eu", at.nowMs, f.cursor, func(store.Imported) { got++ }); err != nil {
			t.Fatal(err)
		}
		if got != at.want {
			t.Errorf("%d ms before its end: %d cells, want %d", c.ExpiresAtMs()-at.nowMs, got, at.want)
		}
	}
}

// Conformance 40, with everything at once: regions publish, a node follows, and once
// they are done one more import has everything.
func testImportSinceConcurrently(t *testing.T, s Store) {
	const rounds, publishers, cells = 40, 4, 10
	f := follow("eu")
	for r := range rounds {
		var wg sync.WaitGroup
		for p := range publishers {
			region := []string{"us", "ap"}[p%2]
			wg.Go(func() {
				rows := make(map[window.Cell]int64) // raised once: no later raise tells of them again
				for i := range cells {
					rows[liveCell("w", fmt.Sprint("id-", r, "-", p/2*cells+i))] = int64(p + 1)
				}
				if err := s.Publish(t.Context(), region, sortedCounts(rows)); err != nil {
					t.Errorf("publisher %d: %v", p, err)
				}
			})
		}
		f.pull(t, s, "")
		wg.Wait()
	}
	f.pull(t, s, "")
	f.wantAll(t, s, "")
}

func testImportSinceError(t *testing.T, s Store) {
	publish(t, s, "us", store.Count{Cell: liveCell("w", "x"), Count: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, after := range []store.Cursor{0, 17} {
		next, err := s.Import(ctx, "eu", began.UnixMilli(), after, func(store.Imported) {})
		if !errors.Is(err, context.Canceled) || next != after {
			t.Errorf("after %d: %v and the cursor %d", after, err, next)
		}
	}
}

// Conformance 40: "Incremental import equals a full import at every step of a random
// history of flushes, delays and restarts."
func testImportSinceHistories(t *testing.T, open func(testing.TB) Store) {
	regions := []string{"eu", "us", "ap "}
	rapid.Check(t, func(rt *rapid.T) {
		s, workspace := open(t), freshWorkspace() // or each history would read the rows of all before it
		nodes := []*follower{follow("eu"), follow("us"), follow("elsewhere")}
		var history []publication
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if n := rapid.IntRange(0, 9).Draw(rt, "restart a node"); n < len(nodes) {
				nodes[n] = follow(nodes[n].region)
			}
			p := drawPublication(rt, workspace, regions, history)
			history = append(history, p)
			if err := s.Publish(t.Context(), p.region, p.counts); err != nil {
				rt.Fatalf("publish %v as %q: %v", p.counts, p.region, err)
			}
			n := rapid.SampledFrom(nodes).Draw(rt, "imports")
			n.pull(rt, s, workspace)
			n.wantAll(rt, s, workspace)
		}
		for _, n := range nodes {
			n.pull(rt, s, workspace)
			n.wantAll(rt, s, workspace)
		}
	})
}

// Two histories in which a store once left rows out: another region's first rows, for a node that has read its own
// region's; and rows that follow a publication that is repeated.
func testImportSinceNamedHistories(t *testing.T, s Store) {
	type step struct {
		region string // which publishes
		cells  string // one an identifier
		count  int64
		reads  int // which node imports after it
	}
	for name, steps := range map[string][]step{
		"another region's first rows":      {{"eu", "a", 1111, 0}, {"us", "bc", 213202, 2}},
		"new rows after those of a repeat": {{"eu", "abcd", 25, 2}, {"eu", "abcd", 25, 1}, {"eu", "efghijk", window.LimitMax, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			workspace := freshWorkspace()
			nodes := []*follower{follow("eu"), follow("us"), follow("elsewhere")}
			for _, step := range steps {
				rows := make(map[window.Cell]int64)
				for _, identifier := range step.cells {
					rows[liveCell(workspace, string(identifier))] = step.count
				}
				publish(t, s, step.region, sortedCounts(rows)...)
				nodes[step.reads].pull(t, s, workspace)
			}
			for _, n := range nodes {
				n.pull(t, s, workspace)
				n.wantAll(t, s, workspace)
			}
		})
	}
}
