package mysqlcounts

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

var threeRegions = []string{"ap-south-1", "eu-west-1", "us-east-1"}

// fill stores a component of each region in n cells, stamped an hour ago.
func fill(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	for _, region := range threeRegions {
		exec(t, db, `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, counted_at, expires_at, updated_at)
			SELECT CONCAT('ws_', LPAD(seq % 20, 2, '0')), CONCAT('namespace_', seq % 7), CONCAT('user_', LPAD(seq, 10, '0')),
			  3600000, ?, ?, 1, ?, ?, UNIX_TIMESTAMP() * 1000 - 3600000 FROM `+servers.Numbers(1, n),
			thisHour, []byte(region), began.UnixMilli(), cell("x").ExpiresAtMs())
	}
	exec(t, db, "ANALYZE TABLE "+rowsTable)
}

// filled are n of the cells that fill has stored.
func filled(n int) []window.Cell {
	all := make([]window.Cell, n)
	for i := range all {
		seq := 1 + i*37%90_000
		all[i] = window.Cell{Sequence: thisHour, Key: window.Key{
			Workspace: fmt.Sprintf("ws_%02d", seq%20), Namespace: fmt.Sprintf("namespace_%d", seq%7),
			Identifier: fmt.Sprintf("user_%010d", seq), Duration: time.Hour}}
	}
	return all
}

// handlerReads is how many rows and index entries the server has read, ever.
func handlerReads(t testing.TB, db *sql.DB) (n int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Handler\\_read\\_%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int64
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		// What it reads of its own temporary tables is none of ours.
		if name != "Handler_read_rnd_next" && name != "Handler_read_rnd" && name != "Handler_read_rnd_deleted" {
			n += value
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// aMomentAgo is a cursor that is older than nothing but what is published from now on.
func aMomentAgo(t testing.TB, c *Counts) store.Cursor {
	t.Helper()
	now, err := c.queries.DatabaseNow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store.Cursor(now)
}

func importAfter(t testing.TB, c *Counts, region string, after store.Cursor) (cells int) {
	t.Helper()
	if _, err := c.Import(t.Context(), region, began.UnixMilli(), after, func(store.Imported) { cells++ }); err != nil {
		t.Fatal(err)
	}
	return cells
}

// "The table itself is read for the cells found there and for no others": the rows that
// an import examines are in proportion to what has changed, not to what is alive.
func TestImportSinceReadsWhatChanged(t *testing.T) {
	servers.EachSQL(t, testImportSinceReadsWhatChanged)
}

func testImportSinceReadsWhatChanged(t *testing.T) {
	c, db := openCounts(t)
	fill(t, db, 10_000)
	plan, err := planOf(t.Context(), db, dataplanedb.WindowCountsImportSince,
		[]byte("eu-west-1"), []byte("eu-west-1"), []byte("eu-west-1"), began.UnixMilli()-1000, []byte("eu-west-1"), began.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(plan)
	if !strings.Contains(plan, "range, updated_at_idx") || !strings.Contains(plan, "ref, PRIMARY") || strings.Contains(plan, "index, ") {
		t.Errorf("the plan is %s, want a range of updated_at_idx and then rows by the primary key", plan)
	}
	for _, touched := range []int{0, 10, 100} {
		after := aMomentAgo(t, c)
		publish(t, c, "us-east-1", countsOf(int64(2+touched), filled(touched)...)...)
		before := handlerReads(t, db)
		got := importAfter(t, c, "eu-west-1", after)
		reads := handlerReads(t, db) - before
		// What came before is within the overlap, so up to all of it comes again.
		if got < touched || got > 110 {
			t.Errorf("%d cells after %d were touched", got, touched)
		}
		if most := int64(20 + 10*110); reads > most {
			t.Errorf("%d reads after %d cells were touched, want at most %d", reads, touched, most)
		}
		t.Logf("%d touched: %d cells, %d reads", touched, got, reads)
	}
	before := handlerReads(t, db)
	if got := importAfter(t, c, "eu-west-1", 0); got != 10_000 {
		t.Errorf("%d cells in all", got)
	}
	if reads := handlerReads(t, db) - before; reads < 30_000 {
		t.Errorf("a full import reads %d rows: the figures above mean nothing", reads)
	}
}

// What a node costs the database, with 100,000 active cells in three regions. README.md
// has the figures.
//
//	go test -run '^$' -bench Active -benchtime 10x ./dataplane/mysqlcounts
func BenchmarkActive(b *testing.B) { servers.EachSQL(b, benchActive) }

func benchActive(b *testing.B) {
	c, db := openCounts(b)
	fill(b, db, 100_000)
	own := New(db, Options{OwnRows: true})
	// Of what changes, a third is the region's own, as in three regions with even load.
	grown := int64(1)
	touch := func(cells []window.Cell) store.Cursor {
		grown++
		exec(b, db, "UPDATE ratelimit_window_counts SET updated_at = updated_at - 3600000 WHERE updated_at > ?", began.UnixMilli()-600_000)
		after := aMomentAgo(b, c)
		for i, region := range threeRegions {
			publish(b, c, region, countsOf(grown, cells[i*len(cells)/3:(i+1)*len(cells)/3]...)...)
		}
		return after
	}
	measure := func(name string, prepare func() store.Cursor, run func(after store.Cursor)) {
		b.Run(name, func(b *testing.B) {
			var reads int64
			n := 0
			for b.Loop() {
				b.StopTimer()
				after := prepare()
				before := handlerReads(b, db)
				b.StartTimer()
				run(after)
				b.StopTimer()
				reads += handlerReads(b, db) - before
				n++
				b.StartTimer()
			}
			b.ReportMetric(float64(reads)/float64(n), "reads/op")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(n), "ms/op")
		})
	}
	next := func(cells []window.Cell) func(store.Cursor) {
		return func(store.Cursor) {
			grown++
			publish(b, c, "eu-west-1", countsOf(grown, cells...)...)
		}
	}
	nothing := func() store.Cursor { return 0 }
	measure("publish 500 existing", nothing, next(filled(500)))
	measure("publish 500 unchanged", nothing, func(store.Cursor) { publish(b, c, "eu-west-1", countsOf(1, filled(500)...)...) })
	fresh := cells(500)
	measure("publish 500 new", nothing, func(store.Cursor) {
		for i := range fresh {
			fresh[i].Sequence++
		}
		publish(b, c, "eu-west-1", countsOf(1, fresh...)...)
	})
	measure("full import", func() store.Cursor { return 0 }, func(store.Cursor) { importAfter(b, c, "eu-west-1", 0) })
	for _, touched := range []int{0, 100, 1000, 10_000} {
		prepare := func() store.Cursor { return touch(filled(touched)) }
		measure(fmt.Sprintf("import, %d touched", touched), prepare, func(after store.Cursor) { importAfter(b, c, "eu-west-1", after) })
		measure(fmt.Sprintf("import with own rows, %d touched", touched), prepare, func(after store.Cursor) { importAfter(b, own, "eu-west-1", after) })
	}
	exec(b, db, "ALTER TABLE ratelimit_window_counts DROP KEY updated_at_idx")
	measure("publish 500 existing, no index on updated_at", nothing, next(filled(500)))
	measure("publish 500 new, no index on updated_at", nothing, func(store.Cursor) {
		for i := range fresh {
			fresh[i].Sequence++
		}
		publish(b, c, "eu-west-1", countsOf(1, fresh...)...)
	})
}
