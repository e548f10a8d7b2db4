package mysqlcounts

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

var threeRegions = []string{"ap-south-1", "eu-west-1", "us-east-1"}

// fill stores a component of each region in n cells, which last grew an hour ago.
func fill(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	for _, region := range threeRegions {
		exec(t, db, `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			SELECT CONCAT('ws_', LPAD(seq % 20, 2, '0')), CONCAT('namespace_', seq % 7), CONCAT('user_', LPAD(seq, 10, '0')),
			  3600000, ?, ?, 1, ?, UNIX_TIMESTAMP() * 1000 - 1000 FROM `+servers.Numbers(1, n),
			thisHour, []byte(region), cell("x").ExpiresAtMs())
	}
	exec(t, db, "ANALYZE TABLE "+rowsTable)
}

// filled returns n of the cells that fill has stored.
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

// handlerReads returns the number of rows and index entries that the server has read since its start.
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
		// Reads of the server's own temporary tables do not count.
		if name != "Handler_read_rnd_next" && name != "Handler_read_rnd" && name != "Handler_read_rnd_deleted" {
			n += value
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Measures the cost of a relay's calls, with 100,000 active cells in three regions. README.md has the figures.
//
//	go test -run '^$' -bench Active -benchtime 10x ./dataplane/mysqlcounts
func BenchmarkActive(b *testing.B) { servers.EachSQL(b, benchActive) }

func benchActive(b *testing.B) {
	c, db := openCounts(b)
	fill(b, db, 100_000)
	measure := func(name string, run func()) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				run()
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(n), "ms/op")
		})
	}
	measure("import", func() { importAll(b, c) })
	grown := int64(1)
	measure("publish 500 existing", func() {
		grown++
		publish(b, c, "eu-west-1", countsOf(grown, filled(500)...)...)
	})
	measure("publish 500 unchanged", func() { publish(b, c, "eu-west-1", countsOf(1, filled(500)...)...) })
	fresh := cells(500)
	measure("publish 500 new", func() {
		for i := range fresh {
			fresh[i].Sequence++
		}
		publish(b, c, "eu-west-1", countsOf(1, fresh...)...)
	})
}
