package scale

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	operators "github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// size returns how many rows the table has: the full number with WEIR_SOAK=1, and a twentieth of it otherwise.
func size() (expired, live int) {
	if os.Getenv("WEIR_SOAK") != "" {
		return 1_000_000, 100_000
	}
	return 50_000, 5_000
}

// 1 M expired rows lie among live rows. The cleanup deletes no live row, while a region goes on to publish and another
// to import: all published rows are there afterwards, and no import has failed.
func TestSoakCleanupAtScale(t *testing.T) {
	if os.Getenv("WEIR_LONG") != "" && os.Getenv("WEIR_SOAK") == "" {
		// Each publish adds keys, and each import reads all of them. At the interval of soak they are more work than the
		// cleanup, and the slower the machine is, the more of it.
		interval := tuning.Default().FeedInterval.Std()
		servers.TurnSQL(t, func(t *testing.T) { cleanupAtScale(t, 1_000_000, 100_000, interval) })
		return
	}
	expired, live := size()
	servers.EachSQL(t, func(t *testing.T) { cleanupAtScale(t, expired, live, trafficEvery) })
}

func cleanupAtScale(t *testing.T, expired, live int, interval time.Duration) {
	d := newTable(t, expired, live)
	d.publishEvery = interval
	before := d.sum("live")
	busy := d.traffic(t)
	report := d.clean(t)
	publishes, imports := busy()
	if report.Rows != int64(expired) {
		t.Errorf("%d rows of %d were deleted", report.Rows, expired)
	}
	d.wantKept(before, publishes)
	t.Logf("%d rows in %d batches; meanwhile %d publishes and %d imports", report.Rows, report.Batches, len(publishes), len(imports))
}

// How many rows the cleanup deletes a second, and its cost for nodes meanwhile: how much longer their publishes and
// imports take at the 99th percentile.
func BenchmarkCleanup(b *testing.B) { servers.EachSQL(b, benchCleanup) }

func benchCleanup(b *testing.B) {
	for range b.N {
		d := newTable(b, 1_000_000, 100_000)
		busy := d.traffic(b)
		pause(b.Context(), 5*time.Second)
		publishes, imports := busy()
		busy = d.traffic(b)
		began := time.Now()
		report := d.clean(b)
		took := time.Since(began)
		slowed, delayed := busy()
		b.ReportMetric(float64(report.Rows)/took.Seconds(), "rows/s")
		b.ReportMetric(p99(slowed).Seconds()/p99(publishes).Seconds(), "publish-p99-ratio")
		b.ReportMetric(p99(delayed).Seconds()/p99(imports).Seconds(), "import-p99-ratio")
		b.ReportMetric(float64(p99(slowed).Microseconds())/1000, "publish-p99-ms")
		b.ReportMetric(float64(p99(delayed).Microseconds())/1000, "import-p99-ms")
	}
}

// The bound of the rate: nothing else runs, and batches have several sizes.
func BenchmarkCleanupAlone(b *testing.B) { servers.EachSQL(b, benchCleanupAlone) }

func benchCleanupAlone(b *testing.B) {
	for _, rows := range []int{500, 5_000, 50_000} {
		b.Run(fmt.Sprint("batch=", rows), func(b *testing.B) {
			for range b.N {
				d := newTable(b, 500_000, 50_000)
				d.batchRowsMax = rows
				began := time.Now()
				report := d.clean(b)
				b.ReportMetric(float64(report.Rows)/time.Since(began).Seconds(), "rows/s")
			}
		})
	}
}

// table is ratelimit_window_counts in a database of its own, on a server with the memory
// that such a table is given.
type table struct {
	tb  testing.TB
	dsn string
	db  *sql.DB
	now time.Time

	batchRowsMax int // of the cleanup; 0: the default
	repeatsMax   int // of a publish that fails, as relays repeat it

	publishEvery time.Duration // 0: trafficEvery
}

func newTable(tb testing.TB, expired, live int) *table {
	tb.Helper()
	server, err := servers.StartSQL(tb.Context(), servers.EngineOf(tb), servers.Options{Args: []string{"--innodb-buffer-pool-size=1G", "--loose-innodb-log-file-size=256M", "--loose-innodb-redo-log-capacity=256M"}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, server.Stop()) })
	d := &table{tb: tb, dsn: server.DatabaseForTest(tb), now: time.Now()}
	d.db = schematest.Open(tb, d.dsn, operators.Open)
	// Rows expire in another order than they are stored in, as with windows.
	if expired > 0 {
		d.fill("expired", expired, d.now.Add(-2*time.Hour), time.Hour/time.Duration(expired))
	}
	d.fill("live", live, d.now.Add(time.Hour), time.Millisecond)
	return d
}

func (d *table) fill(kind string, rows int, from time.Time, step time.Duration) {
	d.tb.Helper()
	const turn = 50_000
	for at := 0; at < rows; at += turn {
		_, err := d.db.ExecContext(d.tb.Context(), `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			SELECT 'acme', ?, LEFT(SHA2(seq, 256), 40), 60000, seq DIV 1000, 'eu', seq, ? + FLOOR(seq * ?), ? FROM `+servers.Numbers(at, min(at+turn, rows)-1), kind, from.UnixMilli(), step.Seconds()*1000, d.now.UnixMilli())
		must(d.tb, err)
	}
}

// sum reveals a row that was changed or is gone.
type sum struct {
	rows     int
	checksum uint64
}

func (d *table) sum(namespace string) (s sum) {
	d.tb.Helper()
	must(d.tb, d.db.QueryRowContext(d.tb.Context(), `SELECT COUNT(*), COALESCE(BIT_XOR(CRC32(CONCAT_WS(0xff,
		identifier, duration_ms, sequence, region, count, expires_at, updated_at))), 0) FROM ratelimit_window_counts WHERE namespace = ?`,
		namespace).Scan(&s.rows, &s.checksum))
	return s
}

// wantKept reports live rows that are not as before, and rows that were published meanwhile and are not there.
func (d *table) wantKept(before sum, publishes []time.Duration) {
	d.tb.Helper()
	if got := d.sum("live"); got != before {
		d.tb.Errorf("the live rows were %+v, and are %+v", before, got)
	}
	if got, want := d.sum("busy").rows, len(publishes)*trafficRows; got != want {
		d.tb.Errorf("%d rows were published meanwhile, %d are there", want, got)
	}
}

// clean runs the cleanup until nothing is left to delete.
func (d *table) clean(tb testing.TB) (total cleanup.Report) {
	tb.Helper()
	config := cleanup.DefaultConfig()
	config.Limits.BatchRowsMax = cmp.Or(d.batchRowsMax, config.Limits.BatchRowsMax)
	cleaner, err := cleanup.New(config, operators.New(d.db), cleanup.NewMetrics())
	must(tb, err)
	for {
		r, err := cleaner.Run(controlplane.Once(tb.Context()))
		must(tb, err)
		total.Rows += r.Rows
		total.Batches += r.Batches
		total.Partitions += r.Partitions
		if r.StoppedBy == cleanup.StoppedByNothing {
			return total
		}
	}
}

const (
	trafficRows  = 200
	trafficEvery = 20 * time.Millisecond
	importEvery  = time.Second // a relay takes over
)

// traffic publishes rows of a region and imports them in another until the returned function is called, which returns
// how long each call took.
func (d *table) traffic(tb testing.TB) (stop func() (publishes, imports []time.Duration)) {
	tb.Helper()
	db, err := mysqlcounts.Open(d.dsn)
	must(tb, err)
	counts := mysqlcounts.New(db, mysqlcounts.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var publishes, imports []time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		n := time.Now().UnixMicro()
		publishes = d.every(ctx, cmp.Or(d.publishEvery, trafficEvery), "publish", func(ctx context.Context) error {
			n++
			rows := d.batch(n)
			err := counts.Publish(ctx, "us", rows)
			for repeats := 0; err != nil && repeats < d.repeatsMax; repeats++ {
				err = counts.Publish(ctx, "us", rows)
			}
			return err
		})
	})
	wg.Go(func() {
		imports = d.every(ctx, importEvery, "import", func(ctx context.Context) error {
			return counts.Import(ctx, time.Now().UnixMilli(), func(string, store.Count) {})
		})
	})
	return func() ([]time.Duration, []time.Duration) {
		cancel()
		wg.Wait()
		must(tb, db.Close())
		return publishes, imports
	}
}

// every times calls of f until ctx ends. A call that has begun runs to its end.
func (d *table) every(ctx context.Context, interval time.Duration, what string, f func(context.Context) error) (took []time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		began := time.Now()
		if err := f(context.WithoutCancel(ctx)); err != nil {
			d.tb.Errorf("%s: %v", what, err)
		}
		took = append(took, time.Since(began))
		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
	}
}

// batch returns the counts of a flush, of keys that have not been published yet.
func (d *table) batch(n int64) []store.Count {
	all := make([]store.Count, trafficRows)
	for i := range all {
		key := window.Key{Workspace: "acme", Namespace: "busy", Identifier: fmt.Sprintf("%d_%03d", n, i), Duration: time.Hour}
		all[i] = store.Count{Cell: window.Cell{Key: key, Sequence: window.Sequence(d.now.UnixMilli(), key.DurationMs())}, Count: 1}
	}
	return all
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
