package mysqlcounts

import (
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// Measures a relay's statement of 500 rows whose cells are new to the table.
func BenchmarkPublishNew(b *testing.B) { servers.EachSQL(b, benchPublishNew) }

func benchPublishNew(b *testing.B) {
	c, _ := openCounts(b)
	counts := countsOf(1, cells(store.PublishRowsMax)...)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		for i := range counts {
			counts[i].Cell.Sequence = thisHour + int64(n)
		}
		publish(b, c, "eu", counts...)
	}
	b.ReportMetric(float64(n*len(counts))/b.Elapsed().Seconds(), "rows/s")
}

// Measures such a statement of cells that the table has, and whose counts have grown.
func BenchmarkPublishExisting(b *testing.B) { servers.EachSQL(b, benchPublishExisting) }

func benchPublishExisting(b *testing.B) {
	c, _ := openCounts(b)
	counts := countsOf(1, cells(store.PublishRowsMax)...)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		for i := range counts {
			counts[i].Count++
		}
		publish(b, c, "eu", counts...)
	}
	b.ReportMetric(float64(n*len(counts))/b.Elapsed().Seconds(), "rows/s")
}

// Measures an import of 20,000 cells with three regions' components each.
func BenchmarkImport(b *testing.B) { servers.EachSQL(b, benchImport) }

func benchImport(b *testing.B) {
	const cellsStored = 20_000
	regions := []string{"ap", "eu", "us"}
	c, db := openCounts(b)
	for _, region := range regions {
		publish(b, c, region, countsOf(1, cells(cellsStored)...)...)
	}
	exec(b, db, "ANALYZE TABLE "+rowsTable)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		if got := importAll(b, c); got != cellsStored*len(regions) {
			b.Fatalf("%d components", got)
		}
	}
	b.ReportMetric(float64(n*cellsStored*len(regions))/b.Elapsed().Seconds(), "rows/s")
}

// Measures the client's part of a publish: the statement's text and arguments.
func BenchmarkUpsertStatement(b *testing.B) {
	counts := countsOf(1, cells(store.PublishRowsMax)...)
	b.ReportAllocs()
	for b.Loop() {
		if upsertRow.statement(len(counts)) == "" || len(upsertArgs("eu", counts)) == 0 {
			b.Fatal("nothing built")
		}
	}
}

// Measures the client's part of an import: checking a row, and copying the name that has changed.
func BenchmarkImportedRow(b *testing.B) {
	r := importRow{
		workspace: []byte("ws_01"), namespace: []byte("api"), durationMs: int64(60_000), sequence: int64(29_000_000), region: []byte("eu"), count: int64(3),
	}
	names := [][]byte{[]byte("user_1"), []byte("user_2")}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r.identifier = names[i%2]
		if _, _, ok := r.component(); !ok {
			b.Fatal("refused")
		}
	}
}
