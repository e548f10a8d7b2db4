package slots_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var key = slots.Name{Workspace: "acme", Namespace: "jobs", Identifier: "export"}

func ask(limit int64, ttl time.Duration) *slots.Ask {
	return &slots.Ask{Name: key, Limit: limit, TTL: ttl}
}

// node is a table with its connection to the origin, in a synctest bubble.
type node struct {
	*slots.Table
	way    *memstore.Origin
	base   time.Time
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu   sync.Mutex
	gate chan struct{} // closed unless the node is paused
	sent []store.GrantCall
	at   []time.Time // when they were sent
}

// nodeOf returns a running node that is configured with the given number of nodes. Without an origin it is alone.
func nodeOf(t testing.TB, origin *memstore.Origin, nodes int64) *node {
	t.Helper()
	n := &node{base: time.Now(), gate: make(chan struct{})}
	close(n.gate)
	cfg := slots.Config{Nodes: func() int64 { return nodes }, Now: n.now, WaitersMax: 20}
	if origin != nil {
		n.way = origin.Client()
		n.way.Faults.Hook(func(memstore.Op) error { n.wait(); return nil })
		cfg.Origin = n
	}
	n.Table = slots.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.Run(ctx, n.loops.Go)
	return n
}

func (n *node) wait() {
	n.mu.Lock()
	gate := n.gate
	n.mu.Unlock()
	<-gate
}

func (n *node) now() time.Duration {
	n.wait()
	return time.Since(n.base) + time.Second
}

func (n *node) pause() { n.mu.Lock(); n.gate = make(chan struct{}); n.mu.Unlock() }

func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.gate:
	default:
		close(n.gate)
	}
}

// kill ends the node without a call to the origin.
func (n *node) kill() {
	n.resume()
	n.cancel()
	n.loops.Wait()
}

func (n *node) Shards() int                 { return n.way.Shards() }
func (n *node) ShardOf(key *window.Key) int { return n.way.ShardOf(key) }
func (n *node) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	n.mu.Lock()
	n.sent, n.at = append(n.sent, call), append(n.at, time.Now())
	n.mu.Unlock()
	return n.way.Grants(ctx, shard, call)
}

// calls returns the calls that the node has sent, and their times.
func (n *node) calls() ([]store.GrantCall, []time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent), slices.Clone(n.at)
}

// try requests a lease with a short deadline, as a decision does.
func (n *node) try(limit int64, ttl time.Duration) slots.Result {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	return n.Try(ctx, ask(limit, ttl))
}

// waitFor waits for a lease.
func (n *node) waitFor(within time.Duration, limit int64, ttl time.Duration) slots.Result {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return n.Wait(ctx, ask(limit, ttl))
}

// ended reports whether Done is closed.
func ended(l slots.Lease) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}
