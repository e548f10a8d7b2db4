package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

const (
	leaseTTL   = 3 * time.Second
	renewEvery = time.Second
)

// shard relays one shard of the origin, while it has its lease.
type shard struct {
	relay  *Relay
	index  int
	stream store.Stream
	book   book

	// Each has room for one.
	woken     chan struct{} // foreign totals wait to be told
	readEnded chan struct{} // the news have been read

	mu         sync.Mutex // guards the lease
	terms      int        // how often the lease was gained
	leaseUntil time.Time  // by the relay's clock

	renewAt time.Time // of keepLease, or Step

	own         own         // of take
	healedEpoch store.Epoch // of take: the last one in which the shard was healed

	failed   failedLoads // of take
	unloaded atomic.Bool // it is yet to load, once it has its lease
	imported imported    // for its next load

	foreignChunk foreignChunk // of applyForeign
	savedAt      time.Time    // of save

	seenTerm int          // of take: the term in which seeAll has scanned last
	tookTerm int          // of take: the term that it took changes in last
	tookAt   atomic.Int64 // clock.Steady of the last take without an error; at first when the term began

	prunes atomic.Int64 // the stream's rows below it are to be deleted; 0 if none are
}

func newShard(r *Relay, index int) *shard {
	s := &shard{relay: r, index: index, stream: store.Stream{Region: r.cfg.Region, Shard: index},
		woken: make(chan struct{}, 1), readEnded: make(chan struct{}, 1)}
	s.book.init(r.cfg.Origin.Shards())
	if r.cfg.Publish != nil {
		s.book.nudge = make(chan struct{}, 1)
	}
	s.unloaded.Store(true)
	return s
}

// watched is Relay.watched with the shard's name.
func (s *shard) watched(name string, step func(context.Context, time.Time) error) func(context.Context) {
	return s.relay.watched(fmt.Sprintf("%s of shard %d", name, s.index), step)
}

// term is which time it is that the shard has its lease; ok is false while it has none.
func (s *shard) term(now time.Time) (term int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms, now.Before(s.leaseUntil)
}

// keepLease renews the lease until ctx ends, or tries to get it as soon as its holder's has ended.
func (s *shard) keepLease(ctx context.Context) {
	renew := s.watched("renew the lease", s.renew)
	for ctx.Err() == nil {
		renew(ctx)
		timer := time.NewTimer(s.renewAt.Sub(s.relay.cfg.Clock()))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// renew asks for the lease.
func (s *shard) renew(ctx context.Context, now time.Time) error {
	lease, err := s.askLease(ctx, now)
	s.renewAt = now.Add(renewEvery)
	if err == nil && lease.Holder != s.relay.cfg.Holder && lease.Left > 0 {
		s.renewAt = now.Add(min(renewEvery, lease.Left))
	}
	return err
}

func (s *shard) askLease(ctx context.Context, now time.Time) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	lease, err := s.relay.cfg.Origin.Lease(ctx, s.index, s.relay.cfg.Holder, leaseTTL)
	if err != nil {
		return lease, fmt.Errorf("lease of shard %d: %w", s.index, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case lease.Holder != s.relay.cfg.Holder:
		s.leaseUntil = time.Time{}
	case !now.Before(s.leaseUntil): // another relay may have had it meanwhile
		s.terms++
		fallthrough
	default:
		s.leaseUntil = now.Add(leaseTTL)
	}
	return lease, nil
}

// release gives the lease back, if the shard has it.
func (s *shard) release(ctx context.Context) error {
	s.mu.Lock()
	held := !s.leaseUntil.IsZero()
	s.leaseUntil = time.Time{}
	s.mu.Unlock()
	if !held {
		return nil
	}
	if err := s.relay.cfg.Origin.Release(ctx, s.index, s.relay.cfg.Holder); err != nil {
		return fmt.Errorf("release shard %d: %w", s.index, err)
	}
	return nil
}
