package mysqlcounts

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// Conformance 39, with a real server: it refuses rows in each way that the tables or an operator's own constraint can
// cause.
func TestServerRefusesRows(t *testing.T) { servers.EachSQL(t, testServerRefusesRows) }

func testServerRefusesRows(t *testing.T) {
	for name, refused := range map[string]struct {
		alter string
		bad   store.Count
	}{
		"too long":       {"MODIFY identifier VARBINARY(20) NOT NULL", store.Count{Cell: cell("longer than twenty bytes"), Count: 1}},
		"out of range":   {"MODIFY count SMALLINT UNSIGNED NOT NULL", store.Count{Cell: cell("m"), Count: 1 << 20}},
		"not in charset": {"MODIFY identifier VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL", store.Count{Cell: cell("m\xff"), Count: 1}},
		"check":          {"ADD CONSTRAINT small CHECK (count < 100)", store.Count{Cell: cell("m"), Count: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			c, db := openCounts(t)
			exec(t, db, "ALTER TABLE "+rowsTable+" "+refused.alter)
			good := countsOf(1, cell("a"), cell("z"))
			err := c.Publish(t.Context(), "eu", []store.Count{good[0], refused.bad, good[1]})
			wantRefused(t, err, "publish 3 counts")
			if _, ok := errors.AsType[*mysql.MySQLError](err); !ok {
				t.Errorf("%v does not carry the server's error", err)
			}
			if n := one[int](t, db, "SELECT COUNT(*) FROM "+rowsTable); n != 0 {
				t.Errorf("%d rows of a refused chunk are stored", n)
			}
			publish(t, c, "eu", good...)
		})
	}
}

// An error that an operator can repair while nodes run is no refusal.
func TestServerTroubleIsTransient(t *testing.T) { servers.EachSQL(t, testServerTroubleIsTransient) }

func testServerTroubleIsTransient(t *testing.T) {
	c, db := openCounts(t)
	x := countsOf(1, cell("x"))
	exec(t, db, "RENAME TABLE ratelimit_window_counts TO away")
	wantTransient(t, c.Publish(t.Context(), "eu", x))
	wantTransient(t, c.Import(t.Context(), 0, func(string, store.Count) {}))
	exec(t, db, "RENAME TABLE away TO ratelimit_window_counts")
	publish(t, c, "eu", x...)

	// A missing partition looks like a row out of range, but an operator can add the partition.
	exec(t, db, fmt.Sprintf("ALTER TABLE "+rowsTable+" PARTITION BY RANGE (sequence) (PARTITION p VALUES LESS THAN (%d))", thisHour+1))
	later := countsOf(1, cell("x"))
	later[0].Cell.Sequence++
	wantTransient(t, c.Publish(t.Context(), "eu", later))
	exec(t, db, "ALTER TABLE "+rowsTable+" ADD PARTITION (PARTITION q VALUES LESS THAN MAXVALUE)")
	publish(t, c, "eu", later...)
}

func TestClassify(t *testing.T) {
	refused := map[uint16]string{
		1048: "23000", 1264: "22003", 1265: "01000", 1292: "22007", 1366: "HY000", 1406: "22001", 1452: "23000",
		1690: "22003", 3140: "22032", 3819: "HY000", 4025: "23000",
	}
	transient := map[uint16]string{
		1020: "HY000", 1021: "HY000", 1040: "08004", 1044: "42000", 1053: "08S01", 1062: "23000", 1114: "HY000", 1142: "42000", 1146: "42S02",
		1205: "HY000", 1213: "40001", 1290: "HY000", 1317: "70100", 1526: "HY000", 1644: "45000", 1836: "HY000", 1969: "70100", 3024: "HY000",
	}
	check := func(numbers map[uint16]string, want bool) {
		for number, state := range numbers {
			e := &mysql.MySQLError{Number: number, Message: "m"}
			copy(e.SQLState[:], state)
			err := classify(fmt.Errorf("wrapped: %w", e))
			if got := errors.Is(err, store.ErrRefused); got != want || !errors.Is(err, e) {
				t.Errorf("%d (%s): refused is %v, want %v", number, state, got, want)
			}
		}
	}
	check(refused, true)
	check(transient, false)
	for _, err := range []error{io.EOF, driver.ErrBadConn, mysql.ErrInvalidConn, context.DeadlineExceeded} {
		if got := classify(err); got != err { //nolint:errorlint // unchanged is what is tested
			t.Errorf("%v becomes %v", err, got)
		}
	}
	if classify(nil) != nil {
		t.Error("nil becomes an error")
	}
}

var errDeadlock = &mysql.MySQLError{Number: deadlock, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock found"}

func TestRetry(t *testing.T) {
	lockWait := &mysql.MySQLError{Number: lockWaitTimeout, Message: "Lock wait timeout exceeded"}
	refused := &mysql.MySQLError{Number: 1406, Message: "Data too long"}
	for _, c := range []struct {
		name    string
		answers []error
		want    error
		tries   int
	}{
		{"success", []error{nil}, nil, 1},
		{"deadlock heals", []error{errDeadlock, errDeadlock, nil}, nil, 3},
		{"lock wait heals", []error{lockWait, nil}, nil, 2},
		{"others are returned at once", []error{io.EOF, nil}, io.EOF, 1},
		{"refusals too", []error{errDeadlock, refused, nil}, refused, 2},
		{"attempts are bounded", []error{errDeadlock, errDeadlock, errDeadlock, errDeadlock, lockWait, nil}, lockWait, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, counted := 0, 0
				r := newRetry(Options{}, func(string) { counted++ })
				err := r.do(t.Context(), func() error {
					tries++
					return c.answers[tries-1]
				})
				if !errors.Is(err, c.want) || tries != c.tries || counted != c.tries-1 {
					t.Errorf("%v after %d tries, %d counted; want %v after %d", err, tries, counted, c.want, c.tries)
				}
			})
		})
	}
}

// "A random time of up to BackoffMin, doubled with each attempt, up to BackoffMax."
func TestBackoff(t *testing.T) {
	r := newRetry(Options{BackoffMin: 8 * time.Millisecond, BackoffMax: 50 * time.Millisecond}, nil)
	for attempt, most := range map[int]time.Duration{1: 8, 2: 16, 3: 32, 4: 50, 5: 50, 40: 50, 1000: 50} {
		var longest, shortest time.Duration = 0, time.Hour
		for range 2000 {
			d := r.backoff(attempt)
			longest, shortest = max(longest, d), min(shortest, d)
		}
		if most *= time.Millisecond; longest > most || longest < most*9/10 || shortest > most/10 || shortest <= 0 {
			t.Errorf("attempt %d: %v to %v, want up to %v", attempt, shortest, longest, most)
		}
	}
}

// "The caller's ctx bounds it as well", during a pause too.
func TestRetryObeysContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := newRetry(Options{AttemptsMax: 1e9, BackoffMin: time.Hour, BackoffMax: time.Hour}, func(string) {})
		start := time.Now()
		err := r.do(ctx, func() error { return errDeadlock })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDeadlock) {
			t.Errorf("%v, want the deadline and what it waited for", err)
		}
		if took := time.Since(start); took > time.Minute+time.Second {
			t.Errorf("took %v", took)
		}
	})
}
