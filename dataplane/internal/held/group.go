package held

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// group is a node's knowledge of one group of the origin.
type group struct {
	key      window.Key     // in the group
	after    store.Mark     // the largest number that was answered
	atMs     int64          // when a number was answered last
	provenMs int64          // when anything was answered last
	seen     map[int64]bool // the latest numbers, without the lost ones
	losses   int            // how often it has lost calls

	restating chan struct{} // full while a caller states lost reservations again
}

// number is the number of an answer. The zero number is for an answer to a call that changed nothing.
type number struct {
	n      int64
	losses int // of the group, when it answered
}

const (
	seenMax  = 4096                            // numbers of a group: more than there are calls under way at the same time
	afterFor = store.HoldKeptFor - settledKept // a group may forget a stream that makes no calls for longer
	triesMax = 3                               // calls, if each shows that the group has lost something
)

var (
	errShortAnswer = errors.New("dataplane: the origin has answered fewer holds than it was sent")
	errBehind      = errors.New("dataplane: the origin has lost what it had answered")
)

// failed is the error of a call to a shard.
type failed struct {
	error
	shard int
}

// Unwrap implements errors.Unwrap.
func (f failed) Unwrap() error { return f.error }

// call makes a call to a group. If the group has lost calls, one caller states the lost reservations again first, while
// the others wait. It waits for at most as long as ctx lasts; a call that has begun then goes on, and its answer is
// lost.
func (s *Reservations) call(ctx context.Context, what What, c store.HoldCall) (reply answer, err error) {
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

// restate waits while another caller states the lost reservations of a group again. If the group is behind, it then
// states the rest. For example, if a promoted replica answers ten callers at the same time, the first states the lost
// reservations, and the others find none.
func (s *Reservations) restate(ctx context.Context, of int, behind bool) error {
	s.mu.Lock()
	g := s.groups[of]
	s.mu.Unlock()
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
	return s.stateAll(ctx, s.lostOf(of), make(map[int]bool))
}

// again is call for statements, which may come before lost ones are stated again.
func (s *Reservations) again(ctx context.Context, what What, c store.HoldCall) (reply answer, err error) {
	for range triesMax {
		if reply, err = s.once(ctx, what, c); err != nil || !reply.Behind {
			return reply, err
		}
	}
	return reply, errBehind
}

// answer is the answer to a call, or why there is none.
type answer struct {
	store.HoldReply
	number number
	err    error
}

// once makes a call once.
func (s *Reservations) once(ctx context.Context, what What, c store.HoldCall) (a answer, err error) {
	of, shard := s.Origin.GroupOf(&c.Group), s.Origin.ShardOf(&c.Group)
	c.Stream, c.After = s.marks(of)
	if s.Near {
		if a.HoldReply, err = s.Origin.Hold(ctx, c); err == nil {
			a.number = s.answered(of, &c.Group, &a.HoldReply)
		}
		return a, err
	}
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
				a.HoldReply, a.number = reply, s.answered(of, &c.Group, &reply)
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
	return len(reply.Answers) != len(c.Holds) && !reply.Behind && !(reply.Refused && other)
}

func totalsOf(reply *store.HoldReply) []store.Total {
	totals := make([]store.Total, len(reply.Answers))
	for i := range totals {
		totals[i] = reply.Answers[i].Total
	}
	return totals
}

// marks returns the stream, and After of a group's next call.
func (s *Reservations) marks(of int) (stream uint64, after store.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == 0 {
		s.stream = rand.Uint64() | 1
	}
	if g := s.groups[of]; g != nil && s.NowMs()-g.atMs < afterFor.Milliseconds() {
		after = g.after
	}
	return s.stream, after
}

// answered records the number of an answer. If a number comes a second time, the group has lost the call that it had
// answered with it first, and all later calls. For example, after the answers 5, 6 and 7 a second 6 shows that the
// first 6 and 7 are lost. Another epoch shows that the group has lost all. A group that was not called for long may
// have forgotten the stream, and count from 1 again.
func (s *Reservations) answered(of int, key *window.Key, reply *store.HoldReply) (is number) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, nowMs := s.groups[of], s.NowMs()
	if g != nil && g.after.Epoch != reply.Epoch {
		s.lose(lostAll, func(k *kept) bool { return k.numbers[of].n > 0 })
		g = nil
	}
	if g == nil || nowMs-g.atMs >= store.HoldKeptFor.Milliseconds() && reply.Number > 0 {
		g = &group{key: *key, after: store.Mark{Epoch: reply.Epoch}, seen: make(map[int64]bool),
			restating: make(chan struct{}, 1)}
		if s.groups == nil {
			s.groups = make(map[int]*group)
		}
		s.groups[of] = g
	}
	n := reply.Number
	g.provenMs = nowMs
	switch {
	case reply.Behind:
		if reply.Have < g.after.Number { // otherwise another answer has shown this loss
			s.rolledBack(of, g, reply.Have)
		}
		return is
	case n == 0:
		return is
	case g.seen[n]:
		s.rolledBack(of, g, n-1) // either of the two answers may be the one that was lost
	default:
		g.seen[n] = true
	}
	g.atMs, g.after.Number = nowMs, max(g.after.Number, n)
	if len(g.seen) > seenMax {
		for old := range g.seen {
			if old < g.after.Number-seenMax/2 {
				delete(g.seen, old)
			}
		}
	}
	return number{n, g.losses}
}

// rolledBack marks the reservations as lost that a group has answered after its have-th call. The mutex is held.
func (s *Reservations) rolledBack(of int, g *group, have int64) {
	g.after.Number, g.losses = have, g.losses+1
	for n := range g.seen {
		if n > have {
			delete(g.seen, n)
		}
	}
	s.lose(lostLatest, func(k *kept) bool { return k.numbers[of].n > have })
}

// stated is the result of statements: the answers in the order of the holds, and the numbers by group.
type stated struct {
	answers []store.HoldAnswer
	numbers map[int]number
	refused bool // by at least one group
}

// state makes statements about holds, with a call to each group at the same time.
func (s *Reservations) state(ctx context.Context, holds []store.Hold) (all stated, err error) {
	places := make(map[int][]int, 1)
	for i := range holds {
		of := s.Origin.GroupOf(&holds[i].Cell.Key)
		places[of] = append(places[of], i)
	}
	all = stated{answers: make([]store.HoldAnswer, len(holds)), numbers: make(map[int]number, len(places))}
	var mu sync.Mutex
	var groups sync.WaitGroup
	one := func(of int, at []int) {
		c := store.HoldCall{Group: holds[at[0]].Cell.Key}
		for _, i := range at {
			c.Holds = append(c.Holds, holds[i])
		}
		call := s.again
		if c.Holds[0].As == store.HoldNew {
			call = s.call
		}
		reply, e := call(ctx, Hold, c)
		mu.Lock()
		defer mu.Unlock()
		if e != nil {
			err = e
			return
		}
		all.numbers[of], all.refused = reply.number, all.refused || reply.Refused
		for n, i := range at {
			all.answers[i] = reply.Answers[n]
		}
	}
	for of, at := range places {
		if len(places) == 1 {
			one(of, at)
			break
		}
		groups.Go(func() { one(of, at) })
	}
	groups.Wait()
	s.unhear(holds)
	return all, err
}

// inOneGroup reports whether one call is about all holds and the record of an ID.
func inOneGroup(origin Origin, id string, holds []store.Hold) bool {
	key := store.RecordKey(id)
	of := origin.GroupOf(&key)
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

const drawsMax = 2000 // of 256 groups, it takes as many once in 2500
