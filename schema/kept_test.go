package schema

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/servers"
)

// The rows of an hour that is over move to a table of their own, from which they can be put back, and the emptied
// partition is dropped. The table goes when its time is over, and not before.
func TestKeepExpiredPartition(t *testing.T) { servers.EachSQL(t, testKeepExpiredPartition) }

func testKeepExpiredPartition(t *testing.T) {
	db := partitioned(t)
	past := hoursBefore(t, db, nowMs(t, db), 2)
	for i := range int64(7) {
		row(t, db, 0, past[0]-1-i)
	}
	row(t, db, 0, past[1]-1)
	row(t, db, 0, nowMs(t, db)+hourMs)
	kept := keep(t, db, past[0], dayMs)
	if !strings.HasSuffix(kept, fmt.Sprintf("_h%d", past[0])) {
		t.Fatalf("kept in %q", kept)
	}
	wantRows(t, db, kept, 7)
	wantRows(t, db, "ratelimit_window_counts", 2)
	if again := keep(t, db, past[0], dayMs); again != "" { // its answer was lost
		t.Errorf("an empty partition is kept in %q", again)
	}
	if name, err := dropExpired(t.Context(), db, past[0]); err != nil || name != fmt.Sprint("h", past[0]) {
		t.Errorf("dropped %q, %v", name, err)
	}
	if none := keep(t, db, past[0], dayMs); none != "" {
		t.Errorf("nothing more has expired, and %q is kept", none)
	}
	if name := dropKept(t, db); name != "" {
		t.Errorf("dropped %q on the first day", name)
	}
	exec(t, db, "INSERT INTO ratelimit_window_counts SELECT * FROM "+kept)
	wantRows(t, db, "ratelimit_window_counts", 9)

	exec(t, db, fmt.Sprintf("RENAME TABLE %s TO ratelimit_kept_1_h%d", kept, past[0])) // a day later
	for _, want := range []string{fmt.Sprintf("ratelimit_kept_1_h%d", past[0]), ""} {
		if name := dropKept(t, db); name != want {
			t.Errorf("dropped %q, want %q", name, want)
		}
	}
	wantRows(t, db, "ratelimit_window_counts", 9)
}

// "A call that was cut off is made again: it goes on with the table that it finds", however far it had come. A table
// with rows is not exchanged again: they would come back.
func TestKeepGoesOnWhereItWasCutOff(t *testing.T) { servers.EachSQL(t, testKeepGoesOnWhereItWasCutOff) }

func testKeepGoesOnWhereItWasCutOff(t *testing.T) {
	for name, done := range map[string][]string{
		"after the creation": {"CREATE TABLE %s LIKE ratelimit_window_counts"},
		"before the exchange": {"CREATE TABLE %s LIKE ratelimit_window_counts",
			"ALTER TABLE %s REMOVE PARTITIONING"},
	} {
		t.Run(name, func(t *testing.T) {
			db := partitioned(t)
			past := hoursBefore(t, db, nowMs(t, db), 1)
			row(t, db, 0, past[0]-1)
			want := fmt.Sprintf("ratelimit_kept_%d_h%d", nowMs(t, db)+dayMs, past[0])
			for _, statement := range done {
				exec(t, db, fmt.Sprintf(statement, want))
			}
			if got := keep(t, db, past[0], dayMs); got != want {
				t.Errorf("kept in %q, want %q", got, want)
			}
			row(t, db, 0, past[0]-2) // comes late
			if got := keep(t, db, past[0], dayMs); got != want {
				t.Errorf("kept in %q, want %q", got, want)
			}
			wantRows(t, db, want, 1)
			wantRows(t, db, fmt.Sprintf("ratelimit_window_counts PARTITION (h%d)", past[0]), 1)
		})
	}
}

// Rows that have not expired are never moved, whatever the cutoff and the bounds; nothing is kept for more than 7 days.
func TestKeepRefusesWhatHasNotExpired(t *testing.T) {
	servers.EachSQL(t, testKeepRefusesWhatHasNotExpired)
}

func testKeepRefusesWhatHasNotExpired(t *testing.T) {
	db := partitioned(t)
	addPartitions(t, db, 0)
	now := nowMs(t, db)
	row(t, db, 0, now+hourMs)
	if kept := keep(t, db, 1<<62, dayMs); kept != "" {
		t.Errorf("a live hour is kept in %q", kept)
	}
	exec(t, db, "ALTER TABLE ratelimit_window_counts PARTITION BY RANGE COLUMNS (expiry_class, expires_at) ("+
		"PARTITION d1 VALUES LESS THAN (1, 1), PARTITION later VALUES LESS THAN (MAXVALUE, MAXVALUE))")
	_, err := db.ExecContext(t.Context(), "CALL ratelimit_keep_expired_partition(?, 1)", now)
	if err == nil || !strings.Contains(err.Error(), "have not expired") {
		t.Errorf("a live row's partition: %v", err)
	}
	exec(t, db, "UPDATE ratelimit_window_counts SET expires_at = 1")
	kept := keep(t, db, now, 1<<62)
	var until int64
	if _, err := fmt.Sscanf(kept, "ratelimit_kept_%d_d1", &until); err != nil || until > nowMs(t, db)+7*dayMs || until < now+7*dayMs {
		t.Errorf("kept in %q, %v; want 7 days from %d", kept, err, now)
	}
}

func keep(t *testing.T, db *sql.DB, cutoff, keepMs int64) string {
	t.Helper()
	var name sql.NullString
	if err := db.QueryRowContext(t.Context(), "CALL ratelimit_keep_expired_partition(?, ?)", cutoff, keepMs).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name.String
}

func dropKept(t *testing.T, db *sql.DB) string {
	t.Helper()
	var name sql.NullString
	if err := db.QueryRowContext(t.Context(), "CALL ratelimit_drop_kept_partition()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name.String
}
