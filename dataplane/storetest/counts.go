package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// Store is a CountStore under test, beside what operators do to it and read from
// it, which no node can. A hook that is nil leaves its subtests out.
type Store struct {
	store.CountStore

	// PutTuning stores a version of the tuning document; region "" is the fleet.
	PutTuning func(t testing.TB, region string, version int64, document []byte)

	// PutNamespaces, PutOverrides and PutResets add rows to what operators have set.
	PutNamespaces func(t testing.TB, rows ...store.NamespaceRow)
	PutOverrides  func(t testing.TB, rows ...store.OverrideRow)
	PutResets     func(t testing.TB, rows ...store.ResetRow)

	// Beats lists the stored heartbeats, in any order.
	Beats func(t testing.TB) []heartbeat.Beat
}

// TestCountStore runs the contract of store.CountStore against what open
// returns: a store that is empty when open returns it. open is called once for each
// subtest, or each history that one draws, and no two run at once: so it may hand out
// one database again and again, emptied.
func TestCountStore(t *testing.T, open func(t testing.TB) Store) {
	run := func(name string, f func(t *testing.T, s Store)) {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}

	t.Run("Publish", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, s Store)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("raises region's own components to the given counts", testPublishRaises)
		run("a smaller count than the stored one changes nothing", testPublishNeverLowers)
		run("publishing twice changes nothing", testPublishTwice)
		run("no rows are no work", testPublishNothing)
		run("at most PublishRowsMax rows", testPublishRowsMax)
		run("rows must be sorted and without duplicates", testPublishOrder)
		run("ErrRefused means that none is stored and at least one row never will be", testPublishRefused)
		run("keeps no reference to its rows", testPublishKeepsNothing)
		run("may run concurrently", testPublishConcurrently)
	})
	t.Run("Import", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, s Store)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("foreign is the sum of all other regions' components and own is the region's", testImportForeignAndOwn)
		run("yields each cell that expires after nowMs", testImportExpiry)
		run("sums are exact for the largest counts", testImportBigCounts)
		run("after an error what was yielded is still true", testImportInterrupted)
		run("names the foreign component with the youngest cost", testImportNewest)
		run("the age of a count is stored with the count that it came with", testImportNewestStaysWithItsCount)
	})
	t.Run("Import after a Cursor", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, s Store)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("yields what another region raised since, whole", testImportSinceWhole)
		run("leaves out what has long been told", testImportSinceLeavesOut)
		run("leaves out what is quiet, until it is not", testImportSinceQuiet)
		run("leaves out expired cells", testImportSinceExpiry)
		run("misses nothing while others publish", testImportSinceConcurrently)
		run("after an error the cursor is the one before it", testImportSinceError)
		run("leaves out nothing in histories where it once did", testImportSinceNamedHistories)
		t.Run("equals a full import at every step of a history", func(t *testing.T) { testImportSinceHistories(t, open) })
	})
	t.Run("Digests", func(t *testing.T) { testDigests(t, open) })
	run("names with any bytes never collide", testCountNames)
	run("regions with any bytes never collide", testCountRegions)
	run("names of the longest lengths are kept whole", testCountLongNames)
	run("durations and workspaces are apart, limits are not", testCountIdentity)
	t.Run("random histories equal the model", func(t *testing.T) { testCountHistories(t, open) })
	run("all methods obey ctx", testCountContext)

	t.Run("Settings", func(t *testing.T) { testSettings(t, open) })
	t.Run("Heartbeat", func(t *testing.T) { testHeartbeat(t, open) })
}

// reporter is what a *testing.T and a *rapid.T have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

func publish(t reporter, s store.CountStore, region string, counts ...store.Count) {
	t.Helper()
	sortCounts(counts)
	for chunk := range slices.Chunk(counts, store.PublishRowsMax) {
		if err := s.Publish(t.Context(), region, chunk); err != nil {
			t.Fatalf("publish %d rows as %q: %v", len(chunk), region, err)
		}
	}
}

// imported is all that a region can import of the given workspaces' cells (of all
// cells, if none is given), and fails the test on a cell that comes twice.
func imported(t reporter, s store.CountStore, region string, nowMs int64, workspacePrefix string) map[window.Cell]store.Imported {
	t.Helper()
	got := make(map[window.Cell]store.Imported)
	_, err := s.Import(t.Context(), region, nowMs, 0, func(i store.Imported) {
		if !strings.HasPrefix(i.Cell.Workspace, workspacePrefix) {
			return
		}
		if _, twice := got[i.Cell]; twice {
			t.Errorf("import yielded %v twice", i.Cell)
		}
		got[i.Cell] = i
	})
	if err != nil {
		t.Fatalf("import as %q: %v", region, err)
	}
	return got
}

func wantImported(t reporter, s store.CountStore, region string, want ...store.Imported) {
	t.Helper()
	got := imported(t, s, region, began.UnixMilli(), "")
	for _, w := range want {
		if g, ok := got[w.Cell]; !ok {
			t.Errorf("as %q: %v/%d is missing", region, w.Cell, w.Cell.Sequence)
		} else if g.Foreign != w.Foreign || g.Own != w.Own {
			t.Errorf("as %q: %v/%d is foreign %d, own %d; want foreign %d, own %d",
				region, w.Cell, w.Cell.Sequence, g.Foreign, g.Own, w.Foreign, w.Own)
		}
	}
	if len(got) != len(want) {
		t.Errorf("as %q: %d cells, want %d", region, len(got), len(want))
	}
}

func sortCounts(counts []store.Count) {
	slices.SortFunc(counts, func(a, b store.Count) int { return a.Cell.Compare(b.Cell) })
}

func testPublishRaises(t *testing.T, s Store) {
	a, b := liveCell("w", "a"), liveCell("w", "b")
	publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 1})
	wantImported(t, s, "eu", store.Imported{Cell: a, Own: 6}, store.Imported{Cell: b, Own: 1})
	publish(t, s, "eu", store.Count{Cell: a, Count: 9})
	wantImported(t, s, "eu", store.Imported{Cell: a, Own: 9}, store.Imported{Cell: b, Own: 1})
	wantImported(t, s, "us", store.Imported{Cell: a, Foreign: 9}, store.Imported{Cell: b, Foreign: 1})
}

// Conformance 38: "GREATEST: an older count never lowers a row".
func testPublishNeverLowers(t *testing.T, s Store) {
	a, b := liveCell("w", "a"), liveCell("w", "b")
	publish(t, s, "eu", store.Count{Cell: a, Count: 9}, store.Count{Cell: b, Count: 2})
	publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 3})
	wantImported(t, s, "eu", store.Imported{Cell: a, Own: 9}, store.Imported{Cell: b, Own: 3})
}

// Conformance 38: "the same flush twice changes nothing".
func testPublishTwice(t *testing.T, s Store) {
	a, b := liveCell("w", "a"), liveCell("w", "b")
	for range 2 {
		publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 4})
		wantImported(t, s, "us", store.Imported{Cell: a, Foreign: 6}, store.Imported{Cell: b, Foreign: 4})
	}
}

func testPublishNothing(t *testing.T, s Store) {
	for _, none := range [][]store.Count{nil, {}} {
		if err := s.Publish(t.Context(), "eu", none); err != nil {
			t.Errorf("publish of no rows: %v", err)
		}
	}
	wantImported(t, s, "eu")
}

func testPublishRowsMax(t *testing.T, s Store) {
	rows := make(map[window.Cell]int64)
	for i := range store.PublishRowsMax {
		rows[liveCell("w", fmt.Sprint("id-", i))] = int64(i + 1)
	}
	full := sortedCounts(rows)
	last := full[len(full)-1]
	last.Cell.Identifier += "z"
	wantMisuse(t, s, append(slices.Clone(full), last))

	publish(t, s, "eu", full...)
	var want []store.Imported
	for _, c := range full {
		want = append(want, store.Imported{Cell: c.Cell, Foreign: c.Count})
	}
	wantImported(t, s, "us", want...)
}

func testPublishOrder(t *testing.T, s Store) {
	count := func(c window.Cell) store.Count { return store.Count{Cell: c, Count: 1} }
	a, b, c := count(liveCell("w", "a")), count(liveCell("w", "b")), count(liveCell("w", "c"))
	longer, next := a, a
	longer.Cell.Duration, longer.Cell.Sequence = 24*time.Hour, sequenceNow(24*time.Hour)
	next.Cell.Sequence++
	twice := a
	twice.Count = 2
	for name, rows := range map[string][]store.Count{
		"identifiers":       {a, c, b},
		"first two":         {b, a, c},
		"durations":         {longer, a},
		"sequences":         {next, a},
		"a duplicate":       {a, a, b},
		"other count, same": {a, twice},
	} {
		t.Run(name, func(t *testing.T) { wantMisuse(t, s, rows) })
	}
}

// wantMisuse publishes rows that the contract forbids: an error about the call, not
// about a row (bisecting would never find one), and nothing stored.
func wantMisuse(t *testing.T, s Store, rows []store.Count) {
	t.Helper()
	err := s.Publish(t.Context(), "eu", rows)
	if err == nil {
		t.Errorf("publish of forbidden rows: no error")
	}
	if errors.Is(err, store.ErrRefused) {
		t.Errorf("publish of forbidden rows: %v, which says that a row is at fault", err)
	}
	wantImported(t, s, "eu")
}

// Conformance 39: "One row that the database refuses blocks no other row".
func testPublishRefused(t *testing.T, s Store) {
	good := func(id string) store.Count { return store.Count{Cell: liveCell("w", id), Count: 5} }
	bad := func(change func(*store.Count)) store.Count {
		c := good("m")
		change(&c)
		return c
	}
	for name, culprit := range map[string]store.Count{
		"identifier too long": bad(func(c *store.Count) {
			c.Cell.Identifier = strings.Repeat("m", window.IdentifierBytesMax+1)
		}),
		"namespace too long": bad(func(c *store.Count) {
			c.Cell.Namespace = strings.Repeat("n", window.NamespaceBytesMax+1)
		}),
		"workspace too long": bad(func(c *store.Count) {
			c.Cell.Workspace = strings.Repeat("w", window.WorkspaceBytesMax+1)
		}),
		"longer in bytes than in characters": bad(func(c *store.Count) {
			c.Cell.Identifier = strings.Repeat("é", window.IdentifierBytesMax/2+1)
		}),
		"negative count": bad(func(c *store.Count) { c.Count = -1 }),
	} {
		t.Run(name, func(t *testing.T) {
			for _, rows := range [][]store.Count{{good("a"), culprit, good("z")}, {culprit}, {good("a"), culprit}, {culprit, good("z")}} {
				sortCounts(rows)
				if err := s.Publish(t.Context(), "eu", rows); !errors.Is(err, store.ErrRefused) {
					t.Errorf("publish of %d rows with the culprit: %v, want ErrRefused", len(rows), err)
				}
			}
			wantImported(t, s, "eu")
		})
	}
	publish(t, s, "eu", good("a"), good("z"))
	wantImported(t, s, "us",
		store.Imported{Cell: good("a").Cell, Foreign: 5}, store.Imported{Cell: good("z").Cell, Foreign: 5})
}

func testPublishKeepsNothing(t *testing.T, s Store) {
	a, b := liveCell("w", "a"), liveCell("w", "b")
	rows := []store.Count{{Cell: a, Count: 6}, {Cell: b, Count: 4}}
	publish(t, s, "eu", rows...)
	rows[0], rows[1] = store.Count{Cell: b, Count: 100}, store.Count{}
	wantImported(t, s, "us", store.Imported{Cell: a, Foreign: 6}, store.Imported{Cell: b, Foreign: 4})
}
