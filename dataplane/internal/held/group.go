package held

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const triesMax = 3 // most tries of a call, if each shows that the group has lost calls

var (
	errShortAnswer = errors.New("dataplane: the origin has answered fewer holds than it was sent")
	errBehind      = errors.New("dataplane: the origin has lost calls that it had answered")
	errEmptied     = errors.New("dataplane: the origin was emptied several times")
)

// failed is the error of a call to a shard.
type failed struct {
	error
	shard int
}

// Unwrap implements errors.Unwrap.
func (f failed) Unwrap() error { return f.error }

// call makes a call to a group. If the group has lost calls, a single caller first states the lost reservations again,
// while the others wait. The call returns when ctx ends; a call that has begun then goes on, and its answer is lost.
func (s *Reservations) call(ctx context.Context, what What, c *store.HoldCall) (reply answer, err error) {
	of := s.Origin.GroupOf(&c.Group)
	for range triesMax {
		if err = s.restate(ctx, of, reply.Behind); err != nil {
			return reply, err
		}
		if reply, err = s.once(ctx, what, c); err != nil || !reply.Behind {
			return reply, err
		}
	}
	return reply, errBehind
}

// restate waits while another caller states the lost reservations of a group again. If the group is still behind, it
// then states the rest. For example, if a promoted replica answers ten callers at the same time, the first states the
// lost reservations, and the others find none.
func (s *Reservations) restate(ctx context.Context, of int, behind bool) error {
	g := s.book.group(of)
	if g == nil || s.Near {
		return nil
	}
	select {
	case g.restating <- struct{}{}:
		defer func() { <-g.restating }()
	case <-ctx.Done():
		return failed{ctx.Err(), s.Origin.ShardOf(&g.key)}
	}
	if !behind {
		return nil
	}
	return s.stateAll(ctx, s.book.lostOf(of), make(map[int]bool))
}

// again is call for statements, which may come before lost reservations are stated again.
func (s *Reservations) again(ctx context.Context, what What, c *store.HoldCall) (reply answer, err error) {
	for range triesMax {
		if reply, err = s.once(ctx, what, c); err != nil || !reply.Behind {
			return reply, err
		}
	}
	return reply, errBehind
}

// answer is the answer to a call, or the error.
type answer struct {
	store.HoldReply
	number number
	err    error
}

// once makes a single call.
func (s *Reservations) once(ctx context.Context, what What, call *store.HoldCall) (a answer, err error) {
	of, c := s.Origin.GroupOf(&call.Group), *call
	c.Stream, c.After = s.book.marks(of, s.NowMs())
	if !s.Near { // an origin in this process loses nothing, so it needs no numbers
		return s.onceAway(ctx, what, of, c)
	}
	a.HoldReply, err = s.Origin.Hold(ctx, c)
	return a, err
}

// onceAway makes a single call to an origin outside of this process. Its goroutine may go on with the call after ctx
// ends.
func (s *Reservations) onceAway(ctx context.Context, what What, of int, c store.HoldCall) (a answer, err error) {
	shard := s.Origin.ShardOf(&c.Group)
	var begun atomic.Bool
	done, notBegun := make(chan answer, 1), s.NotBegun(shard)
	started := s.Go(func() {
		var a answer
		a.err = s.Call(ctx, shard, what, max(1, len(c.Holds)),
			func(ctx context.Context) (store.Reply, error) {
				begun.Store(true)
				reply, err := s.Origin.Hold(ctx, c)
				if err == nil && isShort(&c, &reply) {
					err = errShortAnswer
				}
				if err != nil {
					return store.Reply{}, err
				}
				a.HoldReply, a.number = reply, s.book.answered(of, &c.Group, &reply, s.NowMs())
				return store.Reply{Totals: totalsOf(&reply), Now: reply.Now}, nil
			})
		done <- a
	})
	if !started {
		return answer{}, s.Stopped
	}
	select {
	case a = <-done:
	case <-ctx.Done():
		if a.err = ctx.Err(); !begun.Load() {
			a.err = notBegun(a.err)
		}
	}
	switch {
	case errors.Is(a.err, s.Busy):
		return answer{}, s.Busy
	case a.err != nil:
		return answer{}, failed{a.err, shard}
	case len(a.Answers) > 0:
		s.Heard(shard, c.Holds, totalsOf(&a.HoldReply))
	}
	return a, nil
}

// isShort reports whether an answer lacks holds without a reason.
func isShort(c *store.HoldCall, reply *store.HoldReply) bool {
	other := c.Record != nil && reply.Record.Text != "" && reply.Record.Text != c.Record.Text
	return len(reply.Answers) != len(c.Holds) && !reply.Behind && !reply.Emptied && !(reply.Refused && other)
}

func totalsOf(reply *store.HoldReply) []store.Total {
	totals := make([]store.Total, len(reply.Answers))
	for i := range totals {
		totals[i] = reply.Answers[i].Total
	}
	return totals
}

// stated is the result of statements: the answers in the order of the holds, and the numbers by group.
type stated struct {
	answers []store.HoldAnswer
	numbers numbers
	refused bool // by at least one group
}

// state makes statements about holds, with concurrent calls to their groups.
func (s *Reservations) state(ctx context.Context, holds []store.Hold) (stated, error) {
	defer s.refusals.forget(holds)
	if of := s.Origin.GroupOf(&holds[0].Cell.Key); areIn(s.Origin, of, holds) {
		return s.stateIn(ctx, of, holds)
	}
	return s.stateInSeveral(ctx, holds)
}

func (s *Reservations) stateInSeveral(ctx context.Context, holds []store.Hold) (all stated, err error) {
	places := make(map[int][]int)
	for i := range holds {
		of := s.Origin.GroupOf(&holds[i].Cell.Key)
		places[of] = append(places[of], i)
	}
	all.answers = make([]store.HoldAnswer, len(holds))
	var mu sync.Mutex
	var groups sync.WaitGroup
	for of, at := range places {
		some := make([]store.Hold, len(at))
		for n, i := range at {
			some[n] = holds[i]
		}
		groups.Go(func() {
			one, e := s.stateIn(ctx, of, some)
			mu.Lock()
			defer mu.Unlock()
			if e != nil {
				err = e
				return
			}
			all.numbers, all.refused = append(all.numbers, one.numbers...), all.refused || one.refused
			for n, i := range at {
				all.answers[i] = one.answers[n]
			}
		})
	}
	groups.Wait()
	return all, err
}

// stateIn makes statements about holds of a group. It returns an answer for each hold, even with an error.
func (s *Reservations) stateIn(ctx context.Context, of int, holds []store.Hold) (stated, error) {
	call := s.again
	if holds[0].As == store.HoldNew {
		call = s.call
	}
	reply, err := call(ctx, Hold, &store.HoldCall{Group: holds[0].Cell.Key, Holds: holds})
	if err != nil {
		return stated{answers: make([]store.HoldAnswer, len(holds))}, err
	}
	all := stated{answers: reply.Answers, refused: reply.Refused}
	all.numbers.set(of, reply.number)
	return all, nil
}

// areIn reports whether the cells of all holds are in a group.
func areIn(origin Origin, of int, holds []store.Hold) bool {
	for i := range holds {
		if origin.GroupOf(&holds[i].Cell.Key) != of {
			return false
		}
	}
	return true
}

// DrawID draws an ID whose record is in the group of a key.
func DrawID(origin Origin, of *window.Key, draw func() string) string {
	for range drawsMax {
		id := draw()
		if key := store.RecordKey(id); origin.GroupOf(&key) == origin.GroupOf(of) {
			return id
		}
	}
	return draw()
}

const drawsMax = 2000 // with 256 groups, only 1 of 2,500 draws takes more
