package hunt

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// leases are who relays the shards of a region's origin, as the origin has said.
type leases struct {
	mu   sync.Mutex // held while the origin says or forgets it
	held map[int]heldLease
}

type heldLease struct {
	holder string
	until  time.Time
}

// forget has the origin lose what it has said.
func (l *leases) forget(lose func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lose()
	clear(l.held)
}

// Lease implements store.RelayOrigin.
func (o watchedOrigin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	l := &o.region.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, err := o.RelayOrigin.Lease(ctx, shard, holder, ttl)
	if err != nil {
		return lease, err
	}
	now := time.Now()
	if was := l.held[shard]; was.holder != lease.Holder && now.Before(was.until) {
		o.world.record.violate("lease", "shard %d of %s is relayed by %s, and %s has its lease for another %v",
			shard, o.region.name, lease.Holder, was.holder, was.until.Sub(now))
	}
	if l.held == nil {
		l.held = make(map[int]heldLease)
	}
	l.held[shard] = heldLease{lease.Holder, now.Add(lease.Left)}
	return lease, nil
}

// Release implements store.RelayOrigin.
func (o watchedOrigin) Release(ctx context.Context, shard int, holder string) error {
	l := &o.region.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	err := o.RelayOrigin.Release(ctx, shard, holder)
	if err == nil && l.held[shard].holder == holder {
		delete(l.held, shard)
	}
	return err
}
