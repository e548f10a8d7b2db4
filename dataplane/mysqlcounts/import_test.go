package mysqlcounts

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// "Rows that no relay can have written are left out and counted": for example rows written by hand, by another program,
// or by a bug. They hide no other row.
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
		{"w", "n", "far too large", hour, thisHour, "us", uint64(math.MaxUint64), alive},
		{"w", "n", "just too large", hour, thisHour, "us", int64(store.CountMax + 1), alive},
		{"w", "n", "user_000001", hour, thisHour, "", 1, alive}, // a component without a region
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
	if n := testutil.ToFloat64(c.totals.invalidRows); n != 14 {
		t.Errorf("%v invalid rows were counted, want 14", n)
	}
	var log bytes.Buffer
	c = New(db, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		imported(t, c, "eu")
	}
	if n := strings.Count(log.String(), "no relay can have written it"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// A count that last grew long before its cell began comes from a region whose clock was ahead. Import compares the age
// of the row with the origin's time, because the clock of the database may be wrong too.
func TestImportLeavesOutCountsFromBeforeTheirTime(t *testing.T) {
	servers.EachSQL(t, func(t *testing.T) {
		c, db := openCounts(t)
		now := one[int64](t, db, "SELECT UNIX_TIMESTAMP() * 1000")
		for i, grew := range []time.Duration{-2 * time.Hour, -2 * time.Minute, -30 * time.Second, 0, time.Minute} {
			key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(i), Duration: 2 * time.Hour}
			of := window.Cell{Key: key, Sequence: window.Sequence(now, key.DurationMs())}
			publish(t, c, "us", store.Count{Cell: of, Count: 7})
			start := window.Start(of.Sequence, key.DurationMs())
			exec(t, db, "UPDATE "+rowsTable+" SET updated_at = ? WHERE identifier = ?", start+grew.Milliseconds(), key.Identifier)
			found := false
			err := c.Import(t.Context(), now, func(_ string, n store.Count) { found = found || n.Cell == of })
			if want := grew >= -store.AheadMax; err != nil || found != want {
				t.Errorf("grew %v after its cell began: found %v: %v", grew, found, err)
			}
			// an origin hours ahead of the database computes a later time for the row's last growth
			found = false
			later := key.DurationMs() - 1000
			err = c.Import(t.Context(), now+later, func(_ string, n store.Count) { found = found || n.Cell == of })
			if want := grew+key.Duration-time.Second >= -store.AheadMax; err != nil || found != want {
				t.Errorf("grew %v after its cell began, by a clock that is ahead: found %v: %v", grew, found, err)
			}
		}
	})
}

// A component that is yielded is a component that a relay can have written, whatever bytes its row has.
func FuzzComponent(f *testing.F) {
	f.Add([]byte("w"), []byte("n"), []byte("i"), []byte("us"), []byte("3600000"), []byte("480000"), []byte("7"))
	f.Add([]byte(""), []byte("n"), []byte("i"), []byte(""), []byte("-1"), []byte("9223372036854775807"), []byte("x"))
	f.Fuzz(func(t *testing.T, workspace, namespace, identifier, region, durationMs, sequence, count []byte) {
		r := importRow{workspace: workspace, namespace: namespace, identifier: identifier, region: region,
			durationMs: durationMs, sequence: sequence, count: count}
		of, n, ok := r.component()
		if ok && (n.Cell.Validate() != nil || n.Count < 0 || n.Count > store.CountMax || of == "" || n.Cell.ExpiresAtMs() < 0) {
			t.Errorf("%q has %+v", of, n)
		}
	})
}

// Rows are scanned into the same memory again and again, and none of that memory may be yielded. The cells differ in
// one name at a time, to longer and to shorter names.
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
				next.Sequence--
				all = append(all, x, next)
			}
		}
	}
	publish(t, c, "us", countsOf(1, all...)...)
	var got []window.Cell
	collect := func(_ string, n store.Count) { got = append(got, n.Cell) }
	if err := c.Import(t.Context(), began.UnixMilli(), collect); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, window.Cell.Compare)
	slices.SortFunc(all, window.Cell.Compare)
	if !slices.Equal(got, all) {
		t.Errorf("got %v\nwant %v", got, all)
	}
	// Prepared statements have binary results, in which integers have other Go types.
	prepared := New(openPlain(t, dsnOf(t, db)+"&interpolateParams=false"), Options{})
	got = nil
	if err := prepared.Import(t.Context(), began.UnixMilli(), collect); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, window.Cell.Compare)
	if !slices.Equal(got, all) {
		t.Errorf("prepared: got %v\nwant %v", got, all)
	}
}

// "It yields counts while the database still sends rows, so it never holds more than a row": the connection breaks at
// the first row, and the rows that were still in the database are not read. "After an error, what was yielded is still
// true."
func TestImportStreams(t *testing.T) { servers.EachSQL(t, testImportStreams) }

func testImportStreams(t *testing.T) {
	const rows = 20_000
	dsn := migrated(t)
	exec(t, open(t, dsn), `INSERT INTO ratelimit_window_counts (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
		SELECT REPEAT('w', 191), REPEAT('n', 255), CONCAT(REPEAT('i', 249), LPAD(seq, 6, '0')), 3600000, ?, 'us', seq, ?, UNIX_TIMESTAMP() * 1000 FROM `+servers.Numbers(1, 20_000),
		thisHour, cell("x").ExpiresAtMs())

	proxy := servers.ProxyForTest(t, servers.SharedSQL(t).Addr())
	c := New(open(t, through(t, dsn, proxy)), Options{})
	yielded := 0
	err := c.Import(t.Context(), began.UnixMilli(), func(region string, n store.Count) {
		if yielded++; yielded == 1 {
			proxy.Cut()
		}
		if want := fmt.Sprintf("%06d", n.Count); !strings.HasSuffix(n.Cell.Identifier, want) || region != "us" {
			t.Errorf("%q has %d of %q", n.Cell.Identifier, n.Count, region)
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
