package outbox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// A claim whose answer is lost has sent its caller away, who decides without the origin. Before any other claims of the
// shard, at the next tick at the latest, the same call is made again, with room for nothing: it adds nothing, and finds
// out what the first one has added. That has paid for what the caller was allowed, or else this is sent as any
// accepted cost is.

// claimCall is what one call claims.
type claimCall struct {
	claims   []store.Claim
	of       []*cell.Claim // whose they are, in their order; nil: it has its answer
	number   int64         // 0: it was not sent yet
	recalled bool          // it has room for nothing
}

// failures are how many claims were not decided, and why the first was not.
func (c *claimCall) failures(reply *store.ClaimReply) (failed int, first error) {
	for i := range reply.Totals {
		if err := reply.Totals[i].Err; err != nil && !errors.Is(err, store.ErrEpoch) {
			failed++
			first = cmp.Or(first, err)
		}
	}
	return failed, first
}

// decides is true of an answer that the origin itself has given about a claim that was made again: it tells its epoch.
func (a *claimAnswer) decides() bool {
	return a.total.Err == nil || errors.Is(a.total.Err, store.ErrEpoch) || a.total.Epoch != 0
}

// keep keeps a call for a claim of it whose answer is lost; what is lent is accepted cost, and perhaps at no origin.
func (q *claims) keep(call *claimCall, lent bool, cost int64) {
	if q.lost = call; lent {
		q.unanswered.Add(cost)
	}
	if call.recalled {
		return
	}
	call.recalled = true
	for i := range call.claims {
		call.claims[i].AtMost = -1
	}
}

// recall finds out what became of claims whose answers are lost. An error means that some are still unknown.
func (q *claims) recall(ctx context.Context, by *breaker.Breaker, within time.Duration) error {
	call := q.lost
	if call == nil {
		return nil
	}
	reply, err := q.send(ctx, by, within, call)
	q.merge(call, &reply, err)
	if call.isOpen() {
		_, first := call.failures(&reply)
		return cmp.Or(err, first, errShortAnswer)
	}
	q.lost = nil
	q.unanswered.Store(0)
	return nil
}

// isOpen is true while a claim of it has no answer.
func (c *claimCall) isOpen() bool {
	for _, of := range c.of {
		if of != nil {
			return true
		}
	}
	return false
}
