package faults

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// Imports read a replica, which falls behind: they turn to the primary, hear of
// everything in time, and lose no change when they turn back.
func TestSoakReplicaLags(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakReplicaLags)
}

func testSoakReplicaLags(t *testing.T) {
	t.Parallel()
	lagMax, behind := soak(time.Second, 10*time.Second), soak(4*time.Second, 30*time.Second)
	f := newFleet(t, plan{replica: true, counts: mysqlcounts.Options{ReplicaLagMax: lagMax}})
	stopApplying := f.apply(100 * time.Millisecond)
	l := load{perSecond: 300, keys: 200}
	stop := l.start(t, f.regions...)
	stopWatch := f.watch()
	left := func() int64 { return f.metric("weir_mysql_replica_fallbacks_total", "lag") }
	settled := func() bool { // that imports read the replica, and no longer the primary
		before, n := left(), f.metric("weir_global_sync_rows_applied_total")
		pause(t.Context(), time.Second)
		return left() == before && f.metric("weir_global_sync_rows_applied_total") > n
	}
	await.True(t, "the replica is read", settled)
	before := left()
	stopApplying()
	lagging := time.Now()
	pause(t.Context(), behind)
	if left() == before {
		t.Errorf("the replica was read while it was %v behind", behind)
	}
	during := f.recovered(time.Now(), 0)
	t.Logf("while the replica is %v behind, others hear within %v", time.Since(lagging).Round(time.Millisecond), during.heard.Round(time.Millisecond))

	defer f.apply(100 * time.Millisecond)()
	since := time.Now()
	await.True(t, "the replica is read again", settled)
	took := f.recovered(since, 0)
	stop()
	stopWatch()
	f.settle("replica "+behind.String()+" behind", took, allowance{})
}

// apply brings the replica up to date now and then, until stop is called. Heartbeats go
// first: a replica that has one has everything that was committed before it.
func (f *fleet) apply(every time.Duration) (stop func()) {
	name := func(dsn string) string {
		config, err := mysql.ParseDSN(dsn)
		must(f.t, err)
		return "`" + config.DBName + "`."
	}
	from, to := name(f.dsn), name(f.replica)
	db := openDB(f.t, f.dsn)
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, table := range []string{"ratelimit_nodes", "ratelimit_digests", "ratelimit_window_counts"} {
				_, err := db.ExecContext(ctx, "REPLACE INTO "+to+table+" SELECT * FROM "+from+table)
				if err != nil && ctx.Err() == nil && !busy(err) {
					f.t.Errorf("bring the replica up to date: %v", err)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.t.Cleanup(stop)
	return stop
}

// busy: a deadlock with a flush. The next time will do.
func busy(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1213 || strings.Contains(e.Message, "Lock wait"))
}
