package dataplane_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

const (
	churnNodes   = 3
	churnHolders = 24
	churnLimit   = 6
	churnTTL     = 4 * time.Second
	churnWait    = 2 * time.Second
	churnFree    = time.Second // for which a slot may be free while a request waits
)

// For an hour, leases are acquired, waited for, renewed, released and abandoned, at nodes that crash. At no instant
// are more leases of a key held than its limit allows. While a request waits, a free slot is taken in time:
//
//   - Within a second if it was released or its token has ended.
//   - Within the time to live and a second if its node has crashed.
func TestAnHourOfChurnStaysWithinTheLimit(t *testing.T) {
	lasts := 10 * time.Minute
	if os.Getenv("WEIR_LONG") != "" {
		lasts = time.Hour
	}
	synctest.Test(t, func(t *testing.T) {
		c := &churn{T: t, origin: memstore.NewOrigin(memstore.OriginOptions{}), until: time.Now().Add(lasts),
			held: make(map[*churned]bool), waiting: make(map[*churned]bool)}
		c.origin.Faults.Delay(2 * time.Millisecond)
		for i := range c.nodes {
			c.nodes[i] = c.life()
		}
		time.Sleep(churnTTL + time.Second) // an origin without a history grants nothing at first
		var all sync.WaitGroup
		for i := range churnHolders {
			all.Go(func() { c.hold(rand.New(rand.NewPCG(uint64(i), 9))) })
		}
		all.Go(func() { c.crashes(rand.New(rand.NewPCG(churnHolders, 9))) })
		all.Wait()
		c.whole()
		for _, n := range c.nodes {
			_ = n.Stop(context.Background())
		}
		t.Logf("MEASURED | %d leases, %d crashes and %d tokens that ended in %v: at most %d held, and a slot was free for "+
			"%v at most while somebody waited", c.leases, c.kills, c.ended, lasts, c.most, c.longest)
		if c.most != churnLimit {
			t.Errorf("at most %d leases were held, of %d", c.most, churnLimit)
		}
	})
}

// churn is a key, with all holders of its leases and all waiting requests.
type churn struct {
	*testing.T
	origin *memstore.Origin
	until  time.Time

	mu            sync.Mutex
	nodes         [churnNodes]*churnNode
	held, waiting map[*churned]bool
	free          time.Time // since when a slot is free while a request waits; zero: none is
	taken         time.Time // the end of the last lease that was not released

	leases, kills, ended, most int
	longest                    time.Duration
}

// churnNode is a node until it crashes.
type churnNode struct {
	*dataplane.Limiter
	way  *memstore.Origin
	dead bool
}

// churned is a holder: of a lease in a node's process, or of a token.
type churned struct {
	node  *churnNode
	lease dataplane.Lease
	token string
	until time.Time // of a token
}

func (c *churn) life() *churnNode {
	n := &churnNode{way: c.origin.Client()}
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: n.way, RegionNodes: churnNodes})
	if err == nil {
		err = l.Start(context.Background())
	}
	if err != nil {
		c.Fatal(err)
	}
	n.Limiter = l
	return n
}

// crashes stops nodes without a call to the origin, and starts others in their place.
func (c *churn) crashes(rnd *rand.Rand) {
	var stops sync.WaitGroup
	for time.Now().Before(c.until) {
		time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
		next, at := c.life(), rnd.IntN(churnNodes)
		c.mu.Lock()
		n := c.nodes[at]
		c.nodes[at], n.dead = next, true
		c.kills++
		c.taken = time.Now().Add(churnTTL)
		c.look()
		c.mu.Unlock()
		n.way.Faults.Fail(errors.New("the node is dead"))
		stops.Go(func() { _ = n.Stop(context.Background()) })
	}
	stops.Wait()
}

// anyNode returns a running node.
func (c *churn) anyNode(rnd *rand.Rand) *churnNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[rnd.IntN(churnNodes)]
}

// hold runs a caller that acquires leases, one after another.
func (c *churn) hold(rnd *rand.Rand) {
	for time.Now().Before(c.until) {
		h := &churned{node: c.anyNode(rnd)}
		if c.acquire(h, rnd.IntN(2) == 0, rnd.IntN(4) > 0) {
			c.stay(h, time.Duration(rnd.IntN(8000))*time.Millisecond, rnd)
		}
		time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
	}
}

// acquire requests a lease, and can wait for it.
func (c *churn) acquire(h *churned, byToken, wait bool) (ok bool) {
	r := jobs(churnLimit)
	r.TTL = churnTTL
	ctx, cancel := context.WithTimeout(context.Background(), churnWait)
	defer cancel()
	c.note(func() { c.waiting[h] = wait })
	began := time.Now()
	var d dataplane.ConcurrencyDecision
	switch {
	case byToken:
		h.token, d = h.node.AcquireToken(ctx, r, "", wait)
		h.until = began.Add(d.TTL)
	case wait:
		h.lease, d = h.node.AcquireWait(ctx, r)
	default:
		h.lease, d = h.node.Acquire(ctx, r)
	}
	c.note(func() {
		delete(c.waiting, h)
		if ok = d.Allowed && !h.node.dead && (h.token != "" || h.lease != (dataplane.Lease{})); ok {
			c.held[h] = true
			c.leases++
		}
	})
	return ok
}

// stay holds a lease for some time. Then it releases the lease, or lets a token end by itself.
func (c *churn) stay(h *churned, lasts time.Duration, rnd *rand.Rand) {
	for until := time.Now().Add(lasts); time.Now().Before(until) && c.holds(h); {
		if time.Sleep(min(churnTTL/3, time.Until(until))); h.token != "" {
			c.renew(h, c.anyNode(rnd))
		}
	}
	leaves := h.token == "" || rnd.IntN(4) > 0
	c.note(func() {
		if leaves {
			delete(c.held, h)
		}
	})
	switch {
	case h.token == "":
		h.lease.Release()
	case leaves:
		c.anyNode(rnd).ReleaseTokens(context.Background(), h.token)
	}
}

func (c *churn) renew(h *churned, at *churnNode) {
	began := time.Now()
	err := at.RenewTokens(context.Background(), 0, h.token)[0]
	c.note(func() {
		if c.held[h] && err == nil && time.Now().Before(h.until) && !at.dead {
			h.until = began.Add(churnTTL)
		}
		if errors.Is(err, dataplane.ErrLeaseLost) && time.Now().Before(h.until) {
			c.Errorf("a lease is lost %v before its end", time.Until(h.until))
		}
	})
}

func (c *churn) holds(h *churned) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.believes(h)
}

// believes reports whether a holder's lease is still valid by the holder's own state.
func (c *churn) believes(h *churned) bool {
	if h.token != "" {
		return time.Now().Before(h.until)
	}
	return !h.node.dead && h.lease.Err() == nil
}

func (c *churn) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look() // checks the state until now
	change()
	c.look()
}

// look counts holders and waiting requests. The mutex is held.
func (c *churn) look() {
	held, wait := 0, false
	for h := range c.held {
		if !c.believes(h) {
			if delete(c.held, h); h.token != "" {
				c.ended++
				c.taken = latest(c.taken, h.until)
			}
			continue
		}
		held++
	}
	for h, waits := range c.waiting {
		wait = wait || waits && !h.node.dead
	}
	if c.most = max(c.most, held); held > churnLimit {
		c.Errorf("%d leases are held, the limit is %d", held, churnLimit)
	}
	now := time.Now()
	if !wait || held >= churnLimit {
		c.free = time.Time{}
		return
	}
	if c.free.IsZero() {
		c.free = now
	}
	c.free = latest(c.free, c.taken)
	if c.longest = max(c.longest, now.Sub(c.free)); now.Sub(c.free) > churnFree {
		c.Errorf("a slot has been free for %v, and somebody waits", now.Sub(c.free))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// whole checks that all leases become free within their time to live and a second.
func (c *churn) whole() {
	r := jobs(churnLimit)
	r.TTL = churnTTL
	ctx, cancel := context.WithTimeout(context.Background(), churnTTL+time.Second)
	defer cancel()
	for i := range churnLimit {
		if _, d := c.nodes[0].AcquireWait(ctx, r); !d.Allowed {
			c.Errorf("of %d slots %d are lost for good: %+v", churnLimit, churnLimit-i, d)
			return
		}
	}
	if _, d := c.nodes[0].Acquire(context.Background(), r); d.Allowed {
		c.Errorf("one more than the limit: %+v", d)
	}
}
