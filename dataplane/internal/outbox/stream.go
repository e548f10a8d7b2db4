package outbox

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// stream is a sequence of chunks to one shard; at most one is on its way. It belongs to
// one loop, which sends a chunk that got no answer again, as it was, before anything new: the
// origin applies it once, however often it comes.
type stream struct {
	id      uint64
	calls   *breaker.Breaker
	number  int64  // of the last chunk
	pending *chunk // that was sent and got no answer; nil: none

	unanswered atomic.Int64 // cost in pending
	sentAt     time.Time    // of the last chunk that was answered
	costsAt    time.Time    // of the last one with costs
}

// sendTimeout bounds what the loops send.
const sendTimeout = time.Second

// idleEvery is how late a stream without costs to send finds that the origin has lost some that it had answered.
const idleEvery = time.Second

func (s *stream) init(calls *breaker.Breaker) { s.id, s.calls = rand.Uint64()|1, calls }

// chunk is one call's worth.
type chunk struct {
	costs   []store.Cost
	entries []*cell.Entry // of costs, in their order
	stale   []*cell.Entry // whose previous cell should be read once more
	held    []*cell.Entry // entries whose keys are held back
	number  int64         // 0: it was not sent yet
}

func (c *chunk) add(e *cell.Entry, cost store.Cost) {
	c.costs, c.entries = append(c.costs, cost), append(c.entries, e)
}

func (c *chunk) cost() (sum int64) {
	for i := range c.costs {
		sum += c.costs[i].Add + c.costs[i].Restore
	}
	return sum
}

// ship sends a chunk of a stream. Without an answer the chunk is the stream's pending one, if it has costs.
func (sh *Shard) ship(ctx context.Context, s *stream, c *chunk) (store.Reply, error) {
	o := sh.out
	end, ok := s.calls.Begin()
	if !ok {
		sh.wrote(breaker.ErrOpen)
		s.keep(c)
		return store.Reply{}, breaker.ErrOpen
	}
	if c.number == 0 {
		s.number++
		c.number = s.number
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	call := sh.ask()
	reply, err := o.cfg.Origin.Send(ctx, store.Chunk{Shard: sh.index, Stream: s.id, Number: c.number, Costs: c.costs})
	if err == nil && len(reply.Totals) != len(c.costs) {
		err = errShortAnswer
	}
	end(err)
	sh.wrote(err)
	o.Stats.Origin.Called(collect.OpSend, len(c.costs), time.Since(call.began), err)
	if err != nil {
		s.keep(c)
		return reply, err
	}
	s.pending = nil
	s.unanswered.Store(0)
	s.answered(len(c.entries) > 0 || reply.Repeated)
	sh.answered(call, &reply)
	sh.epochs.CountedIn(reply.Totals, func(i int) *window.Cell { return &c.costs[i].Cell })
	return reply, nil
}

// answered notes an answer to the stream's last call, which may have brought costs to the origin, for the first time or
// again.
func (s *stream) answered(costs bool) {
	if s.sentAt = time.Now(); costs {
		s.costsAt = s.sentAt
	}
}

// prove sends a chunk without costs where nothing was sent for idleEvery: the Origin value repeats what the origin has
// lost of the stream. Once one was answered store.KeepFor after the last costs came, or came again, nothing of them is
// kept.
func (sh *Shard) prove(ctx context.Context, s *stream) error {
	if s.costsAt.IsZero() || s.sentAt.Sub(s.costsAt) >= store.KeepFor+idleEvery {
		return nil
	}
	return sh.idle(ctx, s)
}

// idle sends a chunk without costs if none was sent for idleEvery. In contrast to prove, it never
// stops doing so, because its stream also reads the origin's clock. While the stream's breaker is
// half-open, idle sends at once: namespaces with the policy closed stay closed until a write
// succeeds.
func (sh *Shard) idle(ctx context.Context, s *stream) error {
	if s.pending != nil || time.Since(s.sentAt) < idleEvery && s.calls.State() == breaker.Closed {
		return nil
	}
	_, err := sh.ship(ctx, s, &chunk{})
	return err
}

// keep keeps a chunk that got no answer. One that only asks is made anew.
func (s *stream) keep(c *chunk) {
	if len(c.costs) == 0 {
		return
	}
	s.pending = c
	s.unanswered.Store(c.cost())
}
