package held

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Send states reservations again that the origin has lost or not acknowledged. It also checks whether the origin has
// lost any. Call it once a second. If a shard does not answer, a later call states the shard's reservations.
func (s *Reservations) Send(ctx context.Context) error {
	away := make(map[int]bool)
	return errors.Join(s.prove(ctx, away), s.stateAll(ctx, s.book.due(s.NowMs()), away))
}

// restatesMax is the most reservations that are stated again at the same time. Their calls take turns with those of the
// node's callers, so a caller's call begins after at most two of them that wait.
const restatesMax = 16

// stateAll states reservations again, several at a time, except those of a shard that is away. The next reservations of
// a shard wait until it has answered about the first. For example, a server that rejects writes gets one statement each
// second, so its breaker stays closed for reads.
//
// Reservations can be stated in any order, because several nodes state them too. The parts of a reservation keep their
// order: first its record, and then the holds that follow from the record.
func (s *Reservations) stateAll(ctx context.Context, some []*kept, away map[int]bool) error {
	all := restating{away: away, answered: make(map[int]bool)}
	places := make(chan struct{}, restatesMax)
	var underWay sync.WaitGroup
	for _, k := range some {
		places <- struct{}{}
		if ctx.Err() != nil {
			all.ended(nil, ctx.Err())
			break
		}
		shards := s.shardsOf(k)
		state := func() {
			defer func() { <-places }()
			all.ended(shards, s.stateAgain(ctx, k))
		}
		switch isAway, answered := all.of(shards); {
		case isAway:
			<-places
		case !answered:
			state()
		default:
			underWay.Go(state)
		}
	}
	underWay.Wait()
	return all.first
}

// restating has the results of a stateAll so far. Its methods may be called concurrently.
type restating struct {
	mu       sync.Mutex
	away     map[int]bool // shards that have not answered
	answered map[int]bool // shards that have answered about a reservation
	first    error
}

// of reports whether any shard of a reservation is away, and whether all of them have answered.
func (all *restating) of(shards []int) (isAway, answered bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	answered = true
	for _, shard := range shards {
		isAway, answered = isAway || all.away[shard], answered && all.answered[shard]
	}
	return isAway, answered
}

// ended records the result of stating a reservation.
func (all *restating) ended(shards []int, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if err == nil {
		for _, shard := range shards {
			all.answered[shard] = true
		}
		return
	}
	all.first = cmp.Or(all.first, err)
	if f := (failed{}); errors.As(err, &f) {
		all.away[f.shard] = true
	}
}

// shardsOf returns the shards of a reservation's record and holds.
func (s *Reservations) shardsOf(k *kept) (shards []int) {
	id, r, _ := s.book.look(k)
	if key := store.RecordKey(id); id != "" {
		shards = append(shards, s.Origin.ShardOf(&key))
	}
	for i := range r.Items {
		cell := r.Items[i].Cell()
		shards = append(shards, s.Origin.ShardOf(&cell.Key))
	}
	return shards
}

// prove checks whether each group that has recently answered still has its calls.
func (s *Reservations) prove(ctx context.Context, away map[int]bool) (first error) {
	for _, key := range s.book.unproven(s.NowMs()) {
		shard := s.Origin.ShardOf(&key)
		if away[shard] {
			continue
		}
		if _, err := s.once(ctx, Hold, &store.HoldCall{Group: key}); err != nil {
			away[shard], first = true, cmp.Or(first, err)
		}
	}
	return first
}

// stateAgain states a reservation again.
func (s *Reservations) stateAgain(ctx context.Context, k *kept) error {
	lost, as := s.book.restates(k, s.NowMs())
	err := s.stateRecord(ctx, k, lost)
	if err == nil {
		err = s.follow(ctx, k, as)
	}
	if err != nil {
		s.book.notRestated(k, lost)
	}
	return err
}

// stateRecord states a reservation's record again if it may be lost, or withdraws it.
func (s *Reservations) stateRecord(ctx context.Context, k *kept, lost bool) error {
	id, was, withdraw := s.book.look(k)
	if id == "" || !withdraw && !lost {
		return nil
	}
	r := &store.Record{ID: id, Text: was.Text(), Withdraw: withdraw}
	if !withdraw {
		r.Restored, r.Spent, r.Settled = true, was.spent(), was.Settled
		r.TTL = max(was.left(s.NowMs()), time.Millisecond) // so that an ended record is stored as ended
	}
	key := store.RecordKey(id)
	reply, err := s.again(ctx, Note, &store.HoldCall{Group: key, Record: r})
	if err == nil {
		s.book.take(k, s.Origin.GroupOf(&key), &reply, s.NowMs())
	}
	return err
}

// follow makes the statements about a reservation's holds that follow from its record. If the origin does not
// acknowledge them, or lacks a hold, Send states the reservation again.
func (s *Reservations) follow(ctx context.Context, k *kept, as store.HoldAs) error {
	r, nowMs := s.book.follows(k), s.NowMs()
	all, err := s.state(ctx, r.holds(as, nowMs))
	lacks := err == nil && as == store.HoldState && r.Open(nowMs) && r.lacksHolds(all.answers)
	s.book.followed(k, all.numbers, lacks, err)
	return err
}

// lacksHolds reports whether the origin lacks a hold of an open reservation, by its answers to statements of the holds.
func (r *Record) lacksHolds(answers []store.HoldAnswer) bool {
	for i := range answers {
		if !r.Items[i].Shadowed && !answers[i].Held {
			return true
		}
	}
	return false
}
