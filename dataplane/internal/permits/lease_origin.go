package permits

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var errShortReply = errors.New("origin: fewer answers than leases")

// leaseOrigin makes the calls about leases by id.
type leaseOrigin struct {
	origin Origin
	out    *outbox.Outbox
	calls  *loop.Calls
	within time.Duration // that a caller waits for an answer
}

// ShardOf implements leases.Origin.
func (o *leaseOrigin) ShardOf(key *window.Key) int { return o.origin.ShardOf(key) }

// Go implements leases.Origin.
func (o *leaseOrigin) Go(f func()) { o.calls.Start(f) }

// Say implements leases.Origin. A call that had to wait for more than half of its time until it could begin is not
// unanswered because of an outage, as long as others are answered: the node is busy.
func (o *leaseOrigin) Say(ctx context.Context, shard int, words []store.LeaseWord,
	late func([]store.LeaseAnswer)) ([]store.LeaseAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	sh := o.out.Shards()[shard]
	answers := sh.Answers()
	type outcome struct {
		answers []store.LeaseAnswer
		err     error
	}
	began := time.Now()
	var waited atomic.Int64 // until the call began
	waited.Store(int64(o.within))
	done := make(chan outcome) // without a buffer: an answer is taken here, or it is late
	call := func() {
		var of outcome
		of.err = sh.CallTwice(ctx, collect.OpLease, len(words), callTimeout, func(ctx context.Context) (store.Reply, error) {
			waited.CompareAndSwap(int64(o.within), int64(time.Since(began)))
			reply, err := o.origin.Leases(ctx, shard, words)
			if of.answers = reply.Answers; err == nil && len(reply.Answers) != len(words) {
				err = errShortReply
			}
			return store.Reply{Now: reply.Now}, err
		})
		select {
		case done <- of:
		case <-ctx.Done():
			if of.err == nil && late != nil {
				late(of.answers)
			}
		}
	}
	if !o.calls.Start(call) {
		return nil, outbox.ErrStopped
	}
	select {
	case of := <-done:
		return of.answers, of.err
	case <-ctx.Done():
	}
	if time.Duration(waited.Load()) > o.within/2 {
		return nil, sh.NotBegun(ctx.Err(), answers)
	}
	return nil, ctx.Err()
}
