package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
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

	lease lease

	own own // of take

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
	s.lease = lease{origin: r.cfg.Origin, shard: index, holder: r.cfg.Holder}
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

// keepLease renews the lease until ctx ends, or tries to get it as soon as its holder's has ended.
func (s *shard) keepLease(ctx context.Context) {
	renew := s.watched("renew the lease", s.lease.renew)
	for ctx.Err() == nil {
		renew(ctx)
		_ = loop.Pause(ctx, s.lease.renewAt.Sub(s.relay.cfg.Clock()))
	}
}
