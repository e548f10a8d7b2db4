package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/servers"
)

// The first cleanup of a table with partitions adds partitions. Rows of live hours stay, and hours that have ended are
// dropped as a whole, oldest first, in whatever order their rows were written. Rows outside of partitions are deleted
// in batches.
func TestCleanupOfPartitions(t *testing.T) { servers.EachSQL(t, testCleanupOfPartitions) }

func testCleanupOfPartitions(t *testing.T) {
	store, db := migrated(t)
	now := databaseNow(t, store)
	hour := now.Truncate(time.Hour)
	bounds := []time.Time{hour.Add(-2 * time.Hour), hour.Add(-time.Hour)}
	reorganize := "ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later INTO ("
	for _, bound := range bounds {
		reorganize += fmt.Sprintf("PARTITION h%d VALUES LESS THAN (0, %d), ", bound.UnixMilli(), bound.UnixMilli())
	}
	exec(t, db, reorganize+"PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	insertCounts(t, db, "expired", []time.Time{bounds[1].Add(-time.Second), bounds[0].Add(-time.Second)})
	insertCounts(t, db, "undated", []time.Time{bounds[1]})
	insertCounts(t, db, "live", []time.Time{now.Add(time.Hour), now.Add(90 * 24 * time.Hour)})
	if at, ok, err := store.OldestExpiry(t.Context()); err != nil || !ok || !at.Equal(bounds[0]) {
		t.Errorf("oldest %v %v %v, want the first partition's end, %v", at, ok, err, bounds[0])
	}

	cleaner, err := cleanup.New(cleanup.DefaultConfig(), store, cleanup.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	report, err := cleaner.Run(controlplane.Once(t.Context()))
	if err != nil || report.Partitions != 2 || report.Batches != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier NOT LIKE 'live%'"); n != 0 {
		t.Errorf("%d expired rows are left", n)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE 'live%'"); n != 2 {
		t.Errorf("%d of 2 live rows are left", n)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts PARTITION (h_later)"); n != 1 {
		t.Errorf("%d rows in h_later, want the one that expires in 90 days", n)
	}
	if lag, err := cleaner.Lag(t.Context()); err != nil || lag != 0 {
		t.Errorf("lag %v, %v", lag, err)
	}
}

// With Keep the rows of an ended hour are moved to a table of their own before the hour is dropped. If the account may
// not do that, the run ends in an error, and has dropped nothing.
func TestCleanupKeepsPartitions(t *testing.T) { servers.EachSQL(t, testCleanupKeepsPartitions) }

func testCleanupKeepsPartitions(t *testing.T) {
	store, db := migrated(t)
	overHour(t, db)
	now := databaseNow(t, store)
	insertCounts(t, db, "expired", []time.Time{now.Add(-time.Hour), now.Add(-2 * time.Hour)})
	insertCounts(t, db, "live", []time.Time{now.Add(time.Hour)})
	config := cleanup.DefaultConfig()
	config.Grace, config.Keep = 0, 24*time.Hour
	cleaner, err := cleanup.New(config, store, cleanup.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "DROP PROCEDURE ratelimit_keep_expired_partition")
	if report, err := cleaner.Run(controlplane.Once(t.Context())); err == nil || report.Partitions != 0 {
		t.Errorf("without the procedure: %+v, %v", report, err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts"); n != 3 {
		t.Errorf("%d of 3 rows are left that cannot be kept", n)
	}
	text, err := os.ReadFile("../../schema/procedures/00021_keep_expired_partition.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, create, _ := strings.Cut(string(text), "CREATE PROCEDURE")
	exec(t, db, "CREATE PROCEDURE"+create)
	if report, err := cleaner.Run(controlplane.Once(t.Context())); err != nil || report.Partitions != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	var kept string
	if err := db.QueryRowContext(t.Context(), `SELECT TABLE_NAME FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ratelimit\\_kept\\_%'`).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+kept); n != 2 {
		t.Errorf("%d rows are kept, want 2", n)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts"); n != 1 {
		t.Errorf("%d rows are left, want the live one", n)
	}
	if _, err := db.ExecContext(t.Context(), "RENAME TABLE "+kept+" TO ratelimit_kept_1_h1"); err != nil { // its time is over
		t.Fatal(err)
	}
	if _, err := cleaner.Run(controlplane.Once(t.Context())); err != nil {
		t.Error(err)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ratelimit\\_kept\\_%'`); n != 0 {
		t.Errorf("%d tables are kept", n)
	}
}

// If the answer of a drop is lost, or the drop is killed, it can be repeated: the next call drops the remaining
// partition.
func TestDropExpiredPartitionIsRepeatable(t *testing.T) {
	servers.EachSQL(t, testDropExpiredPartitionIsRepeatable)
}

func testDropExpiredPartitionIsRepeatable(t *testing.T) {
	store, db := migrated(t)
	exec(t, db, "ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later INTO ("+
		"PARTITION h1000 VALUES LESS THAN (0, 1000), PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	insertCounts(t, db, "expired", []time.Time{time.UnixMilli(999)})
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := store.DropExpiredPartition(given, time.UnixMilli(1000)); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	for _, want := range []string{"h1000", "", ""} {
		if d, err := store.DropExpiredPartition(t.Context(), time.UnixMilli(1000)); err != nil || d.Partition != want {
			t.Errorf("dropped %+v, %v; want %q", d, err, want)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// If an open transaction has read the table, a drop returns ErrTableInUse, and dropping works again afterwards.
func TestDropBehindAnOpenTransaction(t *testing.T) {
	servers.EachSQL(t, testDropBehindAnOpenTransaction)
}

func testDropBehindAnOpenTransaction(t *testing.T) {
	store, db := migrated(t)
	exec(t, db, "ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later INTO ("+
		"PARTITION h1000 VALUES LESS THAN (0, 1000), PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	open, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.ExecContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_window_counts"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DropExpiredPartition(t.Context(), time.UnixMilli(1000)); !errors.Is(err, cleanup.ErrTableInUse) {
		t.Errorf("drop: %v", err)
	}
	if _, err := store.AddPartitions(t.Context(), 0); !errors.Is(err, cleanup.ErrTableInUse) {
		t.Errorf("add: %v", err)
	}
	if err := open.Rollback(); err != nil {
		t.Fatal(err)
	}
	if d, err := store.DropExpiredPartition(t.Context(), time.UnixMilli(1000)); err != nil || d.Partition != "h1000" {
		t.Errorf("afterwards %+v, %v", d, err)
	}
}

// The cleanup falls back to batches for a table without partitions, a server without the procedures, and a server that
// refuses to execute them. The report has the reason, and the partitions that stay do not count as lag.
func TestCleanupWithoutPartitions(t *testing.T) { servers.EachSQL(t, testCleanupWithoutPartitions) }

func testCleanupWithoutPartitions(t *testing.T) {
	const foreign = "ALTER TABLE ratelimit_window_counts PARTITION BY RANGE COLUMNS (expiry_class, expires_at) (" +
		"PARTITION d1 VALUES LESS THAN (1, 1), PARTITION h_later VALUES LESS THAN (1, 2), " +
		"PARTITION d_later VALUES LESS THAN (1, MAXVALUE), PARTITION later VALUES LESS THAN (MAXVALUE, MAXVALUE))"
	withoutRights(t)
	for name, c := range map[string]struct{ change, why string }{
		"an unpartitioned table": {"ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING", cleanup.NoPartitions},
		"no drop":                {"DROP PROCEDURE ratelimit_drop_expired_partition", "the procedure ratelimit_drop_expired_partition is missing"},
		"no addition":            {"DROP PROCEDURE ratelimit_add_partitions", "the procedure ratelimit_add_partitions is missing"},
		"no definer":             {definedBy(t, "'gone'@'%'"), "definer"},
		"no rights":              {definedBy(t, "'weir_without_rights'@'%'"), "the definer sees no partitions"},
		"foreign bounds":         {foreign, "its bounds are not ours"},
	} {
		t.Run(name, func(t *testing.T) {
			store, db := migrated(t)
			if why, err := store.PartitionsRefused(t.Context()); err != nil || why != "" {
				t.Fatalf("as migrated: %q, %v", why, err)
			}
			overHour(t, db)
			for statement := range strings.SplitSeq(c.change, ";\n\n") {
				exec(t, db, statement)
			}
			now := databaseNow(t, store)
			insertCounts(t, db, "expired", []time.Time{now.Add(-time.Hour), now.Add(-2 * time.Hour)})
			insertCounts(t, db, "live", []time.Time{now.Add(time.Hour)})
			cleaner, err := cleanup.New(cleanup.DefaultConfig(), store, cleanup.NewMetrics())
			if err != nil {
				t.Fatal(err)
			}
			report, err := cleaner.Run(controlplane.Once(t.Context()))
			if err != nil || report.Rows != 2 || report.Batches != 1 || report.Partitions != 0 ||
				!strings.Contains(report.Refused, c.why) {
				t.Errorf("%+v, %v", report, err)
			}
			if lag, err := cleaner.Lag(t.Context()); err != nil || lag != 0 {
				t.Errorf("lag %v, %v", lag, err)
			}
			if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_window_counts"); n != 1 {
				t.Errorf("%d rows are left, want the live one", n)
			}
		})
	}
}

// overHour adds a partition of an hour that has ended, as if it had been added ahead.
func overHour(t *testing.T, db *sql.DB) {
	t.Helper()
	bound := time.Now().Truncate(time.Hour).UnixMilli()
	exec(t, db, fmt.Sprintf(`ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later
		INTO (PARTITION h%d VALUES LESS THAN (0, %d), PARTITION h_later VALUES LESS THAN (0, MAXVALUE))`, bound, bound))
}

// withoutRights creates a user that may only execute.
func withoutRights(t *testing.T) {
	t.Helper()
	_, db := migrated(t)
	for _, statement := range []string{"CREATE USER 'weir_without_rights'@'%'",
		"GRANT EXECUTE ON *.* TO 'weir_without_rights'@'%'"} {
		exec(t, db, statement)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP USER 'weir_without_rights'@'%'"); err != nil {
			t.Error(err)
		}
	})
}

// definedBy replaces the drop procedure by the same procedure of another definer.
func definedBy(t *testing.T, definer string) string {
	t.Helper()
	text, err := os.ReadFile("../../schema/procedures/00019_drop_expired_partition.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, create, _ := strings.Cut(string(text), "CREATE PROCEDURE")
	return "DROP PROCEDURE ratelimit_drop_expired_partition;\n\nCREATE DEFINER=" + definer + " PROCEDURE" + create
}

func databaseNow(t *testing.T, store *Store) time.Time {
	t.Helper()
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// Rows of a class without partitions ahead are deleted in batches. Meanwhile the doctor and the cleanup report it,
// whether the cleanup has run or not. An empty table is not reported.
func TestMissingPartitionsAreReported(t *testing.T) { servers.EachSQL(t, testMissingPartitions) }

func testMissingPartitions(t *testing.T) {
	store, db := migrated(t)
	cleanup, err := cleanup.New(cleanup.DefaultConfig(), store, cleanup.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}
	reported := func(when, want string) {
		t.Helper()
		problem, err := cleanup.PartitionsProblem(t.Context())
		if err != nil || !strings.Contains(problem.String(), want) || (want == "") != (problem.String() == "") {
			t.Errorf("%s the cleanup reports %q, %v; want %q", when, problem, err, want)
		}
		checks, err := store.examinePartitions(t.Context())
		if err != nil || len(checks) != 1 || (checks[0].Result == watch.CheckOK) != (want == "") || !strings.Contains(checks[0].What, want) {
			t.Errorf("%s the doctor reports %+v, %v; want %q", when, checks, err, want)
		}
	}
	reported("on an empty table", "")
	now := databaseNow(t, store)
	insertCounts(t, db, "hours", slices.Repeat([]time.Time{now.Add(time.Hour)}, 20))
	reported("before any cleanup", "no partitions of hours are ahead")
	insertCounts(t, db, "days", slices.Repeat([]time.Time{now.Add(40 * 24 * time.Hour)}, 20))
	exec(t, db, "UPDATE ratelimit_window_counts SET expiry_class = 1 WHERE identifier LIKE 'days%'")
	if missing, err := store.AddPartitions(t.Context(), 10); err != nil || missing != 2 {
		t.Fatalf("%d classes are left without partitions, %v", missing, err)
	}
	reported("with too many rows to copy", "no partitions of hours and days are ahead")
	if missing, err := store.AddPartitions(t.Context(), 100); err != nil || missing != 0 {
		t.Fatalf("%d classes are left without partitions, %v", missing, err)
	}
	reported("with partitions", "")
}
