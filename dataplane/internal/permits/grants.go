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
)

var errShortReply = errors.New("origin: fewer answers than asks")

// grants makes the calls about slots and leases by id.
type grants struct {
	Origin
	out    *outbox.Outbox
	calls  *loop.Calls
	within time.Duration // that a caller waits for an answer about a lease
}

// Grants implements slots.Origin.
func (o *grants) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	reply, err := o.Origin.Grants(ctx, shard, call)
	if err == nil && len(reply.Answers) != len(call.Asks) {
		err = errShortReply
	}
	return reply, err
}

// Go implements leases.Origin.
func (o *grants) Go(f func()) { o.calls.Start(f) }

// Say implements leases.Origin. If the call has waited for its turn for more than half of its time, and other calls
// were answered meanwhile, it returns outbox.ErrBusy, because that is no outage.
func (o *grants) Say(ctx context.Context, shard int, asks []store.GrantAsk,
	late func([]store.GrantAnswer)) ([]store.GrantAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	sh := o.out.Shards()[shard]
	answers := sh.Answers()
	type outcome struct {
		answers []store.GrantAnswer
		err     error
	}
	began := time.Now()
	var waited atomic.Int64 // until the call began
	waited.Store(int64(o.within))
	done := make(chan outcome) // without a buffer: an answer is taken here, or it is late
	call := func() {
		var of outcome
		of.err = sh.CallTwice(ctx, collect.OpLease, len(asks), callTimeout, func(ctx context.Context) (store.Reply, error) {
			waited.CompareAndSwap(int64(o.within), int64(time.Since(began)))
			reply, err := o.Grants(ctx, shard, store.GrantCall{Asks: asks})
			of.answers = reply.Answers
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
