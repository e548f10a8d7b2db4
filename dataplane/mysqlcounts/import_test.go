package mysqlcounts

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// "Rows that no data plane can have written are left out and counted": by hand, by a
// program that is not ours, by a bug. They hide no other row, and no other cell.
func TestImportLeavesOutInvalidRows(t *testing.T) { servers.EachSQL(t, testImportLeavesOutInvalidRows) }

func testImportLeavesOutInvalidRows(t *testing.T) {
	c, db := openCounts(t)
	good := cells(3)
	publish(t, c, "us", countsOf(7, good...)...)
	const insert = `INSERT INTO ratelimit_window_counts (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)`
	const alive = math.MaxInt64
	hour := int64(3_600_000)
	for _, row := range [][]any{
		{"", "n", "empty workspace", hour, thisHour, "us", 1, alive},
		{"w", "", "empty namespace", hour, thisHour, "us", 1, alive},
		{"a", "n", "", hour, thisHour, "us", 1, alive},
		{"w", "n", "no duration", 0, thisHour, "us", 1, alive},
		{"w", "n", "too short", 999, thisHour, "us", 1, alive},
		{"w", "n", "too long", window.DurationMax.Milliseconds() + 1, 1, "us", 1, alive},
		{"w", "n", "longest", uint64(math.MaxUint64), 1, "us", 1, alive},
		{"w", "n", "of a mode that there is not", hour | 2<<40, 1, "us", 1, alive},
		{"w", "n", "sequence before time", hour, -3, "us", 1, alive},
		{"w", "n", "least sequence", hour, int64(math.MinInt64), "us", 1, alive},
		{"w", "n", "sequence after time", hour, int64(math.MaxInt64), "us", 1, alive},
		{"w", "n", "foreign too large", hour, thisHour, "us", uint64(math.MaxUint64), alive},
		{"w", "n", "own too large", hour, thisHour, "eu", uint64(math.MaxUint64), alive},
		{"w", "n", "own just too large", hour, thisHour, "eu", int64(countMax + 1), alive},
		{"w", "n", "sum too large", hour, thisHour, "us", int64(countMax), alive},
		{"w", "n", "sum too large", hour, thisHour, "ap", 1, alive}, // the same cell
	} {
		exec(t, db, insert, row...)
	}
	got := imported(t, c, "eu")
	for _, g := range good {
		if got[g].Foreign != 7 {
			t.Errorf("%v has %+v", g, got[g])
		}
	}
	if len(got) != len(good) {
		t.Errorf("%d cells, want %d: %v", len(got), len(good), got)
	}
	if n := testutil.ToFloat64(c.totals.invalidRows); n != 15 {
		t.Errorf("%v invalid rows were counted, want 15", n)
	}
	// What is invalid seen from one region need not be from another.
	if got := imported(t, c, "us"); got[cell("sum too large")].Own != countMax {
		t.Errorf("as us: %+v", got[cell("sum too large")])
	}
}

// The arithmetic is exact below 2^62: the largest sum that is believed.
func TestImportLargestSum(t *testing.T) { servers.EachSQL(t, testImportLargestSum) }

func testImportLargestSum(t *testing.T) {
	c, _ := openCounts(t)
	publish(t, c, "us", countsOf(countMax-1, cell("x"))...)
	publish(t, c, "ap", countsOf(1, cell("x"))...)
	publish(t, c, "eu", countsOf(countMax, cell("x"))...)
	if got := imported(t, c, "eu")[cell("x")]; got.Foreign != countMax || got.Own != countMax {
		t.Errorf("%+v", got)
	}
}

// Rows are scanned into the same memory again and again: none of it may be yielded.
// The cells differ in one name at a time, in both directions of length.
func TestImportedNamesAreTheirOwn(t *testing.T) { servers.EachSQL(t, testImportedNamesAreTheirOwn) }

func testImportedNamesAreTheirOwn(t *testing.T) {
	c, db := openCounts(t)
	var all []window.Cell
	for _, w := range []string{"w", "ww", "www"} {
		for _, n := range []string{"nn", "n"} {
			for _, i := range []string{"a", "aaaa", "b", "bb"} {
				x := cell(i)
				x.Workspace, x.Namespace = w, n
				next := x
				next.Sequence++
				all = append(all, x, next)
			}
		}
	}
	publish(t, c, "us", countsOf(1, all...)...)
	var got []window.Cell
	collect := func(i store.Imported) { got = append(got, i.Cell) }
	if _, err := c.Import(t.Context(), "eu", began.UnixMilli(), 0, collect); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, window.Cell.Compare)
	slices.SortFunc(all, window.Cell.Compare)
	if !slices.Equal(got, all) {
		t.Errorf("got %v\nwant %v", got, all)
	}
	// Prepared statements answer in binary, where integers have other Go types.
	prepared := New(openPlain(t, dsnOf(t, db)+"&interpolateParams=false"), Options{})
	got = nil
	if _, err := prepared.Import(t.Context(), "eu", began.UnixMilli(), 0, collect); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, window.Cell.Compare)
	if !slices.Equal(got, all) {
		t.Errorf("prepared: got %v\nwant %v", got, all)
	}
}

// "It yields while the database is still sending, and so never holds more than a row":
// the connection breaks at the first row, and the rows that were still in the database
// are never seen. "After an error, what was yielded is still true."
func TestImportStreams(t *testing.T) { servers.EachSQL(t, testImportStreams) }

func testImportStreams(t *testing.T) {
	const rows = 20_000
	dsn := migrated(t)
	exec(t, open(t, dsn), `INSERT INTO ratelimit_window_counts (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
		SELECT REPEAT('w', 191), REPEAT('n', 255), CONCAT(REPEAT('i', 249), LPAD(seq, 6, '0')), 3600000, ?, 'us', seq, ?, 1 FROM `+servers.Numbers(1, 20_000),
		thisHour, cell("x").ExpiresAtMs())

	proxy := servers.ProxyForTest(t, servers.SharedSQL(t).Addr())
	c := New(open(t, through(t, dsn, proxy)), Options{})
	yielded := 0
	_, err := c.Import(t.Context(), "eu", began.UnixMilli(), 0, func(i store.Imported) {
		if yielded++; yielded == 1 {
			proxy.Cut()
		}
		if want := fmt.Sprintf("%06d", i.Foreign); !strings.HasSuffix(i.Cell.Identifier, want) || i.Own != 0 {
			t.Errorf("%q has %d, %d", i.Cell.Identifier, i.Foreign, i.Own)
		}
	})
	wantTransient(t, err)
	if yielded == 0 || yielded == rows {
		t.Errorf("%d of %d cells were yielded", yielded, rows)
	}
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	if n := len(imported(t, c, "eu")); n != rows {
		t.Errorf("after the connection has healed: %d cells, want %d", n, rows)
	}
}

func TestInteger(t *testing.T) {
	for _, c := range []struct {
		in   any
		want int64
		ok   bool
	}{
		{int64(-5), -5, true}, {uint64(5), 5, true}, {uint64(math.MaxInt64), math.MaxInt64, true}, {uint64(math.MaxInt64) + 1, 0, false},
		{[]byte("17"), 17, true}, {[]byte("9223372036854775808"), 0, false}, {[]byte("1.5"), 0, false}, {nil, 0, false}, {"17", 0, false}, {1.5, 0, false},
	} {
		got, ok := integer(c.in)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%T %v: %d %v", c.in, c.in, got, ok)
		}
	}
}
