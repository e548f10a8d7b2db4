package schema

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

const (
	hourMs = int64(time.Hour / time.Millisecond)
	dayMs  = 24 * hourMs
)

// "An insert never fails for want of a partition": none was made ahead, and rows of all classes expire at any time.
func TestInsertsNeedNoPartition(t *testing.T) { servers.EachSQL(t, testInsertsNeedNoPartition) }

func testInsertsNeedNoPartition(t *testing.T) {
	db := partitioned(t)
	for class := range 3 {
		for _, expiresAt := range []int64{0, nowMs(t, db), nowMs(t, db) + 3*366*dayMs, 1<<63 - 1} {
			row(t, db, class, expiresAt)
		}
	}
	wantRows(t, db, "ratelimit_window_counts", 12)
	for _, last := range []string{"h_later", "d_later", "later"} {
		wantRows(t, db, "ratelimit_window_counts PARTITION ("+last+")", 4)
	}
}

// Partitions for the next 54 hours and 70 days. Existing partitions stay, and are not made again.
func TestAddPartitions(t *testing.T) { servers.EachSQL(t, testAddPartitions) }

func testAddPartitions(t *testing.T) {
	db := partitioned(t)
	before := nowMs(t, db)
	if added, skipped := addPartitions(t, db, 0); added != 54+70 || skipped != 0 {
		t.Fatalf("added %d, skipped %d classes", added, skipped)
	}
	for class, want := range map[int]struct {
		name  string
		width int64
	}{0: {"h", hourMs}, 1: {"d", dayMs}} {
		expiresAt := before + 2*want.width
		row(t, db, class, expiresAt)
		wantRows(t, db, fmt.Sprintf("ratelimit_window_counts PARTITION (%s%d)", want.name, (expiresAt/want.width+1)*want.width), 1)
	}
	first := partitions(t, db)
	if added, _ := addPartitions(t, db, 0); added != 0 && nowMs(t, db)/hourMs == before/hourMs {
		t.Errorf("added %d more", added)
	}
	if got := partitions(t, db); !slices.Equal(got[:100], first[:100]) {
		t.Errorf("%v became %v", first, got)
	}
}

// "Rows that are in the last partition already are copied …, so at most rows_max of them are": with one row more the
// class is left unchanged. With room for all, each row is in the partition of its hour and none is lost.
func TestAddPartitionsCopiesABoundedNumberOfRows(t *testing.T) {
	servers.EachSQL(t, testAddPartitionsCopiesABoundedNumberOfRows)
}

func testAddPartitionsCopiesABoundedNumberOfRows(t *testing.T) {
	db := partitioned(t)
	now := nowMs(t, db)
	for i := range int64(11) {
		row(t, db, 0, now+i*hourMs)
	}
	if added, skipped := addPartitions(t, db, 10); added != 70 || skipped != 1 {
		t.Errorf("with room for 10: added %d, skipped %d classes", added, skipped)
	}
	wantRows(t, db, "ratelimit_window_counts PARTITION (h_later)", 11)
	if added, skipped := addPartitions(t, db, 11); added != 54 || skipped != 0 {
		t.Errorf("with room for 11: added %d, skipped %d classes", added, skipped)
	}
	wantRows(t, db, "ratelimit_window_counts PARTITION (h_later)", 0)
	wantRows(t, db, "ratelimit_window_counts", 11)
}

// A call drops a single partition, only if all of its rows expired before the cutoff, and never the last of a class.
func TestDropExpiredPartition(t *testing.T) { servers.EachSQL(t, testDropExpiredPartition) }

func testDropExpiredPartition(t *testing.T) {
	db := partitioned(t)
	now := nowMs(t, db)
	past := hoursBefore(t, db, now, 3)
	for _, bound := range past {
		row(t, db, 0, bound-1) // the last that the partition takes
	}
	row(t, db, 0, past[2]) // in h_later, like all live rows
	row(t, db, 0, now+hourMs)
	row(t, db, 1, 5)
	for _, want := range []struct {
		cutoff int64
		name   string
		left   int
	}{
		{past[0] - 1, "", 6}, {past[0], fmt.Sprint("h", past[0]), 5}, {past[0], "", 5},
		{past[2], fmt.Sprint("h", past[1]), 4}, {past[2], fmt.Sprint("h", past[2]), 3}, {now, "", 3},
	} {
		name, err := dropExpired(t.Context(), db, want.cutoff)
		if err != nil || name != want.name {
			t.Errorf("cutoff %d: dropped %q, %v; want %q", want.cutoff, name, err, want.name)
		}
		wantRows(t, db, "ratelimit_window_counts", want.left)
	}
}

// Unexpired rows are never dropped, whatever the cutoff, and whatever bounds a partition was given.
func TestDropRefusesWhatHasNotExpired(t *testing.T) {
	servers.EachSQL(t, testDropRefusesWhatHasNotExpired)
}

func testDropRefusesWhatHasNotExpired(t *testing.T) {
	db := partitioned(t)
	addPartitions(t, db, 0)
	now := nowMs(t, db)
	row(t, db, 0, now+hourMs)
	before := partitions(t, db)
	for _, cutoff := range []any{now + hourMs, now + 400*dayMs, uint64(1<<64 - 1)} {
		if name, err := dropExpired(t.Context(), db, cutoff); err != nil || name != "" {
			t.Errorf("cutoff %v: dropped %q, %v", cutoff, name, err)
		}
	}
	if name, err := dropExpired(t.Context(), db, nil); err == nil || !strings.Contains(err.Error(), "NULL") {
		t.Errorf("no cutoff: dropped %q, %v", name, err)
	}
	if got := partitions(t, db); !slices.Equal(got, before) {
		t.Errorf("%v became %v", before, got)
	}

	// Without the last partition of the hours, the first of the days takes their rows too.
	exec(t, db, "ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING")
	exec(t, db, "ALTER TABLE ratelimit_window_counts PARTITION BY RANGE COLUMNS (expiry_class, expires_at) ("+
		"PARTITION d1 VALUES LESS THAN (1, 1), PARTITION later VALUES LESS THAN (MAXVALUE, MAXVALUE))")
	if name, err := dropExpired(t.Context(), db, now); err == nil || !strings.Contains(err.Error(), "have not expired") {
		t.Errorf("dropped %q, %v", name, err)
	}
	wantRows(t, db, "ratelimit_window_counts", 1)
}

// A long transaction holds the table: the procedures give up after a second, publishes that came behind them go on, and
// the session is as it was.
func TestProceduresGiveUpBehindALongTransaction(t *testing.T) {
	servers.EachSQL(t, testProceduresGiveUpBehindALongTransaction)
}

func testProceduresGiveUpBehindALongTransaction(t *testing.T) {
	db := partitioned(t)
	now := nowMs(t, db)
	past := hoursBefore(t, db, now, 1)
	open := reading(t, db, "ratelimit_window_counts")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	want := lockWaitOf(t, db)
	for _, call := range []string{
		fmt.Sprintf("CALL ratelimit_drop_expired_partition(%d)", past[0]), "CALL ratelimit_add_partitions(0)",
	} {
		done := make(chan error, 1)
		go func() {
			_, err := conn.ExecContext(t.Context(), call)
			done <- err
		}()
		for gaveUp := false; !gaveUp; { // publishes go on before, behind and after it
			select {
			case err := <-done:
				if !isNumber(err, lockWaitTimeout) {
					t.Errorf("%s: %v, want 1205", call, err)
				}
				gaveUp = true
			default:
				row(t, db, 0, now+hourMs)
			}
		}
		var got int
		if err := conn.QueryRowContext(t.Context(), "SELECT @@SESSION.lock_wait_timeout").Scan(&got); err != nil || got != want {
			t.Errorf("lock_wait_timeout is %d, was %d: %v", got, want, err)
		}
	}
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	if name, err := dropExpired(t.Context(), db, past[0]); err != nil || name == "" {
		t.Errorf("afterwards dropped %q, %v", name, err)
	}
}

// "Its caller needs EXECUTE on it and no right to alter or drop the table."
func TestProceduresNeedNoRightToDrop(t *testing.T) {
	servers.EachSQL(t, testProceduresNeedNoRightToDrop)
}

func testProceduresNeedNoRightToDrop(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := connect(t, server.DSN("weir"))
	for _, statement := range readmeGrants(t)["weir_migrate"] {
		exec(t, root, statement)
	}
	migrate(t, connect(t, strings.Replace(server.DSN("weir"), "root@", "weir_migrate:change me@", 1)))
	for _, statement := range append(readmeGrants(t)["weir_control"], readmeGrants(t)["weir_node"]...) {
		exec(t, root, statement)
	}
	past := hoursBefore(t, root, nowMs(t, root), 1)
	calls := []string{fmt.Sprintf("CALL ratelimit_drop_expired_partition(%d)", past[0]), "CALL ratelimit_add_partitions(0)"}
	node := connect(t, strings.Replace(server.DSN("weir"), "root@", "weir_node:change me@", 1))
	control := connect(t, strings.Replace(server.DSN("weir"), "root@", "weir_control:change me@", 1))
	for _, call := range calls {
		wantDenied(t, node, call)
		exec(t, control, call)
	}
	if slices.Contains(partitions(t, root), fmt.Sprint("h", past[0])) || len(partitions(t, root)) < 100 {
		t.Errorf("partitions %v", partitions(t, root))
	}
}

// partitioned returns a database with the tables as migrated.
func partitioned(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := emptyDatabase(t)
	migrate(t, db)
	return db
}

// hoursBefore makes partitions for the n last hours that are over, as if they had been made ahead.
func hoursBefore(t *testing.T, db *sql.DB, now int64, n int) (bounds []int64) {
	t.Helper()
	var parts strings.Builder
	for i := range n {
		bound := (now/hourMs - int64(n-1-i)) * hourMs
		bounds = append(bounds, bound)
		fmt.Fprintf(&parts, "PARTITION h%d VALUES LESS THAN (0, %d), ", bound, bound)
	}
	exec(t, db, "ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION h_later INTO ("+parts.String()+
		"PARTITION h_later VALUES LESS THAN (0, MAXVALUE))")
	return bounds
}

func row(t *testing.T, db *sql.DB, class int, expiresAt int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := db.ExecContext(ctx, `INSERT INTO ratelimit_window_counts
		(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, expiry_class, updated_at)
		VALUES ('w', 'n', 'i', 60000, ?, 'eu', 1, ?, ?, 1) ON DUPLICATE KEY UPDATE count = count + 1`,
		expiresAt, expiresAt, class); err != nil {
		t.Fatalf("a row of class %d that expires at %d: %v", class, expiresAt, err)
	}
}

func nowMs(t *testing.T, db *sql.DB) (ms int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT UNIX_TIMESTAMP() * 1000").Scan(&ms); err != nil {
		t.Fatal(err)
	}
	return ms
}

func addPartitions(t *testing.T, db *sql.DB, rowsMax int) (added, skipped int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "CALL ratelimit_add_partitions(?)", rowsMax).Scan(&added, &skipped); err != nil {
		t.Fatal(err)
	}
	return added, skipped
}

func dropExpired(ctx context.Context, db *sql.DB, cutoff any) (string, error) {
	var name sql.NullString
	var rows int64
	err := db.QueryRowContext(ctx, "CALL ratelimit_drop_expired_partition(?)", cutoff).Scan(&name, &rows)
	return name.String, err
}

// partitions returns the names of the partitions, in their order.
func partitions(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT PARTITION_NAME FROM information_schema.PARTITIONS
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts' ORDER BY PARTITION_ORDINAL_POSITION`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
