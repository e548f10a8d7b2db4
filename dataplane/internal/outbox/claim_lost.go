package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// If the answer of a claim is lost, its caller stops waiting and decides without the origin. Before any other claims of
// the shard, and at the next tick at the latest, the same call is made again, with no room: it adds nothing, and its
// answer shows the claims that the first call has added. For claims that were not added, the cost that the caller has
// kept is sent like any accepted cost. For example, if a claim of 10 timed out, its caller kept 10, and the repeated
// call shows that it was not added, the 10 go into the replay queue.

// claimCall is the content of one call.
type claimCall struct {
	costs    []store.Cost
	of       []*cell.Claim // whose they are, in their order; nil: it has its answer
	number   int64         // 0: it was not sent yet
	recalled bool          // it has room for nothing
}

// errUnanswered marks the error of a total if the origin may have added the cost and its answer is lost.
var errUnanswered = errors.New("origin: no answer")

// without returns a reply in which no claim of the call has an answer.
func (c *claimCall) without(err error) store.Reply {
	return store.Reply{Totals: slices.Repeat([]store.Total{{Err: err}}, len(c.costs))}
}

// markUnanswered marks totals without an answer. It returns how many claims were not decided, and why the first was
// not.
func markUnanswered(reply *store.Reply) (failed int, first error) {
	for i := range reply.Totals {
		total := &reply.Totals[i]
		if total.Err == nil || errors.Is(total.Err, store.ErrEpoch) {
			continue
		}
		failed++
		first = cmp.Or(first, total.Err)
		if total.Epoch == 0 && !errors.Is(total.Err, store.ErrNotApplied) {
			total.Err = fmt.Errorf("%w: %w", errUnanswered, total.Err)
		}
	}
	return failed, first
}

// decides reports whether a total is the origin's own answer about a claim that was made again.
func decides(total *store.Total) bool {
	return !errors.Is(total.Err, errUnanswered) && !errors.Is(total.Err, store.ErrNotApplied)
}

// keep stores a call that has a claim whose answer is lost. kept is the cost that the claim's caller has kept: it is
// accepted, and perhaps at no origin.
func (q *claims) keep(call *claimCall, kept int64) {
	q.lost = call
	q.unanswered.Add(kept)
	if call.recalled {
		return
	}
	call.recalled = true
	for i := range call.costs {
		call.costs[i].AtMost = -1
	}
}

// recall finds out the outcome of claims whose answers are lost. An error means that some outcomes are still missing.
func (q *claims) recall(ctx context.Context, by *breaker.Breaker, within time.Duration) error {
	call := q.lost
	if call == nil {
		return nil
	}
	reply, err := q.send(ctx, by, within, call)
	q.merge(call, &reply)
	if call.isOpen() {
		return err
	}
	q.lost = nil
	q.unanswered.Store(0)
	return nil
}

// isOpen reports whether a claim of the call has no answer.
func (c *claimCall) isOpen() bool {
	for _, of := range c.of {
		if of != nil {
			return true
		}
	}
	return false
}
