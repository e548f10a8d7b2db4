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

// shard relays a shard of the origin while it has the shard's lease.
type shard struct {
	relay  *Relay
	index  int
	stream store.Stream
	book   book

	// Both channels have capacity 1.
	woken     chan struct{} // foreign totals are waiting to be applied
	readEnded chan struct{} // a read of the change feed has ended

	lease lease

	own own // used only by take

	setBack  atomic.Bool // the origin's clock was set back, so take must load again
	failed   failedLoads // used only by take
	unloaded atomic.Bool // the shard must load when it next has its lease
	imported imported    // for its next load

	foreignChunk foreignChunk // used only by applyForeign
	savedAt      time.Time    // used only by save

	seenTerm int          // used only by take: the term in which seeAll last scanned
	tookTerm int          // used only by take: the term in which it last took changes
	tookAt   atomic.Int64 // clock.Steady of the last take without an error; before it, when the term began

	prunes atomic.Int64 // rows of the stream below this number can be deleted; 0: none
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

// watched is Relay.watched with the shard's number in the name.
func (s *shard) watched(name string, step func(context.Context, time.Time) error) func(context.Context) {
	return s.relay.watched(fmt.Sprintf("%s of shard %d", name, s.index), step)
}

// keepLease renews the lease until ctx ends. While another relay holds it, keepLease tries to acquire it as soon as
// that lease can have ended.
func (s *shard) keepLease(ctx context.Context) {
	renew := s.watched("renew the lease", s.lease.renew)
	for ctx.Err() == nil {
		renew(ctx)
		_ = loop.Pause(ctx, s.lease.renewAt.Sub(s.relay.cfg.Clock()))
	}
}
