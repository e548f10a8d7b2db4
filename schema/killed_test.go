package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// The server, or the session that alters the table, is killed while a table with rows gets its partitions, and while
// some are dropped, made or kept. Afterwards the table has the form from before or after, with each row that belongs
// there, and the next run goes on. WEIR_SOAK=1 kills both at eight moments of each alteration. Otherwise the server is
// killed at a single moment.
func TestKilledAlterationsSoak(t *testing.T) { servers.EachSQL(t, testKilledAlterationsSoak) }

func testKilledAlterationsSoak(t *testing.T) {
	moments, sessions := []int{2}, os.Getenv("WEIR_SOAK") != ""
	if sessions {
		moments = []int{0, 2, 8, 18, 32, 50, 72, 98}
	}
	server := servers.SQLForTest(t)
	for name, a := range map[string]alteration{
		"the migration": {prepareUnpartitioned, migrateAll, []int{0, 3}, 3},
		"a drop":        {prepareOver, dropAll, []int{6, 5, 4, 3}, 3},
		"an exchange":   {prepareOver, keepFirst, []int{6}, 6},
		"an addition":   {prepareLater, addAll, []int{3, 3 + 54, 3 + 54 + 70}, 3 + 54 + 70},
	} {
		for _, after := range moments {
			t.Run(fmt.Sprintf("%s, the server, after %d", name, after), func(t *testing.T) {
				kill(t, server, a, after, func(*sql.DB, int64) error { return server.Kill() })
			})
			if !sessions {
				continue
			}
			t.Run(fmt.Sprintf("%s, the session, after %d", name, after), func(t *testing.T) {
				kill(t, server, a, after, func(db *sql.DB, id int64) error {
					_, err := db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id))
					return err
				})
			})
		}
	}
}

const (
	noSuchThread = 1094
	killRows     = 6_000 // of each of three kinds
)

// alteration is a statement that alters the table. At any moment the table has one of the given numbers of partitions.
type alteration struct {
	prepare func(*testing.T, *sql.DB)
	run     func(context.Context, *sql.DB) error
	forms   []int // from the first to the last
	last    int
}

var killedDatabases atomic.Int64

func kill(t *testing.T, server *servers.SQL, a alteration, after int, strike func(*sql.DB, int64) error) {
	// It stays until the server ends: a kill in the midst of a drop can leave a file behind, and then MariaDB drops none.
	name := fmt.Sprint("killed", killedDatabases.Add(1))
	server.CreateForTest(t, name)
	dsn := server.DSN(name)
	db := connect(t, dsn)
	a.prepare(t, db)
	victim := connect(t, dsn)
	finished := make(chan error, 1)
	go func() { finished <- a.run(t.Context(), victim) }()
	if err := strike(db, altering(t, db, after, finished)); err != nil && !isNumber(err, noSuchThread) {
		t.Fatal(err)
	}
	err := <-finished
	select {
	case <-server.Exited():
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	default:
	}
	db = connect(t, dsn)
	waitForNoAlteration(t, db)
	t.Logf("%d partitions, %v", a.check(t, db), err)
	if err := a.run(t.Context(), db); err != nil {
		t.Errorf("the next run: %v", err)
	}
	if n := a.check(t, db); n != a.last {
		t.Errorf("after the next run it has %d partitions", n)
	}
}

// altering waits until a session alters the table, looks some times more unless it is over, and names the session.
func altering(t *testing.T, db *sql.DB, after int, finished chan error) (id int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(finished) == 0 && time.Now().Before(deadline); {
		err := db.QueryRowContext(t.Context(), alteringSQL).Scan(&id)
		switch {
		case err == nil && after == 0:
			return id
		case err == nil:
			after--
		case !errors.Is(err, sql.ErrNoRows):
			t.Fatal(err)
		}
	}
	return id
}

const alteringSQL = `SELECT ID FROM information_schema.PROCESSLIST
	WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO REGEXP 'PARTITION|CALL ratelimit' LIMIT 1`

// waitForNoAlteration waits for a session whose client has the error of its kill, but that has not ended yet.
func waitForNoAlteration(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var id int64
		err := db.QueryRowContext(t.Context(), alteringSQL).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("session %d still alters the table: %v", id, err)
		}
	}
}

// check requires a sound table in one of the forms, with all rows but those of dropped partitions.
func (a alteration) check(t *testing.T, db *sql.DB) (parts int) {
	t.Helper()
	var table, op, kind, text string
	err := db.QueryRowContext(t.Context(), "CHECK TABLE ratelimit_window_counts").Scan(&table, &op, &kind, &text)
	if err != nil || text != "OK" {
		t.Errorf("CHECK TABLE: %s %s, %v", kind, text, err)
	}
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(PARTITION_NAME) FROM information_schema.PARTITIONS
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts'`).Scan(&parts); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(a.forms, parts)
	if at < 0 {
		t.Errorf("%d partitions, want one of %v", parts, a.forms)
	}
	rows := 3 * killRows
	if a.forms[0] > a.last {
		rows -= at * killRows // each partition that was dropped had as many
	}
	if kept := keptTable(t, db); kept != "" { // it may have its rows already
		wantRows(t, db, fmt.Sprintf("(SELECT sequence FROM ratelimit_window_counts "+
			"UNION ALL SELECT sequence FROM %s) AS both_tables", kept), rows)
	} else {
		wantRows(t, db, "ratelimit_window_counts", rows)
	}
	wantRows(t, db, "information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE '%#sql%'", 0)
	return parts
}

// prepareUnpartitioned makes the table as it was before partitions, with rows.
func prepareUnpartitioned(t *testing.T, db *sql.DB) {
	t.Helper()
	before := make(fstest.MapFS)
	for _, m := range migrations(t) {
		if path.Base(m.name) < "00018" {
			before[m.name] = &fstest.MapFile{Data: []byte(m.text)}
		}
	}
	if err := apply(t.Context(), db, before, quiet); err != nil {
		t.Fatal(err)
	}
	prepareRows(t, db, []int64{1, 2, 3})
}

func migrateAll(ctx context.Context, db *sql.DB) error { return Migrate(ctx, db, quiet) }

// prepareOver makes partitions of three hours that are over.
func prepareOver(t *testing.T, db *sql.DB) {
	t.Helper()
	migrate(t, db)
	prepareRows(t, db, hoursBefore(t, db, nowMs(t, db), 3))
}

func dropAll(ctx context.Context, db *sql.DB) error {
	for {
		if name, err := dropExpired(ctx, db, uint64(1<<63)); err != nil || name == "" {
			return err
		}
	}
}

func keepFirst(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "CALL ratelimit_keep_expired_partition(?, 86400000)", uint64(1<<63)); err != nil {
		return err
	}
	var left int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM ratelimit_window_counts").Scan(&left)
	if err == nil && left != 2*killRows {
		err = fmt.Errorf("%d rows are left, want %d", left, 2*killRows)
	}
	return err
}

func keptTable(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT COALESCE(MAX(TABLE_NAME), '') FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ratelimit\_kept\_%'`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// prepareLater makes rows of which none has a partition.
func prepareLater(t *testing.T, db *sql.DB) {
	t.Helper()
	migrate(t, db)
	now := nowMs(t, db)
	prepareRows(t, db, []int64{now + hourMs, now + 2*hourMs, now + 3*hourMs})
}

func addAll(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CALL ratelimit_add_partitions(1000000)")
	return err
}

// prepareRows inserts as many that expire before each of the moments.
func prepareRows(t *testing.T, db *sql.DB, before []int64) {
	t.Helper()
	for i, at := range before {
		exec(t, db, `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			SELECT 'acme', ?, LEFT(SHA2(seq, 256), 40), 60000, seq, 'eu', seq, ?, 1 FROM `+servers.Numbers(1, killRows),
			fmt.Sprint("n", i), at-1)
	}
}
