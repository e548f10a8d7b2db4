package mysqlcounts

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Conformance 37: "Two nodes flushing the same cells in opposite map order never
// deadlock (prove with two writers, 10,000 rows, 60 s)". A minute with WEIR_SOAK=1, two
// seconds otherwise. Half of the time the rows are new, half of the time they grow.
func TestSoakSortedWritersNeverDeadlock(t *testing.T) {
	servers.EachSQL(t, testSoakSortedWritersNeverDeadlock)
}

func testSoakSortedWritersNeverDeadlock(t *testing.T) {
	lasts := 2 * time.Second
	if os.Getenv("WEIR_SOAK") != "" {
		lasts = time.Minute
	}
	dsn := migrated(t)
	ctx := within(t, lasts)
	var statements atomic.Int64
	var wg sync.WaitGroup
	nodes := []*Counts{New(open(t, dsn), Options{}), New(open(t, dsn), Options{})}
	for i, c := range nodes {
		wg.Go(func() {
			all := cells(10_000)
			for round := int64(1); ctx.Err() == nil; round++ {
				order := slices.Clone(all)
				if i == 1 {
					slices.Reverse(order)
				}
				for j := range order {
					order[j].Sequence += round / 2
				}
				for chunk := range slices.Chunk(order, store.PublishRowsMax) {
					counts := countsOf(round, chunk...) // sorted, as relays sort them
					if err := c.Publish(ctx, "eu", counts); err != nil && ctx.Err() == nil {
						t.Errorf("node %d: %v", i, err)
					}
					statements.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i, c := range nodes {
		for _, cause := range []string{"deadlock", "lock_wait"} {
			if n := testutil.ToFloat64(c.totals.sentAgain.WithLabelValues(cause)); n != 0 {
				t.Errorf("node %d: %v statements were sent again: %s", i, n, cause)
			}
		}
	}
	if n := statements.Load(); n < 40 {
		t.Errorf("only %d statements", n)
	}
	t.Logf("%d statements of %d rows", statements.Load(), store.PublishRowsMax)
}

// Without the order, writers do deadlock. The retry makes sure that nothing is lost.
func TestUnsortedWritersDeadlockAndHeal(t *testing.T) {
	servers.EachSQL(t, testUnsortedWritersDeadlockAndHeal)
}

func testUnsortedWritersDeadlockAndHeal(t *testing.T) {
	dsn := migrated(t)
	impatient := New(open(t, dsn), Options{AttemptsMax: 1})
	if err := collide(within(t, time.Minute), impatient, impatient, func(failed error) bool { return failed != nil }); lostTo(err) != "deadlock" {
		t.Fatalf("no deadlock among unsorted writers: %v", err)
	} else {
		wantTransient(t, err)
	}

	patient := New(open(t, dsn), Options{AttemptsMax: 50})
	deadlocks := func() float64 { return testutil.ToFloat64(patient.totals.sentAgain.WithLabelValues("deadlock")) }
	err := collide(within(t, time.Minute), patient, patient, func(failed error) bool { return failed != nil || deadlocks() >= 3 })
	if err != nil {
		t.Error(err)
	}
	if deadlocks() < 3 {
		t.Errorf("%v deadlocks were met", deadlocks())
	}
	got := imported(t, patient, "eu")
	want := got[cells(1)[0]].Own
	for _, x := range cells(store.PublishRowsMax) {
		if got[x].Own != want || want == 0 {
			t.Fatalf("%v has %d, the first one %d", x, got[x].Own, want)
		}
	}
}

// collide makes two writers upsert the same rows in opposite order, until enough returns true after a round, or ctx
// ends.
func collide(ctx context.Context, a, b *Counts, enough func(failed error) bool) error {
	up := cells(store.PublishRowsMax)
	down := slices.Clone(up)
	slices.Reverse(down)
	unsorted := func(count int64, cells []window.Cell) []store.Count {
		var counts []store.Count
		for _, c := range cells {
			counts = append(counts, store.Count{Cell: c, Count: count})
		}
		return counts
	}
	for round := int64(1); ; round++ {
		var wg sync.WaitGroup
		var errs [2]error
		wg.Go(func() { errs[0] = a.upsert(ctx, "eu", unsorted(round, up)) })
		wg.Go(func() { errs[1] = b.upsert(ctx, "eu", unsorted(round, down)) })
		wg.Wait()
		if failed := errors.Join(errs[:]...); enough(failed) || ctx.Err() != nil {
			return failed
		}
	}
}

// A publish waits for a row that another session has locked, and then returns a transient error.
func TestLockWaitIsTransient(t *testing.T) { servers.EachSQL(t, testLockWaitIsTransient) }

func testLockWaitIsTransient(t *testing.T) {
	dsn := migrated(t)
	db := open(t, dsn)
	c := New(db, Options{AttemptsMax: 2})
	publish(t, c, "eu", countsOf(1, cell("x"))...)
	holder := openPlain(t, dsn)
	tx, err := holder.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(t.Context(), "UPDATE ratelimit_window_counts SET count = 2"); err != nil {
		t.Fatal(err)
	}
	err = c.Publish(t.Context(), "eu", countsOf(3, cell("x")))
	wantTransient(t, err)
	if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != lockWaitTimeout {
		t.Errorf("%v", err)
	}
	if n := testutil.ToFloat64(c.totals.sentAgain.WithLabelValues("lock_wait")); n != 1 {
		t.Errorf("%v statements were sent again, want 1", n)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "eu", countsOf(3, cell("x"))...)
	wantOwn(t, c, 3)
}
