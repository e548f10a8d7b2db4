package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// Max is the most reservations that a node keeps of those that it has made or changed.
	Max = 100_000

	// BytesMax is about the most bytes that they take.
	BytesMax = 256 << 20
)

var (
	// ErrNone is returned for an ID without a reservation.
	ErrNone = errors.New("dataplane: no reservation has this id")

	// ErrUsed is returned for an ID with a reservation for another request.
	ErrUsed = errors.New("dataplane: another reservation has this id")

	// ErrOver is an ErrUsed for an ID with a reservation for the same request that was settled or has ended.
	ErrOver error = overError{}

	// ErrMany is returned when there is no room for a reservation.
	ErrMany = errors.New("dataplane: too many reservations")

	// ErrFull is an ErrMany for a node without room.
	ErrFull = fmt.Errorf("%w: the caller or its namespace has its share of this node's (%d in all, or %d bytes)",
		ErrMany, Max, BytesMax)
)

type overError struct{}

func (overError) Error() string {
	return "dataplane: the reservation of this id was settled, or has ended"
}
func (overError) Unwrap() error { return ErrUsed }

// Origin is the store of the reservations.
type Origin interface {
	ShardOf(key *window.Key) int
	store.Reservations
}

// Reservations are the reservations at an origin.
type Reservations struct {
	Origin Origin // nil: there are none

	// Near must be set if the origin is in this process. Calls are then made directly, without Call, and no refusal is
	// remembered.
	Near bool

	// Trim, if not nil, makes the origin forget reservations that have ended, so that there is room for others.
	Trim func()

	// Call makes a call to a shard, which may be repeated, and reads the clock and the totals of its answer.
	Call func(ctx context.Context, shard int, what What, items int, call func(context.Context) (store.Reply, error)) error

	// Go runs a function in a goroutine. Once the node has stopped, it returns false and does not run the function, and
	// calls return Stopped.
	Go      func(func()) bool
	Stopped error

	// Busy is the error of a call that did not begin in time, because too many were under way. That is no outage as long
	// as the origin answers other calls. NotBegun is called when the wait begins. It returns a function that turns the
	// error of the context into Busy, or leaves it if no call was answered since.
	Busy     error
	NotBegun func(shard int) func(error) error

	// Heard merges the totals that came with holds.
	Heard func(shard int, holds []store.Hold, totals []store.Total)

	// NowMs returns the origin's time, in Unix ms.
	NowMs func() int64

	Stats Stats

	book     book
	refusals refusals
}

// What is a kind of call.
type What int

// Kinds of calls.
const (
	Hold What = iota // about holds, with or without the record
	Note             // about a record alone
)

// Away is the error of a call that the origin has not answered.
type Away struct{ error }

// Unwrap implements errors.Unwrap.
func (a Away) Unwrap() error { return a.error }

// away returns the error of a failed call. Too many calls under way are no outage.
func (s *Reservations) away(err error) error {
	if errors.Is(err, s.Busy) {
		return err
	}
	return Away{err}
}

// Judge judges the answers to the items of a reservation, and may mark items as shadowed. asked is false if the origin
// was not called, because it has just refused as much, or if it has not answered and this node has the reservation.
type Judge func(answers []store.HoldAnswer, asked bool) (ok bool, err error)

// Reserve requests the holds of a reservation from the origin. If judge refuses or returns an error, nothing is held.
// Other errors come from the origin.
//
// It returns the reservation. If a reservation for the same request already has this ID, it returns that reservation,
// even if another node made it or it belongs to an earlier cell.
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
	if s.book.shut(id, r, holds, s.NowMs()) {
		return r, false, ErrShare
	}
	if err = ctx.Err(); err != nil && !s.Near { // no call was sent, so there is nothing to withdraw
		return s.out(id, r, judge, err)
	}
	c := &store.HoldCall{Group: store.RecordKey(id), Record: &store.Record{ID: id, Spent: r.spent(),
		TTL: r.left(r.MadeMs)}}
	var all stated
	of := s.Origin.GroupOf(&c.Group)
	one := areIn(s.Origin, of, holds)
	if !one && s.book.find(id) != nil { // it needs no holds, unless the origin has forgotten the reservation
		reply, err := s.call(ctx, Note, &store.HoldCall{Group: c.Group, Record: &store.Record{ID: id}})
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
	} else {
		r.madeIn(s.Origin, all.numbers)
	}
	reply, err := s.create(ctx, r, c)
	other := reply.Record.Text != "" && reply.Record.Text != c.Record.Text
	switch {
	case err != nil && c.Record.Text == "": // no call was sent, so there is nothing to withdraw
		return s.out(id, r, judge, err)
	case err != nil:
		s.withdraw(id, r)
		return s.out(id, r, judge, err)
	case other && !one:
		s.takeBack(ctx, r)
		fallthrough
	case other, reply.Record.Settled: // own record: an answer was lost, and another node has settled it
		return s.found(ctx, id, r, &reply, judge)
	case one && reply.Refused:
		return r, false, s.denied(holds, reply.Answers, judge)
	case one:
		all = stated{answers: reply.Answers}
		s.refusals.forget(holds)
	}
	if s.book.exceeds(r, holds, all.answers, s.NowMs()) {
		s.withdraw(id, r)
		return r, false, ErrShare
	}
	if ok, err = judge(all.answers, true); !ok || err != nil {
		s.withdraw(id, r)
		return r, false, err
	}
	made, r.EndsMs = true, cmp.Or(reply.Record.EndsMs, r.EndsMs) // by the origin's clock, from the record
	all.numbers.set(of, reply.number)
	k := s.book.keep(&kept{id: id, record: r, numbers: all.numbers, made: true, unstated: !one}, s.NowMs())
	if !one {
		_ = s.stateAgain(ctx, k) // if it fails, Send states it again
	}
	return r, true, nil
}

// refusal returns the answers that the origin would give to a request for new holds: see refusals.answers. It returns
// nil if this node has a reservation of the ID.
func (s *Reservations) refusal(id string, holds []store.Hold) []store.HoldAnswer {
	if s.Near || s.book.find(id) != nil {
		return nil
	}
	return s.refusals.answers(holds, s.NowMs())
}

// madeIn records in a new reservation in which epochs its holds were made.
func (r *Record) madeIn(origin Origin, answered numbers) {
	for i := range r.Items {
		cell := r.Items[i].Cell()
		r.Items[i].Epoch = answered.of(origin.GroupOf(&cell.Key)).epoch
	}
}

// create stores a new reservation's record, and makes its holds if they are in the call. If their group was emptied
// since its last answer, it makes them in the new epoch.
func (s *Reservations) create(ctx context.Context, r *Record, c *store.HoldCall) (reply answer, err error) {
	for range triesMax {
		if len(c.Holds) > 0 {
			if err = s.inEpoch(ctx, r, c); err != nil {
				return reply, err
			}
		}
		c.Record.Text = r.Text()
		if reply, err = s.call(ctx, Hold, c); err != nil || !reply.Emptied {
			return reply, err
		}
	}
	return reply, errEmptied
}

// inEpoch records in a new reservation and its holds in which epoch they are made. It calls a group that has never
// answered.
func (s *Reservations) inEpoch(ctx context.Context, r *Record, c *store.HoldCall) error {
	epoch := store.Epoch(0)
	if !s.Near { // an origin in this process is never emptied
		of := s.Origin.GroupOf(&c.Group)
		if s.book.epochOf(of) == 0 {
			if _, err := s.again(ctx, Hold, &store.HoldCall{Group: c.Group}); err != nil {
				return err
			}
		}
		epoch = s.book.epochOf(of)
	}
	for i := range c.Holds {
		c.Holds[i].Epoch, r.Items[i].Epoch = epoch, epoch
	}
	return nil
}

// tentative returns holds that another group may still refuse.
func tentative(holds []store.Hold) []store.Hold {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].Tentative = true
	}
	return holds
}

// denied judges a refusal of the origin, and records it.
func (s *Reservations) denied(holds []store.Hold, answers []store.HoldAnswer, judge Judge) error {
	_, err := judge(answers, true)
	if err == nil && !s.Near {
		s.refusals.add(holds, answers, s.NowMs())
	}
	return err
}

// out returns the result of a request without an answer. If this node has the reservation with its ID, the result is
// that of the origin. Otherwise an outage policy could reserve the cost a second time.
func (s *Reservations) out(id string, r *Record, judge Judge, err error) (is *Record, ok bool, _ error) {
	was := s.book.find(id)
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
	k := s.book.keep(&kept{record: r.undone(), unstated: true}, s.NowMs())
	_ = s.follow(ctx, k, store.HoldState) // if it fails, Send states it again
}

// withdraw makes Send end a reservation whose record may be stored, unless another call has found it.
func (s *Reservations) withdraw(id string, r *Record) {
	of := *r // a copy, because r may be judged again while Send reads the record
	of.Items = slices.Clone(r.Items)
	s.book.keep(&kept{id: id, record: &of, unstated: true, withdraw: true}, s.NowMs())
}

// existing returns the reservation with this ID, if it is for the same request. It is called when holds were refused,
// and takes a call to the origin, or none if the ID was drawn.
func (s *Reservations) existing(ctx context.Context, id string, r *Record,
	judge Judge) (is *Record, ok bool, err error) {
	if r.New {
		return r, false, nil
	}
	reply, err := s.call(ctx, Note, &store.HoldCall{Group: store.RecordKey(id), Record: &store.Record{ID: id}})
	if err == nil && reply.Record.Text != "" {
		return s.found(ctx, id, r, &reply, judge)
	}
	return r, false, nil // the holds were refused, whether or not this call succeeded
}

// found returns the reservation of a stored record, if it is open and for the same request as r.
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
	of := s.Origin.GroupOf(&key)
	if all.numbers.of(of).n == 0 {
		all.numbers.set(of, reply.number)
	}
	k := s.book.keep(&kept{id: id, record: was, numbers: all.numbers, unstated: err != nil}, s.NowMs())
	if !s.Near && all.numbers.of(of).n == 0 { // a refused call has no number, by which its loss would show
		_ = s.stateRecord(ctx, k, true)
	}
	for i := range all.answers {
		all.answers[i].Fits = true
	}
	ok, err = judge(all.answers, true)
	return was, ok, err
}

// Change changes a reservation, and states its holds. If the reservation is settled or has ended already, Change states
// the holds too: the node that changed it last may have died before it did, or may have received no answer.
//
// late reports whether the reservation was settled or had ended.
func (s *Reservations) Change(ctx context.Context, id string, by Change) (r *Record, late bool, err error) {
	if err := by.checkCosts(); err != nil {
		return nil, false, err
	}
	c := &store.HoldCall{Group: store.RecordKey(id), Record: by.record(id)}
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
	k := &kept{id: id, record: r, made: !late, unstated: true}
	k.numbers.set(s.Origin.GroupOf(&c.Group), reply.number)
	k = s.book.keep(k, s.NowMs())
	_ = s.stateAgain(ctx, k) // if it fails, Send states it again
	return r, late, nil
}

// stateLost states a reservation again that the origin has lost, and reports whether it did. A reservation that was
// changed here long ago may be forgotten instead, because another node has settled it.
func (s *Reservations) stateLost(ctx context.Context, id string) bool {
	k := s.book.loseID(id, s.NowMs())
	return k != nil && s.stateAgain(ctx, k) == nil
}

// Full reports whether there is no room for a new reservation of its caller and namespace.
func (s *Reservations) Full(r *Record) bool {
	has, swept := s.book.hasRoom(r.of(), s.NowMs())
	if swept && s.Trim != nil {
		s.Trim()
	}
	return !has
}

// Lose makes the next Send state all kept reservations, because some part of the origin has lost its data.
func (s *Reservations) Lose() { s.book.loseAll() }

// Each calls f for the open reservations that this node has made or changed.
func (s *Reservations) Each(f func(id string, r *Record)) { s.book.each(s.NowMs(), f) }

// Len returns the number of open reservations that this node has made or changed.
func (s *Reservations) Len() (n int) {
	s.Each(func(string, *Record) { n++ })
	return n
}
