package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// Redis applies a chunk and its reply is lost: the node sends the chunk again, and Redis applies it once.
func TestSoakLostReplies(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakLostReplies)
}

func testSoakLostReplies(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	l := load{perSecond: 300, keys: 100}
	stop := l.start(t, f.regions...)
	stopWatch := f.watch()
	eu := f.region("eu")
	for range soak(2, 20) {
		pause(t.Context(), 500*time.Millisecond)
		before := eu.metric("weir_origin_errors_total", "send")
		eu.toRedis(func(p *servers.Proxy) { p.DropReplies(true) })
		await.True(t, "a reply was lost", func() bool { return eu.metric("weir_origin_errors_total", "send") > before })
		f.heal()
	}
	took := f.recovered(f.heal(), 0)
	stop()
	stopWatch()
	f.settle("lost replies", took, allowance{})
}

// victims are keys at their limit before a fault, whose callers never give up.
var victims = load{perSecond: 100, keys: 20, prefix: "victim", limit: 40, shared: true}

// exhaust uses up the limits of the victims, until every node of the fleet denies them.
func (f *fleet) exhaust() {
	f.t.Helper()
	await.True(f.t, "every node denies the victims", func() bool {
		denied := true
		for _, r := range f.regions {
			for _, n := range r.nodes {
				for i := range victims.keys {
					denied = !r.ask(n, victims.key(i), victims.limit).Allowed && denied
				}
			}
		}
		return denied
	})
}

// granted returns the cost that was granted to the victims so far.
func (f *fleet) granted() (n int64) {
	for _, r := range f.regions {
		for i := range victims.keys {
			n += r.ledger.of(victims.key(i))
		}
	}
	return n
}

// Redis is killed and comes back empty, at 600 requests per second. The region's two nodes restore its counts exactly,
// and a key at its limit stays denied, on the nodes that had counted it and on a node that starts afterwards.
func TestSoakRedisLosesItsData(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakRedisLosesItsData)
}

func testSoakRedisLosesItsData(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	f.exhaust()
	before := f.granted()
	l := load{perSecond: 300, keys: 100}
	stop, stopVictims := l.start(t, f.regions...), victims.start(t, f.regions...)
	eu := f.region("eu")
	stopWatch := f.watch()
	var since time.Time
	for range soak(1, 10) {
		pause(t.Context(), time.Second)
		must(t, eu.redis.Kill())
		pause(t.Context(), time.Second)
		must(t, eu.redis.Restart(t.Context()))
		since = time.Now()
	}
	took := f.recovered(since, 0)
	stop()
	stopVictims()
	stopWatch()
	if more := f.granted() - before; more != 0 {
		t.Errorf("keys at their limit were given %d more", more)
	}
	f.newcomerDenies(eu)
	f.settle("Redis killed, back empty after 1 s", took, allowance{})
}

// newcomerDenies starts a node without any counts and checks that it denies the keys that its region has used up.
func (f *fleet) newcomerDenies(r *region) {
	f.t.Helper()
	n := r.start()
	for i := range victims.keys {
		var d dataplane.Decision
		await.True(f.t, "Redis answers the new node in time", func() bool { // on a busy machine it may not at first
			d = r.ask(n, victims.key(i), victims.limit)
			return d.Source != dataplane.SourceDegraded
		})
		if d.Allowed {
			f.t.Errorf("a new node of %s gives %s a fresh budget: %+v", r.name, victims.key(i), d)
		}
	}
}

// A failover to a replica that lacks the last second's writes: the nodes send them again.
func TestSoakReplicaIsPromotedThatLacksASecond(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakReplicaIsPromotedThatLacksASecond)
}

func testSoakReplicaIsPromotedThatLacksASecond(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	eu := f.region("eu")
	primary := redis.NewClient(&redis.Options{Addr: eu.redis.Addr()})
	t.Cleanup(func() { must(t, primary.Close()) })
	must(t, primary.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err()) // it would wait for more replicas
	host, port, _ := strings.Cut(eu.redis.Addr(), ":")
	replica := servers.RedisForTest(t, "--replicaof", host, port)
	admin := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	t.Cleanup(func() { must(t, admin.Close()) })
	await.True(t, "the replica follows", func() bool {
		return strings.Contains(admin.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})

	f.exhaust()
	before := f.granted()
	l := load{perSecond: 300, keys: 100}
	stop, stopVictims := l.start(t, f.regions...), victims.start(t, f.regions...)
	pause(t.Context(), time.Second)
	must(t, admin.ReplicaOf(t.Context(), "NO", "ONE").Err()) // from here on it misses writes
	pause(t.Context(), time.Second)
	must(t, eu.redis.Kill())
	pause(t.Context(), 300*time.Millisecond)
	since := eu.failOver(replica)
	took := f.recovered(since, 0)
	stop()
	stopVictims()
	if more := f.granted() - before; more != 0 {
		t.Errorf("keys at their limit were given %d more", more)
	}
	f.settle("Redis failed over, a second lost", took, allowance{})
}

// failOver points the region's nodes at another server.
func (r *region) failOver(to *servers.Redis) time.Time {
	for _, n := range r.nodes {
		n.toRedis = servers.ProxyForTest(r.fleet.t, to.Addr())
		addr := n.toRedis.Addr()
		n.redisAt.Store(&addr)
	}
	r.redis, r.truth = to, originAt(r.fleet.t, to.Addr())
	return time.Now()
}

// Redis is killed at any moment of a replay, again and again, and nothing is lost.
func TestSoakRedisKilledDuringReplay(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakRedisKilledDuringReplay)
}

func testSoakRedisKilledDuringReplay(t *testing.T) {
	t.Parallel()
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	f := newFleet(t, plan{nodes: 1})
	l := load{perSecond: 2000, keys: 600} // hundreds of dirty keys at each tick, all of them after a pause
	stop := l.start(t, f.regions...)
	stopWatch := f.watch()
	rounds := soak(4, 60)
	var since time.Time
	for range rounds {
		pause(t.Context(), time.Duration(300+random.IntN(400))*time.Millisecond)
		must(t, f.region("eu").redis.Kill())
		pause(t.Context(), time.Duration(random.IntN(300))*time.Millisecond)
		must(t, f.region("eu").redis.Restart(t.Context()))
		since = time.Now()
	}
	took := f.recovered(since, 0)
	stop()
	stopWatch()
	f.settle(fmt.Sprintf("Redis killed %d times during replay", rounds), took, allowance{})
}
