package outbox

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// stream is a sequence of chunks to a shard, at most one of them on its way. It belongs to one loop, which sends a
// chunk that got no answer again, unchanged, before anything new: the origin applies it once, however often it comes.
type stream struct {
	id      uint64
	calls   *breaker.Breaker
	number  int64          // of the last chunk
	kept    *resend.Stream // answered chunks that the origin may lose
	pending *chunk         // that was sent and got no answer; nil: none

	unanswered atomic.Int64 // cost in pending
	sentAt     time.Time    // of the last chunk that was answered
}

// sendTimeout bounds each send of the loops.
const sendTimeout = time.Second

// idleEvery is how late a stream without costs to send finds that the origin has lost some that it had answered.
const idleEvery = time.Second

func (s *stream) init(sh *Shard, calls *breaker.Breaker) {
	s.id, s.calls, s.kept = rand.Uint64()|1, calls, resend.New(&sh.out.kept)
}

// send sends a chunk of the stream, after the chunks of the stream that the origin has lost.
func (s *stream) send(ctx context.Context, sh *Shard, number int64, costs []store.Cost) (store.Reply, error) {
	reply, err := s.kept.Send(ctx, sh.send,
		store.Chunk{Shard: sh.index, Stream: s.id, Number: number, Costs: costs})
	if err == nil {
		s.sentAt = time.Now()
	}
	return reply, err
}

// send makes a single call.
func (sh *Shard) send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	o, call, op := sh.out, sh.ask(), collect.OpSend
	reply, err := o.cfg.Origin.Send(ctx, c)
	if err == nil && len(reply.Totals) != len(c.Costs) {
		err = errShortAnswer
	}
	problem := err
	if c.Bounded() {
		if op = collect.OpClaim; err == nil && len(reply.Behind) == 0 {
			_, problem = markUnanswered(&reply)
		}
	}
	o.Stats.Origin.Called(op, len(c.Costs), time.Since(call.began), problem)
	if err == nil {
		sh.answered(call, &reply, c.Costs...)
		sh.epochs.CountedIn(reply.Totals, func(i int) *window.Cell { return &c.Costs[i].Cell })
	}
	return reply, err
}

// chunk is the content of one call.
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

// ship sends a chunk of a stream. A chunk that has costs and gets no answer becomes the stream's pending chunk.
func (sh *Shard) ship(ctx context.Context, s *stream, c *chunk) (store.Reply, error) {
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
	reply, err := s.send(ctx, sh, c.number, c.costs)
	end(err)
	sh.wrote(err)
	if err != nil {
		s.keep(c)
		return reply, err
	}
	s.pending = nil
	s.unanswered.Store(0)
	return reply, nil
}

// shipInTime ships a chunk of costs without bounds. If an earlier call of the chunk got no answer, and a cell has
// expired since, the cost comes too late: no decision depends on it, and the origin may store nothing for it. So it
// counts as dropped. If the earlier call did reach the origin, the answer is the same, and the cost counts as dropped
// too. So the metric is never below the cost that was lost, but can be above it.
func (sh *Shard) shipInTime(ctx context.Context, s *stream, c *chunk) (store.Reply, error) {
	isLate, nowMs := s.pending == c, sh.out.cfg.Clock.ReadMs()
	reply, err := sh.ship(ctx, s, c)
	if err != nil || !isLate {
		return reply, err
	}
	for i := range c.costs {
		if cost := &c.costs[i]; reply.Totals[i].Err == nil && cost.Cell.ExpiresAtMs() <= nowMs {
			sh.out.Stats.Dropped[DroppedExpired].Add(cost.Add)
		}
	}
	return reply, nil
}

// prove sends a chunk without costs if nothing was sent for idleEvery, as long as the origin may lose chunks that it
// has answered.
func (sh *Shard) prove(ctx context.Context, s *stream) error {
	if s.kept.Empty() {
		return nil
	}
	return sh.idle(ctx, s)
}

// proveLed proves a stream that only the leading goroutine may use, unless another goroutine leads.
func proveLed(ctx context.Context, q interface {
	Lead() bool
	Yield() bool
	start()
}, prove func(context.Context) error) error {
	if !q.Lead() {
		return nil
	}
	err := prove(ctx)
	if !q.Yield() {
		q.start()
	}
	return err
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

// keep stores a chunk that got no answer. A chunk without costs is not stored, because the next call can make another.
func (s *stream) keep(c *chunk) {
	if len(c.costs) == 0 {
		return
	}
	s.pending = c
	s.unanswered.Store(c.cost())
}
