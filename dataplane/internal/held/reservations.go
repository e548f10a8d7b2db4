package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// Max is how many reservations that have not ended a node has made, or changed.
	Max = 100_000

	// BytesMax is how many bytes they take, about.
	BytesMax = 256 << 20
)

var (
	// ErrNone is returned of an id that nothing is known of.
	ErrNone = errors.New("dataplane: no reservation has this id")

	// ErrUsed is returned of an id under which something else is reserved.
	ErrUsed = errors.New("dataplane: the id is that of another reservation")

	// ErrOver is ErrUsed where the same was reserved, and was settled or has ended.
	ErrOver error = overError{}

	// ErrMany is returned when there is no room for a reservation.
	ErrMany = errors.New("dataplane: too many reservations")

	// ErrFull is ErrMany of a node.
	ErrFull = fmt.Errorf("%w: the caller or its namespace has its share of this node's (%d in all, or %d bytes)",
		ErrMany, Max, BytesMax)
)

type overError struct{}

func (overError) Error() string {
	return "dataplane: the reservation of this id was settled, or has ended"
}
func (overError) Unwrap() error { return ErrUsed }

// Origin is where reservations are held.
type Origin interface {
	ShardOf(key *window.Key) int
	store.Reservations
}

// Reservations are the reservations at an origin.
type Reservations struct {
	Origin Origin // nil: there are none

	// Near means that the origin is in this process. Calls are made directly, not by Call, and no refusal is remembered.
	Near bool

	// Trim, unless it is nil, has the origin forget reservations that have ended, to make room for others.
	Trim func()

	// Call makes a call to a shard, which may be repeated, and reads the clock and the totals of its answer.
	Call func(ctx context.Context, shard int, what What, items int, call func(context.Context) (store.Reply, error)) error

	// Go runs a function in a goroutine. It reports false, and does not run it, once the node has stopped: calls return
	// Stopped then.
	Go      func(func()) bool
	Stopped error

	// Busy is the error of a call that did not begin in time, because too many were under way. That is no outage as long
	// as the origin answers others: NotBegun, called as the wait begins, returns a function that turns the error of the
	// context into Busy, or leaves it if no call was answered since.
	Busy     error
	NotBegun func(shard int) func(error) error

	// Heard merges the totals that came with holds.
	Heard func(shard int, holds []store.Hold, totals []store.Total)

	// NowMs is the origin's clock, in Unix ms.
	NowMs func() int64

	Stats Stats

	mu      sync.Mutex
	stream  uint64
	groups  map[int]*group
	kept    map[uint64]*kept // by Record.MadeBy
	ids     map[string]*kept
	pending map[*kept]bool // to state again
	room    room           // that they take
	heard   map[window.Cell]heard
	crowds  crowds
}

// What is a kind of call.
type What int

// Kinds of calls.
const (
	Hold What = iota // about holds, with or without the record
	Note             // about a record alone
)

// Away says that the origin has not answered.
type Away struct{ error }

// Unwrap implements errors.Unwrap.
func (a Away) Unwrap() error { return a.error }

// away is the error of a call that has failed. Too many calls under way are no outage.
func (s *Reservations) away(err error) error {
	if errors.Is(err, s.Busy) {
		return err
	}
	return Away{err}
}

// Judge judges answers to the items of a reservation; it may mark items as shadowed. The origin was not asked if it has
// just refused as much, or has not answered and the node knows the reservation.
type Judge func(answers []store.HoldAnswer, asked bool) (ok bool, err error)

// Reserve requests the holds of a reservation from the origin. If judge refuses or returns an error, nothing is held.
// Other errors come from the origin.
//
// It returns the reservation. If a reservation for the same request already has this ID, it returns that, also if it
// was made by another node or in an earlier cell.
func (s *Reservations) Reserve(ctx context.Context, id string, r *Record,
	judge Judge) (is *Record, ok bool, err error) {
	made := false
	defer func() { s.Stats.reserved(made, ok, err) }()
	holds := r.holds(store.HoldNew, r.MadeMs)
	if refused := s.refusal(id, holds); refused != nil {
		if ok, err = judge(refused, false); err != nil {
			return r, false, err
		} else if !ok {
			return s.existing(ctx, id, r, judge)
		}
	}
	if s.shut(id, r, holds) {
		return r, false, ErrShare
	}
	text := r.Text()
	c := store.HoldCall{Group: store.RecordKey(id), Record: &store.Record{ID: id, Text: text, Spent: r.spent(),
		TTL: r.left(r.MadeMs)}}
	var all stated
	one := inOneGroup(s.Origin, id, holds)
	if !one && s.find(id) != nil { // it needs no holds, unless the origin has forgotten the reservation
		reply, err := s.call(ctx, Note, store.HoldCall{Group: c.Group, Record: &store.Record{ID: id}})
		if err != nil {
			return s.out(id, r, judge, err)
		} else if reply.Record.Text != "" {
			return s.found(ctx, id, r, &reply, judge)
		}
	}
	if one {
		c.Holds = holds
	} else if all, err = s.state(ctx, tentative(holds)); err != nil {
		s.takeBack(ctx, r)
		return s.out(id, r, judge, err)
	} else if all.refused {
		s.takeBack(ctx, r)
		if err = s.denied(holds, all.answers, judge); err != nil {
			return r, false, err
		}
		return s.existing(ctx, id, r, judge)
	}
	reply, err := s.call(ctx, Hold, c)
	other := reply.Record.Text != "" && reply.Record.Text != text
	switch {
	case err != nil:
		s.withdraw(id, r)
		return s.out(id, r, judge, err)
	case other && !one:
		s.takeBack(ctx, r)
		fallthrough
	case other, reply.Record.Settled: // its own is settled if an answer was lost, and another node settled it meanwhile
		return s.found(ctx, id, r, &reply, judge)
	case one && reply.Refused:
		return r, false, s.denied(holds, reply.Answers, judge)
	case one:
		all = stated{answers: reply.Answers, numbers: make(map[int]number)}
		s.unhear(holds)
	}
	if s.exceeds(r, holds, all.answers) {
		s.withdraw(id, r)
		return r, false, ErrShare
	}
	if ok, err = judge(all.answers, true); !ok || err != nil {
		s.withdraw(id, r)
		return r, false, err
	}
	made, r.EndsMs = true, cmp.Or(reply.Record.EndsMs, r.EndsMs) // by the origin's clock, as the record has it
	all.numbers[s.Origin.GroupOf(&c.Group)] = reply.number
	k := s.keep(&kept{id: id, record: r, numbers: all.numbers, made: true, unstated: !one})
	if !one {
		_ = s.stateAgain(ctx, k) // Send states it again
	}
	return r, true, nil
}

// tentative are holds while another group may refuse the rest.
func tentative(holds []store.Hold) []store.Hold {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].Tentative = true
	}
	return holds
}

// denied judges a refusal of the origin's, and takes note of it.
func (s *Reservations) denied(holds []store.Hold, answers []store.HoldAnswer, judge Judge) error {
	_, err := judge(answers, true)
	if err == nil {
		s.refused(holds, answers)
	}
	return err
}

// out is the result of a request that got no answer. If this node knows the reservation of its ID, the request is
// answered as the origin would: otherwise an outage policy could reserve the cost a second time.
func (s *Reservations) out(id string, r *Record, judge Judge, err error) (is *Record, ok bool, _ error) {
	was := s.find(id)
	switch {
	case was == nil:
		return r, false, s.away(err)
	case !was.Same(r):
		return r, false, ErrUsed
	case !was.Open(s.NowMs()):
		return r, false, ErrOver
	}
	answers := make([]store.HoldAnswer, len(r.Items))
	for i := range answers {
		answers[i].Fits = true
	}
	ok, err = judge(answers, false)
	return was, ok, err
}

// takeBack ends the holds of a reservation that was not made, if any were granted.
func (s *Reservations) takeBack(ctx context.Context, r *Record) {
	k := s.keep(&kept{record: r.undone(), numbers: make(map[int]number), unstated: true})
	_ = s.follow(ctx, k, store.HoldState) // Send states it again
}

// withdraw has Send end a reservation whose record may be stored, unless another call has found it.
func (s *Reservations) withdraw(id string, r *Record) {
	of := *r // r may be judged again while Send reads the record
	of.Items = slices.Clone(r.Items)
	s.keep(&kept{id: id, record: &of, numbers: make(map[int]number), unstated: true, withdraw: true})
}

// existing is called when holds were refused. It returns the reservation with this ID if there is one for the same
// request. That takes one call to the origin, or none if the ID was drawn.
func (s *Reservations) existing(ctx context.Context, id string, r *Record,
	judge Judge) (is *Record, ok bool, err error) {
	if r.New {
		return r, false, nil
	}
	reply, err := s.call(ctx, Note, store.HoldCall{Group: store.RecordKey(id), Record: &store.Record{ID: id}})
	if err == nil && reply.Record.Text != "" {
		return s.found(ctx, id, r, &reply, judge)
	}
	return r, false, nil // the holds were refused, whatever came of the question
}

// found returns the reservation of a stored record, if it is open and r asks for the same.
func (s *Reservations) found(ctx context.Context, id string, r *Record, reply *answer,
	judge Judge) (is *Record, ok bool, err error) {
	was, err := Parse(&reply.Record)
	if err == nil {
		was.By = r.By
	}
	switch {
	case err != nil || !was.Same(r):
		return r, false, ErrUsed
	case !was.Open(reply.Now.UnixMilli()):
		return r, false, ErrOver
	}
	all, err := s.state(ctx, was.holds(store.HoldState, s.NowMs())) // for the counts; it changes nothing
	key := store.RecordKey(id)
	if of := s.Origin.GroupOf(&key); all.numbers[of].n == 0 {
		all.numbers[of] = reply.number
	}
	s.keep(&kept{id: id, record: was, numbers: all.numbers, unstated: err != nil})
	for i := range all.answers {
		all.answers[i].Fits = true
	}
	ok, err = judge(all.answers, true)
	return was, ok, err
}

// Change changes a reservation, and states its holds. A node that finds it settled or ended states them too, because
// the node that changed it last may have died before it did, or not know that its change was stored.
//
// late is true if the reservation was settled or had ended.
func (s *Reservations) Change(ctx context.Context, id string, by Change) (r *Record, late bool, err error) {
	if err := by.checkCosts(); err != nil {
		return nil, false, err
	}
	c := store.HoldCall{Group: store.RecordKey(id), Record: by.record(id)}
	reply, err := s.call(ctx, Note, c)
	if err == nil && reply.Record.Text == "" && s.stateLost(ctx, id) {
		reply, err = s.call(ctx, Note, c)
	}
	switch {
	case err != nil:
		s.Stats.NoReply.Add(1)
		return nil, false, s.away(err)
	case reply.Record.Text == "":
		s.Stats.Unknown.Add(1)
		return nil, false, ErrNone
	}
	r, err = Parse(&reply.Record)
	if err != nil {
		return nil, false, err
	}
	r.By = fair.In(ctx)
	late = !reply.Record.Changed
	if late && r.Open(reply.Now.UnixMilli()) {
		if err := by.check(len(r.Items)); err != nil {
			return nil, false, err
		}
	}
	s.Stats.changed(r, !late)
	k := s.keep(&kept{id: id, record: r, numbers: map[int]number{s.Origin.GroupOf(&c.Group): reply.number}, made: !late,
		unstated: true})
	_ = s.stateAgain(ctx, k) // Send states it again
	return r, late, nil
}

// stateLost states a reservation that the origin has lost. One that was changed here long ago may be forgotten instead:
// another node has settled it.
func (s *Reservations) stateLost(ctx context.Context, id string) bool {
	s.mu.Lock()
	k := s.ids[id]
	nowMs := s.NowMs()
	lost := k != nil && k.record.Open(nowMs) && (k.lost != lostNothing || nowMs-k.atMs < afterFor.Milliseconds())
	if lost {
		k.lost = max(k.lost, lostLatest)
	}
	s.mu.Unlock()
	return lost && s.stateAgain(ctx, k) == nil
}
