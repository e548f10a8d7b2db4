package mysqlcounts

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Every statement names the expiry classes, so the engine reads only the partitions with live rows. Cleanup in batches
// also reads the partition of rows that belong to no hour or day.
func TestPruning(t *testing.T) { servers.EachSQL(t, testPruning) }

func testPruning(t *testing.T) {
	_, db := openCounts(t)
	exec(t, db, "ALTER TABLE "+rowsTable+" REORGANIZE PARTITION h_later INTO (PARTITION h1000 VALUES LESS THAN (0, 1000), "+
		"PARTITION h2000 VALUES LESS THAN (0, 2000), PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	exec(t, db, "ALTER TABLE "+rowsTable+" REORGANIZE PARTITION d_later INTO (PARTITION d1000 VALUES LESS THAN (1, 1000), "+
		"PARTITION d_later VALUES LESS THAN (1, MAXVALUE))")
	alive := []string{"d_later", "h2000", "h_later", "later"}
	undated := []string{"d_later", "h_later", "later"}
	for what, c := range map[string]struct {
		query string
		args  []any
		want  []string
	}{
		"import":       {dataplanedb.WindowCountsImport, []any{1500}, alive},
		"a key's rows": {controlplanedb.WindowCountsOfKey, []any{"w", "n", "i", 1500, 10}, alive},
		"delete":       {controlplanedb.WindowCountsDeleteUndated, []any{1500, 10}, undated},
		"oldest":       {controlplanedb.WindowCountsOldestUndated, nil, undated},
	} {
		got := partitionsOf(t, db, c.query, c.args...)
		if !slices.Equal(got, c.want) && (what != "oldest" || got != nil) { // optimized away
			t.Errorf("%s reads %v, want %v", what, got, c.want)
		}
	}
}

// partitionsOf returns the sorted partitions in a statement's plan, or nil if the plan reads nothing.
func partitionsOf(t *testing.T, db *sql.DB, query string, args ...any) (names []string) {
	t.Helper()
	form := "EXPLAIN FORMAT=TRADITIONAL "
	if servers.EngineOf(t) == servers.MariaDB {
		form = "EXPLAIN PARTITIONS "
	}
	plan, err := explain(t.Context(), db, form, []string{"partitions"}, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	for _, named := range plan {
		names = append(names, strings.Split(named, ",")...)
	}
	slices.Sort(names)
	return names
}

// The upsert of a cell updates the stored row, because the row's class and expires_at follow from the duration and the
// sequence.
func TestUpsertHitsOneRow(t *testing.T) { servers.EachSQL(t, testUpsertHitsOneRow) }

func testUpsertHitsOneRow(t *testing.T) {
	c, db := openCounts(t)
	var cells []window.Cell
	for i, d := range []time.Duration{time.Second, 12 * time.Hour, 13 * time.Hour, 31 * 24 * time.Hour, 366 * 24 * time.Hour} {
		key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(i), Duration: d}
		cells = append(cells, window.Cell{Key: key, Sequence: 7})
	}
	for n := range int64(3) {
		publish(t, c, "eu", countsOf(n+1, cells...)...)
	}
	if rows := one[int](t, db, "SELECT COUNT(*) FROM "+rowsTable); rows != len(cells) {
		t.Errorf("%d rows of %d cells", rows, len(cells))
	}
	for class, want := range []int{2, 2, 1} {
		if rows := one[int](t, db, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE expiry_class = %d", rowsTable, class)); rows != want {
			t.Errorf("%d rows of class %d, want %d", rows, class, want)
		}
	}
	if high := one[int](t, db, "SELECT MIN(count) FROM "+rowsTable); high != 3 {
		t.Errorf("the lowest count is %d, want 3", high)
	}
}
