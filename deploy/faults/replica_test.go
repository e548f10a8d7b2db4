package faults

import (
	"testing"
	"time"

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
	replica := servers.SharedReplica(t)
	f := newFleet(t, plan{replica: replica, counts: mysqlcounts.Options{ReplicaLagMax: lagMax}})
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
	must(t, replica.Hold(t.Context()))
	lagging := time.Now()
	pause(t.Context(), behind)
	if left() == before {
		t.Errorf("the replica was read while it was %v behind", behind)
	}
	during := f.recovered(time.Now(), 0)
	t.Logf("while the replica is %v behind, others hear within %v", time.Since(lagging).Round(time.Millisecond), during.heard.Round(time.Millisecond))

	must(t, replica.Release(t.Context()))
	since := time.Now()
	await.True(t, "the replica is read again", settled)
	took := f.recovered(since, 0)
	stop()
	stopWatch()
	f.settle("replica "+behind.String()+" behind", took, allowance{})
}
