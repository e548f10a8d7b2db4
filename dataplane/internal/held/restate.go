package held

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Send states reservations again that the origin has lost or not acknowledged. It also checks whether the origin has
// lost any. Call it once a second. If a shard does not answer, a later call states the shard's reservations.
func (s *Reservations) Send(ctx context.Context) error {
	away := make(map[int]bool)
	return errors.Join(s.prove(ctx, away), s.stateAll(ctx, s.book.due(s.NowMs()), away))
}

// stateAll states reservations again, except those of a shard that is away.
func (s *Reservations) stateAll(ctx context.Context, some []*kept, away map[int]bool) (first error) {
	for _, k := range some {
		if ctx.Err() != nil {
			return cmp.Or(first, ctx.Err())
		}
		if slices.ContainsFunc(s.shardsOf(k), func(shard int) bool { return away[shard] }) {
			continue
		}
		if err := s.stateAgain(ctx, k); err != nil {
			first = cmp.Or(first, err)
			if f := (failed{}); errors.As(err, &f) {
				away[f.shard] = true
			}
		}
	}
	return first
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
