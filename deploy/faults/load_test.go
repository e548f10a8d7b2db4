package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
)

const (
	workspace, namespace = "acme", "api"
	plenty               = 1 << 40             // a limit that no test can reach
	oneCell              = 30 * 24 * time.Hour // a window that outlasts every test
)

// cell is a key's window.
type cell struct {
	identifier string
	sequence   int64
}

type totals map[cell]int64

func (t totals) sum() (n int64) {
	for _, v := range t {
		n += v
	}
	return n
}

// ledger has the decisions that a region's callers got.
type ledger struct {
	mu        sync.Mutex
	accepted  totals
	duration  time.Duration // of all its keys
	decisions int64
	workers   int64 // at most so much may be accepted and not be written down yet
	worst     time.Duration
	firstErr  error
}

func newLedger() *ledger { return &ledger{accepted: make(totals), duration: oneCell} }

// write notes a decision of cost 1.
func (l *ledger) write(identifier string, d dataplane.Decision, took time.Duration) cell {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := cell{identifier, d.ResetAt.UnixMilli()/l.duration.Milliseconds() - 1}
	l.decisions++
	l.worst = max(l.worst, took)
	if d.Err != nil && l.firstErr == nil {
		l.firstErr = d.Err
	}
	if d.Allowed {
		l.accepted[c]++
	}
	return c
}

// snapshot returns the cost that was accepted so far.
func (l *ledger) snapshot() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(totals, len(l.accepted))
	for c, n := range l.accepted {
		all[c] = n
	}
	return all
}

// atMost returns the cost that may have been accepted so far, including decisions that are not yet recorded.
func (l *ledger) atMost() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(totals, len(l.accepted))
	for c, n := range l.accepted {
		all[c] = n + l.workers
	}
	return all
}

// made returns how many decisions were made.
func (l *ledger) made() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decisions
}

func (l *ledger) of(identifier string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, v := range l.accepted {
		if c.identifier == identifier {
			n += v
		}
	}
	return n
}

// ask decides a request with a cost of 1 and records the decision.
func (r *region) ask(n *node, identifier string, limit int64) dataplane.Decision {
	began := time.Now()
	d := n.Allow(context.Background(), dataplane.Request{
		Workspace: workspace, Namespace: namespace, Identifier: identifier, Limit: limit, Duration: r.ledger.duration, Cost: 1})
	r.ledger.write(identifier, d, time.Since(began))
	return d
}

// load is a steady stream of requests with a cost of 1 to every node. Every other key is used by a single region,
// unless all keys are shared; its counts in other regions are received from there.
type load struct {
	perSecond int // and node
	keys      int
	prefix    string
	limit     int64 // 0 means plenty
	shared    bool
}

const workersPerNode = 2

// start keeps the load running on the nodes of these regions until stop is called. If a node falls behind, it does not
// catch up in a burst.
func (l load) start(t *testing.T, regions ...*region) (stop func()) {
	t.Helper()
	if l.limit == 0 {
		l.limit = plenty
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, r := range regions {
		r.ledger.workers += int64(workersPerNode * len(r.nodes))
		for _, n := range r.nodes {
			for w := range workersPerNode {
				running.Go(func() { l.run(ctx, r, n, rand.New(rand.NewPCG(uint64(r.started), uint64(w)))) })
			}
		}
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

func (l load) run(ctx context.Context, r *region, n *node, random *rand.Rand) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	perSecond := float64(l.perSecond) / workersPerNode
	last, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due = min(due+now.Sub(last).Seconds()*perSecond, perSecond/5+1)
			last = now
		}
		for ; due >= 1 && ctx.Err() == nil; due-- {
			l.one(r, n, l.at(r, random.IntN(l.keys)))
		}
	}
}

func (l load) one(r *region, n *node, identifier string) {
	n.callers.RLock()
	defer n.callers.RUnlock()
	if !n.drained {
		r.ask(n, identifier, l.limit)
	}
}

// drain returns when the node has no callers any more, as in a server that stops.
func (n *node) drain() {
	n.callers.Lock()
	defer n.callers.Unlock()
	n.drained = true
}

func (l load) key(i int) string { return fmt.Sprintf("%s%05d", l.prefix, i) }

// at returns the key as callers of a region have it.
func (l load) at(r *region, i int) string {
	if l.shared || i%2 == 0 {
		return l.key(i)
	}
	return l.key(i) + "@" + r.name
}

// touch sends a request for every key to every node, so that each node has exchanged counts with the origin about it.
func (l load) touch(regions ...*region) {
	for _, r := range regions {
		for _, n := range r.nodes {
			for i := range l.keys {
				r.ask(n, l.at(r, i), plenty)
			}
		}
	}
}
