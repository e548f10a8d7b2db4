package scale

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// How many rows batches delete a second on several connections, each over a range of its own of expires_at, from a
// table without partitions while a region publishes and another imports.
func BenchmarkConnections(b *testing.B) { servers.EachSQL(b, benchConnections) }

func benchConnections(b *testing.B) {
	const expired = 300_000
	for _, connections := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("connections=", connections), func(b *testing.B) {
			for range b.N {
				d := newTable(b, 0, 50_000)
				d.exec("ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING")
				d.fill("expired", expired, d.now.Add(-2*time.Hour), time.Hour/expired)
				busy := d.traffic(b)
				began := time.Now()
				var wg sync.WaitGroup
				for i := range connections {
					from := d.now.Add(-2*time.Hour + time.Hour*time.Duration(i)/time.Duration(connections))
					wg.Go(func() { d.deleteRange(from.UnixMilli(), from.Add(time.Hour/time.Duration(connections)).UnixMilli()) })
				}
				wg.Wait()
				took := time.Since(began)
				publishes, _ := busy()
				if left := d.sum("expired").rows; left > 0 {
					b.Fatalf("%d expired rows are left", left)
				}
				b.ReportMetric(expired/took.Seconds(), "rows/s")
				b.ReportMetric(float64(p99(publishes).Microseconds())/1000, "publish-p99-ms")
			}
		})
	}
}

// deleteRange deletes as the cleanup does: batches in transactions that lock no gaps.
func (d *table) deleteRange(from, to int64) {
	for {
		tx, err := d.db.BeginTx(d.tb.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			d.tb.Error(err)
			return
		}
		result, err := tx.Exec(`DELETE FROM ratelimit_window_counts WHERE expires_at >= ? AND expires_at < ?
			ORDER BY expires_at LIMIT 5000`, from, to)
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			d.tb.Errorf("delete a range: %v, %v", err, tx.Rollback())
			return
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return
		}
	}
}
