package scale

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane/cleanup"
	operators "github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// Hours that are over are dropped as a whole while a region publishes and another imports: every expired row goes, no
// live row is touched, no row that is published meanwhile is lost, and no publish fails.
func TestSoakPartitionsAtScale(t *testing.T) { servers.EachSQL(t, testSoakPartitionsAtScale) }

func testSoakPartitionsAtScale(t *testing.T) {
	expired, live := size()
	d := newHours(t, expired, live)
	before := d.sum("live")
	busy := d.traffic(t)
	report := d.clean(t)
	for deadline := time.Now().Add(20 * time.Second); d.sum("expired").rows > 0 && time.Now().Before(deadline); {
		report = d.clean(t) // imports held the table for longer than a drop waits: it is left to the next run
	}
	publishes, imports := busy()
	if d.sum("expired").rows > 0 {
		report = d.clean(t) // imports never left it a second: a quiet time does
	}
	if left := d.sum("expired").rows; left != 0 || report.Partitions == 0 {
		t.Errorf("%d expired rows are left, %+v", left, report)
	}
	d.wantKept(before, publishes)
	t.Logf("%d partitions; meanwhile %d publishes and %d imports", report.Partitions, len(publishes), len(imports))
}

// A table with rows gets its partitions while a region publishes and another imports: no row is lost, live rows are
// unchanged, and each is in the partition of its hour. A publish that waits for longer than its connection does is
// repeated.
func TestSoakPartitioningAtScale(t *testing.T) { servers.EachSQL(t, testSoakPartitioningAtScale) }

func testSoakPartitioningAtScale(t *testing.T) {
	live, _ := size()
	d := newTable(t, 0, live)
	d.repeatsMax = 100
	d.exec("ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING")
	text, err := os.ReadFile("../../schema/00018_window_counts_partitions.sql")
	must(t, err)
	before := d.sum("live")
	busy := d.traffic(t)
	began := time.Now()
	d.exec(string(text))
	copied := time.Since(began)
	calls, done := d.addPartitions(20 * time.Second)
	t.Logf("%d rows: copied in %v, partitioned by %d calls in %v more: %v", live, copied, calls, time.Since(began)-copied, done)
	publishes, _ := busy()
	if !done { // imports never left it a second: a quiet time does
		d.exec("CALL ratelimit_add_partitions(100000000)")
	}
	d.wantKept(before, publishes)
	var undated int
	must(t, d.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_window_counts PARTITION (h_later, d_later, later)").Scan(&undated))
	if undated > 0 {
		t.Errorf("%d rows are in no partition of an hour or a day", undated)
	}
}

// addPartitions calls until no import holds the table for the second that a call waits, for some time.
func (d *table) addPartitions(within time.Duration) (calls int, done bool) {
	d.tb.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		calls++
		_, err := d.db.ExecContext(d.tb.Context(), "CALL ratelimit_add_partitions(100000000)")
		if busy, ok := errors.AsType[*mysql.MySQLError](err); ok && busy.Number == 1205 {
			continue
		}
		must(d.tb, err)
		return calls, true
	}
	return calls, false
}

func (d *table) exec(statement string) {
	d.tb.Helper()
	_, err := d.db.ExecContext(d.tb.Context(), statement)
	must(d.tb, err)
}

// How many rows drops of partitions remove a second, and their cost for publishes in the next ten seconds: the 99th
// percentile, next to the 99th percentile of ten seconds without a drop before each, and the maximum. The control
// compares the second half of the seconds without a drop with the first. If it is far from 1, the machine does other
// work, and the ratio means little.
func BenchmarkPartitions(b *testing.B) { servers.EachSQL(b, benchPartitions) }

func benchPartitions(b *testing.B) {
	const expired, hours = 1_000_000, 4
	for range b.N {
		d := newHours(b, 0, 100_000)
		d.fillExpired(expired, hours)
		d.exec("CALL ratelimit_add_partitions(1000000)")
		var quiet, dropping [hours][]time.Duration
		var took time.Duration
		for i := range hours {
			quiet[i] = d.publishesDuring(b, func() {})
			dropping[i] = d.publishesDuring(b, func() { took += d.dropOne(b) })
		}
		if left := d.sum("expired").rows; left != 0 {
			b.Fatalf("%d expired rows are left", left)
		}
		still, slowed := p99(slices.Concat(quiet[:]...)), slices.Concat(dropping[:]...)
		control := p99(slices.Concat(quiet[hours/2:]...)).Seconds() / p99(slices.Concat(quiet[:hours/2]...)).Seconds()
		b.ReportMetric(expired/took.Seconds(), "rows/s")
		b.ReportMetric(float64(still.Microseconds())/1000, "publish-p99-quiet-ms")
		b.ReportMetric(control, "publish-p99-control")
		b.ReportMetric(float64(p99(slowed).Microseconds())/1000, "publish-p99-ms")
		b.ReportMetric(p99(slowed).Seconds()/still.Seconds(), "publish-p99-ratio")
		b.ReportMetric(float64(slices.Max(slowed).Microseconds())/1000, "publish-max-ms")
	}
}

// publishesDuring publishes for ten seconds, and returns the times. f runs after four seconds.
func (d *table) publishesDuring(b *testing.B, f func()) []time.Duration {
	b.Helper()
	busy := d.traffic(b)
	pause(b.Context(), 4*time.Second)
	began := time.Now()
	f()
	pause(b.Context(), 6*time.Second-time.Since(began))
	publishes, _ := busy()
	return publishes
}

func (d *table) dropOne(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	for {
		dropped, err := operators.New(d.db).DropExpiredPartition(b.Context(), d.now.Add(-2*time.Minute))
		if errors.Is(err, cleanup.ErrTableInUse) {
			continue
		}
		must(b, err)
		if dropped.Partition == "" {
			b.Fatal("nothing has expired")
		}
		return time.Since(began)
	}
}

// newHours returns a table whose expired rows are in partitions of hours that are over.
func newHours(tb testing.TB, expired, live int) *table {
	tb.Helper()
	d := newTable(tb, 0, live)
	hour := d.now.Truncate(time.Hour)
	var parts strings.Builder
	for ago := 3; ago >= 0; ago-- {
		bound := hour.Add(-time.Duration(ago) * time.Hour).UnixMilli()
		fmt.Fprintf(&parts, "PARTITION h%d VALUES LESS THAN (0, %d), ", bound, bound)
	}
	d.exec("ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later INTO (" + parts.String() +
		"PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	d.fillExpired(expired, 2)
	return d
}

// fillExpired spreads rows over the last hours that ended more than a cleanup's grace ago.
func (d *table) fillExpired(rows, hours int) {
	d.tb.Helper()
	if rows == 0 {
		return
	}
	span := time.Duration(hours) * time.Hour
	d.fill("expired", rows, d.now.Add(-2*time.Minute).Truncate(time.Hour).Add(-span), span/time.Duration(rows))
}
