package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// lease is a relay's right to publish the counts of a shard. It may be used concurrently, except for renewAt.
type lease struct {
	origin store.RelayOrigin
	shard  int
	holder string // this relay's Config.Holder

	renewAt time.Time // when to renew, by the relay's clock; used only by the loop that renews, or by Step

	mu    sync.Mutex
	terms int       // how often the relay has acquired the lease
	until time.Time // by the relay's clock; zero: another relay has it
}

// term returns how often the relay has acquired the lease; ok reports whether it has the lease now.
func (l *lease) term(now time.Time) (term int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms, now.Before(l.until)
}

// renew acquires or renews the lease, and sets renewAt.
func (l *lease) renew(ctx context.Context, now time.Time) error {
	got, err := l.acquire(ctx, now)
	l.renewAt = now.Add(renewEvery)
	if err == nil && got.Holder != l.holder && got.Left > 0 {
		l.renewAt = now.Add(min(renewEvery, got.Left))
	}
	return err
}

// acquire acquires or renews the lease, and returns the lease as the origin then has it.
func (l *lease) acquire(ctx context.Context, now time.Time) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	got, err := l.origin.Lease(ctx, l.shard, l.holder, leaseTTL)
	if err != nil {
		return got, fmt.Errorf("lease of shard %d: %w", l.shard, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case got.Holder != l.holder:
		l.until = time.Time{}
	case !now.Before(l.until): // another relay may have had the lease meanwhile
		l.terms++
		fallthrough
	default:
		l.until = now.Add(leaseTTL)
	}
	return got, nil
}

// release releases the lease, if the relay has it.
func (l *lease) release(ctx context.Context) error {
	l.mu.Lock()
	held := !l.until.IsZero()
	l.until = time.Time{}
	l.mu.Unlock()
	if !held {
		return nil
	}
	if err := l.origin.Release(ctx, l.shard, l.holder); err != nil {
		return fmt.Errorf("release shard %d: %w", l.shard, err)
	}
	return nil
}
