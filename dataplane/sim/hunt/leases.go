package hunt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// leases records which relays hold the leases of a region's shards, by the origin's answers.
type leases struct {
	mu   sync.Mutex // held during each of the origin's answers, and while it forgets
	held map[int]heldLease
}

type heldLease struct {
	holder  string
	until   time.Time
	renewed bool // by its holder, since the origin forgot the leases
}

// forget runs lose, which makes the origin lose leases.
func (l *leases) forget(lose func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lose()
	clear(l.held)
}

// Lease implements store.Relayed.
func (o watchedOrigin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	l := &o.life.node.region.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, err := o.FullOrigin.Lease(ctx, shard, holder, ttl)
	if err != nil {
		return lease, err
	}
	now := time.Now()
	was := l.held[shard]
	if was.holder != lease.Holder && was.holder != "" {
		if now.Before(was.until) {
			o.world.record.violate("lease", "shard %d of %s is relayed by %s, and %s has its lease for another %v",
				shard, o.life.node.region.name, lease.Holder, was.holder, was.until.Sub(now))
		}
		if was.renewed {
			o.retired(shard, was.holder, lease.Holder)
		}
	}
	renewed := lease.Holder == holder || lease.Holder == was.holder && was.renewed
	l.held[shard] = heldLease{lease.Holder, now.Add(lease.Left), renewed}
	return lease, nil
}

// retired checks that the last holder of a lease no longer relays by it.
func (o watchedOrigin) retired(shard int, holder, next string) {
	for _, n := range o.life.node.region.nodes {
		l := n.life.Load()
		if l != nil && l.Relay != nil && l.process() == holder && slices.Contains(l.Relay.Figures().Held, shard) {
			o.world.record.violate("lease", "shard %d of %s is relayed by %s, and %s still relays it",
				shard, o.life.node.region.name, next, holder)
		}
	}
}

// Release implements store.Relayed.
func (o watchedOrigin) Release(ctx context.Context, shard int, holder string) error {
	l := &o.life.node.region.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	err := o.FullOrigin.Release(ctx, shard, holder)
	if err == nil && l.held[shard].holder == holder {
		delete(l.held, shard)
	}
	return err
}
