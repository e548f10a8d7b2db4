package counttest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// Counts is a CountStore that keeps settings too.
type Counts interface {
	store.CountStore
	store.Settings
}

// Store is a store under test, with operators' changes and readings, which no node can make. A hook that is nil leaves
// its subtests out.
type Store struct {
	Counts

	// PutTuning stores a version of the tuning document; region "" is the fleet.
	PutTuning func(t testing.TB, region string, version int64, document []byte)

	// PutTrial replaces the trial of a region, "" for regions without their own tuning or trial, over a version of it. It
	// ends after row.Left.
	PutTrial func(t testing.TB, region string, over int64, row store.TrialRow)

	// PutNamespaces, PutOverrides and PutResets add rows to operators' settings.
	PutNamespaces func(t testing.TB, rows ...store.NamespaceRow)
	PutOverrides  func(t testing.TB, rows ...store.OverrideRow)
	PutResets     func(t testing.TB, rows ...store.ResetRow)

	// Heartbeats lists the stored heartbeats, in any order.
	Heartbeats func(t testing.TB) []heartbeat.Heartbeat
}

// TestCountStore runs the contracts of store.CountStore and store.Settings against the store that open returns, which
// must be empty. open is called once for each subtest, or each history that a subtest draws, and no two run at once. So
// it can return the same database again and again, emptied.
func TestCountStore(t *testing.T, open func(t testing.TB) Store) {
	group(t, "Publish", open, []subtest[Store]{
		{"raises region's own components to the given counts", testPublishRaises},
		{"a smaller count than the stored one changes nothing", testPublishNeverLowers},
		{"publishing twice changes nothing", testPublishTwice},
		{"no rows are no work", testPublishNothing},
		{"at most PublishRowsMax rows", testPublishRowsMax},
		{"rows must be sorted and without duplicates", testPublishOrder},
		{"ErrRefused means that none is stored and at least one row never will be", testPublishRefused},
		{"keeps no reference to its rows", testPublishKeepsNothing},
		{"may run concurrently", testPublishConcurrently},
	})
	group(t, "Import", open, []subtest[Store]{
		{"yields each component of each cell", testImportComponents},
		{"yields each cell that expires after nowMs", testImportExpiry},
		{"leaves out cells that were ahead when their counts last grew", testImportAhead},
		{"is exact for the largest counts", testImportBigCounts},
		{"after an error what was yielded is still true", testImportInterrupted},
	})
	run(t, open, []subtest[Store]{
		{"names with any bytes never collide", testCountNames},
		{"regions with any bytes never collide", testCountRegions},
		{"names of the longest lengths are kept whole", testCountLongNames},
		{"durations and workspaces are apart, limits are not", testCountIdentity},
		{"all methods obey ctx", testCountContext},
	})
	t.Run("random histories equal the model", func(t *testing.T) { testCountHistories(t, open) })
	t.Run("Settings", func(t *testing.T) { testSettings(t, open) })
	t.Run("Heartbeat", func(t *testing.T) { testHeartbeat(t, open) })
}

func publish(t suite.Reporter, s store.CountStore, region string, counts ...store.Count) {
	t.Helper()
	sortCounts(counts)
	for chunk := range slices.Chunk(counts, store.PublishRowsMax) {
		if err := s.Publish(t.Context(), region, chunk); err != nil {
			t.Fatalf("publish %d rows as %q: %v", len(chunk), region, err)
		}
	}
}

// imported returns the stored components of cells in workspaces with a prefix (of all cells if it is empty), and fails
// the test if a component comes twice.
func imported(t suite.Reporter, s store.CountStore, nowMs int64, workspacePrefix string) components {
	t.Helper()
	got := make(components)
	err := s.Import(t.Context(), nowMs, func(region string, n store.Count) {
		if !strings.HasPrefix(n.Cell.Workspace, workspacePrefix) {
			return
		}
		k := component{n.Cell, region}
		if _, twice := got[k]; twice {
			t.Errorf("import yielded %v of %q twice", n.Cell, region)
		}
		got[k] = n.Count
	})
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	return got
}

func wantImported(t suite.Reporter, s store.CountStore, want components) {
	t.Helper()
	got := imported(t, s, suite.Began.UnixMilli(), "")
	for k, n := range want {
		if g, ok := got[k]; !ok {
			t.Errorf("%v/%d of %q is missing", k.cell, k.cell.Sequence, k.region)
		} else if g != n {
			t.Errorf("%v/%d of %q is %d, want %d", k.cell, k.cell.Sequence, k.region, g, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d components, want %d", len(got), len(want))
	}
}

func sortCounts(counts []store.Count) {
	slices.SortFunc(counts, func(a, b store.Count) int { return a.Cell.Compare(b.Cell) })
}

func testPublishRaises(t *testing.T, s Store) {
	a, b := suite.LiveCell("w", "a"), suite.LiveCell("w", "b")
	publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 1})
	wantImported(t, s, components{{a, "eu"}: 6, {b, "eu"}: 1})
	publish(t, s, "eu", store.Count{Cell: a, Count: 9})
	wantImported(t, s, components{{a, "eu"}: 9, {b, "eu"}: 1})
	publish(t, s, "us", store.Count{Cell: a, Count: 2})
	wantImported(t, s, components{{a, "eu"}: 9, {a, "us"}: 2, {b, "eu"}: 1})
}

// Conformance 38: "GREATEST: an older count never lowers a row".
func testPublishNeverLowers(t *testing.T, s Store) {
	a, b := suite.LiveCell("w", "a"), suite.LiveCell("w", "b")
	publish(t, s, "eu", store.Count{Cell: a, Count: 9}, store.Count{Cell: b, Count: 2})
	publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 3})
	wantImported(t, s, components{{a, "eu"}: 9, {b, "eu"}: 3})
}

// Conformance 38: "the same flush twice changes nothing".
func testPublishTwice(t *testing.T, s Store) {
	a, b := suite.LiveCell("w", "a"), suite.LiveCell("w", "b")
	for range 2 {
		publish(t, s, "eu", store.Count{Cell: a, Count: 6}, store.Count{Cell: b, Count: 4})
		wantImported(t, s, components{{a, "eu"}: 6, {b, "eu"}: 4})
	}
}

func testPublishNothing(t *testing.T, s Store) {
	for _, none := range [][]store.Count{nil, {}} {
		if err := s.Publish(t.Context(), "eu", none); err != nil {
			t.Errorf("publish of no rows: %v", err)
		}
	}
	wantImported(t, s, nil)
}

func testPublishRowsMax(t *testing.T, s Store) {
	full := suite.Numbered(suite.LiveCells(store.PublishRowsMax), countOf)
	sortCounts(full)
	last := full[len(full)-1]
	last.Cell.Identifier += "z"
	wantMisuse(t, s, append(slices.Clone(full), last))

	publish(t, s, "eu", full...)
	want := make(components)
	want.publish("eu", full)
	wantImported(t, s, want)
}

func testPublishOrder(t *testing.T, s Store) {
	count := func(c window.Cell) store.Count { return store.Count{Cell: c, Count: 1} }
	a, b, c := count(suite.LiveCell("w", "a")), count(suite.LiveCell("w", "b")), count(suite.LiveCell("w", "c"))
	longer, next := a, a
	longer.Cell.Duration, longer.Cell.Sequence = suite.Day, suite.SequenceNow(suite.Day)
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

// wantMisuse publishes rows that the contract forbids, and expects an error about the call, not about a row (bisection
// would never find the row), and nothing stored.
func wantMisuse(t *testing.T, s Store, rows []store.Count) {
	t.Helper()
	err := s.Publish(t.Context(), "eu", rows)
	if err == nil {
		t.Errorf("publish of forbidden rows: no error")
	}
	if errors.Is(err, store.ErrRefused) {
		t.Errorf("publish of forbidden rows: %v, which says that a row is at fault", err)
	}
	wantImported(t, s, nil)
}

// Conformance 39: "One row that the database refuses blocks no other row".
func testPublishRefused(t *testing.T, s Store) {
	good := func(id string) store.Count { return store.Count{Cell: suite.LiveCell("w", id), Count: 5} }
	bad := func(change func(*store.Count)) store.Count {
		c := good("m")
		change(&c)
		return c
	}
	longer := func(bytesMax int) string { return strings.Repeat("m", bytesMax+1) }
	accents := strings.Repeat("é", window.IdentifierBytesMax/2+1)
	for name, culprit := range map[string]store.Count{
		"identifier too long": bad(func(c *store.Count) { c.Cell.Identifier = longer(window.IdentifierBytesMax) }),
		"namespace too long":  bad(func(c *store.Count) { c.Cell.Namespace = longer(window.NamespaceBytesMax) }),
		"workspace too long":  bad(func(c *store.Count) { c.Cell.Workspace = longer(window.WorkspaceBytesMax) }),
		"negative count":      bad(func(c *store.Count) { c.Count = -1 }),
		"count too large":     bad(func(c *store.Count) { c.Count = store.CountMax + 1 }),

		"longer in bytes than in characters": bad(func(c *store.Count) { c.Cell.Identifier = accents }),
	} {
		t.Run(name, func(t *testing.T) {
			a, z := good("a"), good("z")
			for _, rows := range [][]store.Count{{a, culprit, z}, {culprit}, {a, culprit}, {culprit, z}} {
				sortCounts(rows)
				if err := s.Publish(t.Context(), "eu", rows); !errors.Is(err, store.ErrRefused) {
					t.Errorf("publish of %d rows with the culprit: %v, want ErrRefused", len(rows), err)
				}
			}
			wantImported(t, s, nil)
		})
	}
	publish(t, s, "eu", good("a"), good("z"))
	wantImported(t, s, components{{good("a").Cell, "eu"}: 5, {good("z").Cell, "eu"}: 5})
}

func testPublishKeepsNothing(t *testing.T, s Store) {
	a, b := suite.LiveCell("w", "a"), suite.LiveCell("w", "b")
	rows := []store.Count{{Cell: a, Count: 6}, {Cell: b, Count: 4}}
	publish(t, s, "eu", rows...)
	rows[0], rows[1] = store.Count{Cell: b, Count: 100}, store.Count{}
	wantImported(t, s, components{{a, "eu"}: 6, {b, "eu"}: 4})
}
