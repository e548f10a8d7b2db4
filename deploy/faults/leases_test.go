package faults

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/servers"
)

const (
	churnShort = 20 * time.Second
	churnLong  = time.Hour

	// freeWithin bounds how long the leases of a dead holder stay taken after their time to live.
	freeWithin = time.Second

	// youngFor bounds how long, in addition to a time to live, a Redis that has come back empty may grant nothing. It is
	// the sum of half a second for which every grant lasts longer in Redis than for its holder, a second for which a node
	// does not call a Redis that has failed, and half a second for the calls themselves.
	youngFor = 2 * time.Second
)

var churnKeys = []leaseKey{
	{Name: "one", Limit: 1, TTL: 2 * time.Second, Holders: 1},
	{Name: "three", Limit: 3, TTL: 3 * time.Second, Holders: 2},
	{Name: "twenty", Limit: 20, TTL: 2 * time.Second, Holders: 6},
}

// A key never has more holders than its limit, while everything is killed repeatedly: nodes, processes that embed a
// limiter, holders by ID that call any node, and Redis, which comes back empty. Some processes are stopped for less
// than a time to live. The leases of a dead holder are free within its time to live and a second.
//
// The referee counts a holder from the response that grants its lease until the holder leaves, which is before it
// reports that to a node, or is killed, or its lease has ended by its own clock: by Lease.Err, or a time to live after
// it sent its last successful call.
func TestSoakLeasesUnderChurn(t *testing.T) {
	t.Parallel()
	c := newChurn(t)
	ctx, stop := context.WithTimeout(t.Context(), soak(churnShort, churnLong))
	defer stop()
	var holders sync.WaitGroup
	for i := range churnKeys {
		key := &churnKeys[i]
		for range 1 + key.Limit {
			holders.Go(func() {
				for ctx.Err() == nil {
					c.holdByID(ctx, key)
					pause(ctx, rand.N(100*time.Millisecond))
				}
			})
		}
	}
	for range 2 {
		holders.Go(func() { c.mortals(ctx) })
	}
	holders.Go(func() { c.look(ctx) })
	c.kills(ctx)
	holders.Wait()
	c.probes.Wait()
	c.allIsFree()
	c.report()
}

// look makes the referee check each second, and logs the progress.
func (c *churn) look(ctx context.Context) {
	const seconds = 300
	for i := 1; ctx.Err() == nil; i++ {
		pause(ctx, time.Second)
		for _, over := range c.referee.check(time.Now()) {
			c.t.Error(over)
		}
		if i%seconds == 0 {
			c.t.Logf("after %d s: %s", i, c.referee.figures())
		}
	}
}

// churn is a region: a Redis, nodes as programs, and holders.
type churn struct {
	t         *testing.T
	redis     *servers.Redis
	nodes     []*program
	processes []*holdersProcess
	started   int // processes, ever
	referee   *referee
	machine   *lateness
	probes    sync.WaitGroup
	keys      atomic.Int64 // number of single-use keys that were made

	mu   sync.Mutex
	away time.Time // when Redis was killed last
	back time.Time // when it answered again, zero while it does not

	// times until the leases of the dead were free, in addition to their time to live; worstBack: with an outage of Redis
	worst, worstBack time.Duration
	exact, spoilt    int // how often
}

func newChurn(t *testing.T) *churn {
	c := &churn{t: t, redis: servers.RedisForTest(t), referee: newReferee(), back: time.Now()}
	c.nodes = startPrograms(t, c.redis, "", "eu-1", "eu-2", "eu-3")
	c.machine = watchMachine(t, c.redis, c.nodes)
	for _, key := range churnKeys {
		c.referee.watch(key)
	}
	for range 3 {
		c.addProcess()
	}
	t.Cleanup(func() {
		for _, p := range c.processes {
			if _, err := p.kill(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

func (c *churn) addProcess() {
	c.t.Helper()
	c.started++
	h := &holders{Name: fmt.Sprintf("process-%d", c.started), Redis: c.redis.Addr(), Keys: churnKeys}
	h.Own = leaseKey{Name: "of-" + h.Name, Limit: 2, TTL: 2 * time.Second}
	c.referee.watch(h.Own)
	c.processes = append(c.processes, startHolders(c.t, h, c.referee))
}

// lease is a lease by ID, from its holder's view.
type lease struct {
	key   *leaseKey
	token string
	until time.Time // its end, by the holder's clock
	stay  *stay

	unrenewed bool // it is held until its end, without a renewal
}

// acquire requests a lease from any node, and repeats a failed call with the same ID. It returns nil if the lease was
// denied, or granted too late.
func (c *churn) acquire(ctx context.Context, key *leaseKey, id string, wait time.Duration) *lease {
	for range 3 {
		within, cancel := context.WithTimeout(ctx, 3*time.Second)
		sent := time.Now()
		answer, err := anyOf(c.nodes).Acquire(within, connect.NewRequest(&weirv1.AcquireRequest{Workspace: "acme",
			Namespace: "leases", Identifier: key.Name, Limit: int64(key.Limit), TtlMs: key.TTL.Milliseconds(),
			WaitMs: wait.Milliseconds(), Id: id, Holder: "by id"}))
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			c.referee.count("calls that failed")
			continue
		}
		if !answer.Msg.Allowed {
			return nil
		}
		l := &lease{key: key, token: answer.Msg.Lease,
			until: sent.Add(time.Duration(answer.Msg.TtlMs) * time.Millisecond)}
		if now := time.Now(); now.Before(l.until) {
			l.stay = c.referee.enters(key.Name, "id "+id, now.UnixNano())
			return l
		}
		c.release(l)
		return nil
	}
	return nil
}

// confirm reports to the referee how long the lease has been held. It returns false if the lease has ended.
func (c *churn) confirm(l *lease) bool {
	now := time.Now()
	if now.After(l.until) {
		c.referee.held(l.stay, l.until.UnixNano())
		return false
	}
	c.referee.held(l.stay, now.UnixNano())
	return true
}

// renew renews the lease at any node. It returns false if the lease has ended.
func (c *churn) renew(ctx context.Context, l *lease) bool {
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	sent := time.Now()
	answer, err := anyOf(c.nodes).Renew(within, connect.NewRequest(&weirv1.RenewRequest{Leases: []string{l.token}}))
	if !c.confirm(l) {
		c.referee.count("leases by id that ended in an outage")
		return false
	}
	switch {
	case err != nil || answer.Msg.States[0] == weirv1.LeaseState_LEASE_STATE_UNKNOWN:
		c.referee.count("renewals without an answer")
	case answer.Msg.States[0] == weirv1.LeaseState_LEASE_STATE_HELD:
		c.referee.count("renewals")
		if until := sent.Add(l.key.TTL); until.After(l.until) {
			l.until = until
		}
	default:
		c.referee.count("leases by id that were ended before their time")
		return false
	}
	return true
}

func (c *churn) release(l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = anyOf(c.nodes).Release(ctx, connect.NewRequest(&weirv1.ReleaseRequest{Leases: []string{l.token}}))
}

// keep holds a lease for some time, and renews it. It returns false if it is over before.
func (c *churn) keep(ctx context.Context, l *lease, staying time.Duration) bool {
	leave := time.Now().Add(staying)
	renewed := time.Now()
	for ctx.Err() == nil && time.Until(leave) > 0 {
		pause(ctx, min(time.Until(leave), 50*time.Millisecond))
		if !c.confirm(l) {
			return false
		}
		if !l.unrenewed && time.Since(renewed) >= l.key.TTL/3 {
			if renewed = time.Now(); !c.renew(ctx, l) {
				return false
			}
		}
	}
	return c.confirm(l)
}

// holdByID is the life of a holder: most holders release in the end, some stay until their lease ends, and some are
// killed, possibly during a call.
func (c *churn) holdByID(ctx context.Context, key *leaseKey) {
	asking, cancel := ctx, func() {}
	if rand.N(30) == 0 {
		asking, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
	}
	l := c.acquire(asking, key, cryptorand.Text(), time.Duration(rand.N(2))*rand.N(500*time.Millisecond))
	cancel()
	switch {
	case asking.Err() != nil && l == nil:
		c.referee.count("holders by id that were killed while they asked")
		return
	case l == nil:
		c.referee.count("refusals to holders by id")
		return
	}
	c.referee.count("grants to holders by id")
	staying := randomStay(key.TTL)
	if rand.N(4) == 0 {
		staying, l.unrenewed = 2*key.TTL, true
	}
	switch {
	case !c.keep(ctx, l, staying):
	case rand.N(10) == 0:
		c.referee.count("holders by id that were killed")
		return
	}
	c.release(l)
}

// oneUse returns a key that no other test uses.
func (c *churn) oneUse(limit int) *leaseKey {
	key := &leaseKey{Name: fmt.Sprintf("use-%d", c.keys.Add(1)), Limit: limit, TTL: 2 * time.Second}
	c.referee.watch(*key)
	return key
}

// mortals are holders by id of a key each, that are killed: how soon it is free again is measured.
func (c *churn) mortals(ctx context.Context) {
	for ctx.Err() == nil {
		key := c.oneUse(1)
		if l := c.acquire(ctx, key, cryptorand.Text(), 0); l != nil && c.keep(ctx, l, rand.N(2*key.TTL)) {
			c.free("holder by id", key, time.Now())
		}
	}
}

// free waits, concurrently to other work, until all leases of a key whose holders died at a moment can be acquired.
func (c *churn) free(what string, key *leaseKey, since time.Time) {
	c.probes.Go(func() {
		var got []*lease
		for deadline := since.Add(await.Patience); len(got) < key.Limit; {
			if time.Now().After(deadline) {
				c.t.Errorf("%s: %d of %d leases were not to be had again within %v", key.Name, key.Limit-len(got), key.Limit,
					await.Patience)
				break
			}
			l := c.acquire(context.Background(), key, cryptorand.Text(), 0)
			if l != nil {
				got = append(got, l)
			} else {
				pause(context.Background(), 20*time.Millisecond)
			}
			if len(got) > 0 && !c.confirm(got[0]) {
				got = got[1:] // Redis was away meanwhile
			}
		}
		c.took(what, key, since, time.Since(since))
		for _, l := range got {
			c.confirm(l)
			c.release(l)
		}
	})
}

// took judges how long it took until a key was free again.
func (c *churn) took(what string, key *leaseKey, since time.Time, took time.Duration) {
	late := c.machine.since(since)
	c.mu.Lock()
	defer c.mu.Unlock()
	bound, worst := key.TTL+freeWithin, &c.worst
	if c.back.IsZero() || since.Before(c.back.Add(key.TTL+youngFor)) || since.Before(c.away) {
		c.spoilt++ // Redis was away: the time since its return counts
		if c.back.IsZero() {
			return
		}
		took = min(took, took-c.back.Sub(since))
		bound, worst = key.TTL+youngFor, &c.worstBack
	} else {
		c.exact++
	}
	*worst = max(*worst, took-key.TTL)
	if took > bound+late {
		c.t.Errorf("%s was killed: %s was free after %v, not within %v and the machine's %v", what, key.Name, took, bound, late)
	}
}

// kills kills, and stops, until ctx ends.
func (c *churn) kills(ctx context.Context) {
	acts := []func(context.Context){c.killProcess, c.freezeProcess, c.killNode, c.killProcess, c.killRedis, c.freezeProcess,
		c.killNode, c.freezeProcess, c.killProcess, c.killNode, c.freezeProcess, c.killProcess}
	for i := 0; ctx.Err() == nil; i++ {
		pause(ctx, rand.N(600*time.Millisecond))
		acts[i%len(acts)](ctx)
	}
}

func (c *churn) killProcess(context.Context) {
	i := rand.N(len(c.processes))
	p := c.processes[i]
	c.processes = append(c.processes[:i], c.processes[i+1:]...)
	at, err := p.kill()
	if err != nil {
		c.t.Error(err)
	}
	c.referee.count("kills of processes")
	if p.owns.Load() == int64(p.own.Limit) {
		c.referee.count("kills of processes that had all of a key")
	}
	c.free("a process", &p.own, at)
	c.addProcess()
}

// freezeProcess stops a process for less than a time to live.
func (c *churn) freezeProcess(ctx context.Context) {
	p := c.processes[rand.N(len(c.processes))]
	must(c.t, p.freeze())
	pause(ctx, 200*time.Millisecond+rand.N(1700*time.Millisecond))
	must(c.t, p.thaw())
	c.referee.count("processes stopped for a while")
}

// killNode kills a node during a request for a lease. The requester dies too, or requests the lease from another node.
func (c *churn) killNode(ctx context.Context) {
	n := c.nodes[rand.N(len(c.nodes))]
	key := c.oneUse(1)
	asked := make(chan struct{})
	id := cryptorand.Text()
	go func() {
		defer close(asked)
		within, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, _ = n.Acquire(within, connect.NewRequest(&weirv1.AcquireRequest{Workspace: "acme", Namespace: "leases",
			Identifier: key.Name, Limit: 1, TtlMs: key.TTL.Milliseconds(), Id: id}))
	}()
	pause(ctx, rand.N(4*time.Millisecond))
	n.down.Store(true)
	at := time.Now()
	must(c.t, n.Kill())
	<-asked
	c.referee.count("kills of nodes")
	c.free("a node", key, at)
	pause(ctx, rand.N(500*time.Millisecond))
	within, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(c.t, n.Restart(within))
	n.down.Store(false)
}

// killRedis kills Redis for a moment, or now and then for longer than leases last without it.
func (c *churn) killRedis(ctx context.Context) {
	c.mu.Lock()
	c.away, c.back = time.Now(), time.Time{}
	c.mu.Unlock()
	must(c.t, c.redis.Kill())
	pause(ctx, []time.Duration{0, rand.N(time.Second), rand.N(time.Second), 2*time.Second + rand.N(2*time.Second)}[rand.N(4)])
	within, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(c.t, c.redis.Restart(within))
	back := time.Now()
	c.mu.Lock()
	c.back = back
	c.mu.Unlock()
	c.referee.count("kills of Redis")
	c.free("Redis", c.oneUse(1), back)
	c.free("Redis", c.oneUse(3), back)
}

// allIsFree kills all processes, and takes all leases that there are, of all keys.
func (c *churn) allIsFree() {
	c.t.Helper()
	at := time.Now()
	for _, p := range c.processes {
		if _, err := p.kill(); err != nil {
			c.t.Error(err)
		}
	}
	c.processes = nil
	for i := range churnKeys {
		c.free("all", &churnKeys[i], at)
	}
	c.probes.Wait()
	for _, over := range c.referee.check(time.Now()) {
		c.t.Error(over)
	}
}

func (c *churn) report() {
	t := c.t
	t.Helper()
	for _, key := range churnKeys {
		t.Logf("MEASURED | %s | at most %d of %d", key.Name, c.referee.mostOf(key.Name), key.Limit)
		if c.referee.mostOf(key.Name) < key.Limit {
			t.Errorf("no more than %d of %d leases of %s were held", c.referee.mostOf(key.Name), key.Limit, key.Name)
		}
	}
	t.Logf("MEASURED | %s", c.referee.figures())
	t.Logf("MEASURED | free again after a kill: a time to live and %v at worst (%d kills); where Redis came back empty: "+
		"a time to live and %v (%d)", c.worst.Round(time.Millisecond), c.exact, c.worstBack.Round(time.Millisecond), c.spoilt)
	t.Logf("MEASURED | the machine was %v late at worst", c.machine.atWorst().Round(time.Millisecond))
	if n := c.referee.counted("leases by id that were ended before their time"); n > 0 {
		t.Errorf("%d leases by id were ended before their time", n)
	}
	for what, least := range map[string]int{"grants to processes": 30, "grants to holders by id": 30,
		"refusals to processes": 10, "refusals to holders by id": 10, "kills of processes": 3, "kills of nodes": 2,
		"kills of Redis": 1, "holders by id that were killed": 1, "processes stopped for a while": 2} {
		if n := c.referee.counted(what); n < least {
			t.Errorf("%d %s, want %d at least", n, what, least)
		}
	}
}
