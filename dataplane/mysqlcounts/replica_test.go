package mysqlcounts

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// replicated is a primary and a real replica, which applies what the primary has when it is told to, and not before. A
// user that may read and do nothing else reads it.
type replicated struct {
	t       *testing.T
	dsn     string // the primary's
	replica *servers.Replica
	*Counts
	f *follower
}

func replicate(t *testing.T, lagMax time.Duration) *replicated {
	t.Helper()
	r := &replicated{t: t, replica: servers.SharedReplica(t)}
	r.dsn = r.replica.Primary.DatabaseForTest(t)
	migrate(t, r.dsn)
	r.await(r.replica.CatchUp)
	r.await(r.replica.Hold)
	t.Cleanup(func() {
		if err := r.replica.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.Counts = New(open(t, r.dsn), Options{Replica: open(t, r.readerDSN()), ReplicaLagMax: lagMax, Overlap: shortOverlap})
	r.f = &follower{c: r.Counts, seen: make(map[window.Cell]int64)}
	return r
}

// readerDSN is the replica's for a user who may only read. It is made there: the replica is held.
func (r *replicated) readerDSN() string {
	r.t.Helper()
	dsn, err := r.replica.Of(r.dsn)
	if err != nil {
		r.t.Fatal(err)
	}
	root := openPlain(r.t, dsn)
	exec(r.t, root, "CREATE USER IF NOT EXISTS reader IDENTIFIED BY ''")
	exec(r.t, root, "GRANT SELECT ON `"+one[string](r.t, root, "SELECT DATABASE()")+"`.* TO reader")
	return strings.Replace(dsn, "root@", "reader@", 1)
}

func (r *replicated) await(step func(context.Context) error) {
	r.t.Helper()
	if err := step(within(r.t, time.Minute)); err != nil {
		r.t.Fatal(err)
	}
}

// apply lets the replica apply all that the primary has.
func (r *replicated) apply() {
	r.t.Helper()
	r.await(r.replica.Release)
	r.await(r.replica.CatchUp)
	r.await(r.replica.Hold)
}

func (r *replicated) beat() {
	r.t.Helper()
	if err := r.Heartbeat(r.t.Context(), heartbeat.Beat{NodeID: "n", Region: "eu"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replicated) left(why string) float64 {
	return testutil.ToFloat64(r.totals.replicaLeft.WithLabelValues(why))
}

// "Being behind delays what it tells of and never loses it": the replica applies changes
// in its own time, imports come in between, and the cursor waits for what is not there.
func TestReplicaThatLagsLosesNothing(t *testing.T) {
	servers.EachSQL(t, testReplicaThatLagsLosesNothing)
}

func testReplicaThatLagsLosesNothing(t *testing.T) {
	r := replicate(t, time.Hour)
	x, y := cell("x"), cell("y")
	publish(t, r.Counts, "us", countsOf(1, x)...)
	r.apply()
	r.f.pull(t)
	for count := int64(2); count < 5; count++ {
		publish(t, r.Counts, "us", countsOf(count, x)...)
		published := aMomentAgo(t, r.Counts)
		await.True(t, "the overlap is over", func() bool {
			r.f.pull(t)
			return aMomentAgo(t, r.Counts) > published+store.Cursor(2*shortOverlap.Milliseconds())
		})
		if r.f.seen[x] != count-1 {
			t.Fatalf("x is %d before the replica has it", r.f.seen[x])
		}
		r.apply()
		publish(t, r.Counts, "us", countsOf(count, y)...)
		r.f.pull(t)
		if r.f.seen[x] != count {
			t.Errorf("x is %d, want %d: what came late was overlooked", r.f.seen[x], count)
		}
	}
	r.apply()
	if r.f.pull(t); r.f.seen[y] != 4 {
		t.Errorf("y is %d", r.f.seen[y])
	}
	if r.left("lag") != 0 || r.left("error") != 0 {
		t.Error("the primary was read")
	}
}

// The same with several writers at once, whose commits the replica applies in parallel, and an import at any moment:
// the cursor relies on commits being applied in the primary's order.
func TestReplicaUnderWritersLosesNothing(t *testing.T) {
	servers.EachSQL(t, testReplicaUnderWritersLosesNothing)
}

func testReplicaUnderWritersLosesNothing(t *testing.T) {
	const writers, rounds = 4, 40
	r := replicate(t, time.Hour)
	regions := []string{"us", "ap", "sa", "af"}
	publish(t, r.Counts, "us", countsOf(1, cells(writers)...)...) // as of when the cursor is known
	r.apply()
	r.f.pull(t)
	full := func() (n float64) {
		for _, cause := range []string{"asked", "pause", "clock"} {
			n += testutil.ToFloat64(r.totals.fullImports.WithLabelValues(cause))
		}
		return n
	}
	before := full()
	r.await(r.replica.Release)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for count := int64(2); count <= rounds; count++ {
				err := r.Publish(t.Context(), regions[w], countsOf(count, cells(writers)[w]))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	for pulls := 0; !isClosed(done); pulls++ {
		r.f.pull(t)
		if pulls%20 == 10 { // it lags now and then
			r.await(r.replica.Hold)
			r.f.pull(t)
			r.await(r.replica.Release)
		}
	}
	r.await(r.replica.CatchUp)
	r.f.pull(t)
	for w, c := range cells(writers) {
		want := int64(rounds)
		if regions[w] != "us" {
			want++ // us has published 1 of each
		}
		if got := r.f.seen[c]; got != want {
			t.Errorf("%s is %d, want %d", c.Key.Identifier, got, want)
		}
	}
	if full() != before {
		t.Error("a full import hid what may have been overlooked")
	}
	r.await(r.replica.Hold)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// "One that is too far behind is left alone", and taken again once it has caught up. A
// cursor of the one is good for the other.
func TestReplicaTooFarBehindIsLeft(t *testing.T) { servers.EachSQL(t, testReplicaTooFarBehindIsLeft) }

func testReplicaTooFarBehindIsLeft(t *testing.T) {
	const lagMax = 3 * time.Second
	r := replicate(t, lagMax)
	x := cell("x")
	publish(t, r.Counts, "us", countsOf(1, x)...)
	if r.f.pull(t); r.f.seen[x] != 1 || r.left("lag") != 1 {
		t.Errorf("of a replica that has nothing: x is %d, left %v times", r.f.seen[x], r.left("lag"))
	}
	if lag := testutil.ToFloat64(r.totals.replicaLag); lag < lagMax.Seconds() {
		t.Errorf("the lag is %v s", lag)
	}
	await.True(t, "the replica is taken again", func() bool {
		r.beat()
		r.apply()
		before := r.left("lag")
		r.f.pull(t)
		return r.left("lag") == before
	})
	if lag := testutil.ToFloat64(r.totals.replicaLag); lag > lagMax.Seconds() {
		t.Errorf("the lag is %v s", lag)
	}
	publish(t, r.Counts, "us", countsOf(2, x)...)
	await.True(t, "it is left again", func() bool {
		before := r.left("lag")
		r.f.pull(t)
		return r.left("lag") > before
	})
	if r.f.seen[x] != 2 {
		t.Errorf("x is %d", r.f.seen[x])
	}
}

// A fleet without traffic has its heartbeats, and does not read its last rows for ever.
func TestReplicaPositionMovesWithHeartbeats(t *testing.T) {
	servers.EachSQL(t, testReplicaPositionMovesWithHeartbeats)
}

func testReplicaPositionMovesWithHeartbeats(t *testing.T) {
	r := replicate(t, time.Hour)
	publish(t, r.Counts, "us", countsOf(1, cell("x"))...)
	r.apply()
	r.f.pull(t)
	before := r.f.cursor
	await.True(t, "the cursor has moved on", func() bool {
		r.beat()
		r.apply()
		r.f.pull(t)
		return r.f.cursor > before+store.Cursor(2*shortOverlap.Milliseconds())
	})
	if n := importAfter(t, r.Counts, "eu", r.f.cursor); n != 0 {
		t.Errorf("%d cells are told again", n)
	}
	// A stamp from the future says nothing.
	there, err := r.replica.Of(r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, openPlain(t, there), "UPDATE ratelimit_window_counts SET updated_at = updated_at + 3600000")
	r.f.pull(t)
	if now := aMomentAgo(t, r.Counts); r.f.cursor > now {
		t.Errorf("the cursor is %d ms ahead of the primary", r.f.cursor-now)
	}
}

// Either of the two may be gone.
func TestReplicaOrPrimaryIsGone(t *testing.T) { servers.EachSQL(t, testReplicaOrPrimaryIsGone) }

func testReplicaOrPrimaryIsGone(t *testing.T) {
	r := replicate(t, time.Hour)
	toPrimary, toReplica := servers.ProxyForTest(t, r.replica.Primary.Addr()), servers.ProxyForTest(t, r.replica.Addr())
	c := New(open(t, through(t, r.dsn, toPrimary)), Options{Replica: open(t, through(t, r.readerDSN(), toReplica)), ReplicaLagMax: time.Hour})
	publish(t, c, "us", countsOf(3, cell("x"))...)
	if err := c.PublishDigest(t.Context(), "us", store.Digest{Node: "n", ExpiresAtMs: began.Add(time.Hour).UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	r.apply()
	wantBoth := func(what string) {
		t.Helper()
		ctx := within(t, 10*time.Second)
		cells, digests := 0, 0
		if _, err := c.Import(ctx, "eu", began.UnixMilli(), 0, func(store.Imported) { cells++ }); err != nil || cells != 1 {
			t.Errorf("%s: %d cells, %v", what, cells, err)
		}
		if _, err := c.Digests(ctx, "eu", began.UnixMilli(), 0, func(store.Digest) { digests++ }); err != nil || digests != 1 {
			t.Errorf("%s: %d digests, %v", what, digests, err)
		}
	}
	wantBoth("both there")
	toReplica.Cut()
	wantBoth("without the replica")
	if n := testutil.ToFloat64(c.totals.replicaLeft.WithLabelValues("error")); n != 2 {
		t.Errorf("%v reads went to the primary, want 2", n)
	}
	if err := toReplica.Heal(); err != nil {
		t.Fatal(err)
	}
	toPrimary.Cut()
	wantBoth("without the primary")
	toReplica.Cut()
	_, err := c.Import(within(t, 10*time.Second), "eu", 0, 0, func(store.Imported) {})
	wantTransient(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Import(ctx, "eu", 0, 0, func(store.Imported) {}); err == nil {
		t.Error("no error with a cancelled ctx")
	}
}
