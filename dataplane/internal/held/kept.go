package held

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// kept is a reservation that this node has made, changed or taken back, as it was last stated.
type kept struct {
	id     string // "" if its record was never stored
	record *Record
	of     fair.Of // whose share of the room it takes
	size   int64   // of the room that it takes
	atMs   int64   // time of the last change

	numbers  numbers // of the latest answers about it
	made     bool    // this node made it: its holds are at the origin, unless they are lost
	unstated bool    // the origin has not acknowledged the statements about its holds
	withdraw bool    // its maker cannot find out whether the record was stored, and has decided otherwise
	lost     bool    // the origin may have lost it
}

const (
	settledKept = 10 * time.Second // a promoted replica can lack calls that were answered within this time
	pendingMax  = 1000             // most reservations that a turn states again
	sweepMax    = 5000             // most reservations that a turn checks for their end
)

// keep stores a reservation until it ends, and for HoldKeptFor after its last change. It merges the copy that was kept
// before. If there is no room, the reservation is not kept, and not stated again if the origin loses it.
func (s *Reservations) keep(k *kept) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := k.numbers
	if was := s.kept[k.record.MadeBy]; was != nil {
		was.record, was.id = was.record.merged(k.record), cmp.Or(was.id, k.id)
		was.made, was.unstated, was.withdraw = was.made || k.made, was.unstated || k.unstated, was.withdraw && k.withdraw
		k = was
	} else if k.of, k.size = k.record.of(), k.record.size(); !s.room.take(k.of, k.size) {
		return k
	} else {
		if s.kept == nil {
			s.kept, s.ids, s.pending = make(map[uint64]*kept), make(map[string]*kept), make(map[*kept]bool)
		}
		s.kept[k.record.MadeBy] = k
	}
	k.atMs = s.NowMs()
	s.number(k, answered)
	s.index(k)
	if k.id != "" && !k.withdraw {
		s.ids[k.id] = k
	}
	return k
}

// number records the numbers of answers about a reservation. If the origin has lost these calls meanwhile, the
// reservation must be stated again. The mutex must be held.
func (s *Reservations) number(k *kept, answered numbers) {
	for _, is := range answered {
		g, was := s.groups[is.group], k.numbers.of(is.group)
		if is.n > was.n || is.epoch != was.epoch {
			k.numbers.set(is.group, is.number)
		}
		if g != nil && is.n > 0 && (is.epoch != g.after.Epoch || is.losses != g.losses || !g.seen[is.n]) {
			k.lost = true
		}
	}
}

// index adds a reservation to pending, or removes it. The mutex must be held.
func (s *Reservations) index(k *kept) {
	if s.kept[k.record.MadeBy] != k {
		return
	}
	if delete(s.pending, k); k.unstated || k.withdraw || k.lost {
		s.pending[k] = true
	}
}

// forget removes a reservation. The mutex must be held.
func (s *Reservations) forget(k *kept) {
	if s.kept[k.record.MadeBy] == k {
		delete(s.kept, k.record.MadeBy)
		s.room.bytes.Give(k.of, k.size)
	}
	if s.ids[k.id] == k {
		delete(s.ids, k.id)
	}
	delete(s.pending, k)
}

// find returns the reservation with an ID that this node has made, found or changed, and for some time after its end.
// It returns nil if there is none.
func (s *Reservations) find(id string) *Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.ids[id]; k != nil {
		return k.record
	}
	return nil
}

// Full reports whether there is no room for a new reservation of its caller and namespace.
func (s *Reservations) Full(r *Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := r.of()
	if !s.room.hasRoom(of) && s.room.sweeps(s.NowMs()) { // nodes restore the totals of an ended reservation anyway
		for _, k := range s.kept {
			if !k.record.Open(s.NowMs()) && !s.pending[k] {
				s.forget(k)
			}
		}
		if s.Trim != nil {
			s.Trim()
		}
	}
	return !s.room.hasRoom(of)
}

// Lose makes the next Send state all kept reservations, because some part of the origin has lost its data.
func (s *Reservations) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(func(*kept) bool { return true })
}

// lose marks reservations as lost. The mutex must be held.
func (s *Reservations) lose(of func(k *kept) bool) {
	for _, k := range s.kept {
		if of(k) {
			k.lost, s.pending[k] = true, true
		}
	}
}

// follow makes the statements about a reservation's holds that follow from its record. If the origin does not
// acknowledge them, or lacks a hold, Send states the reservation again.
func (s *Reservations) follow(ctx context.Context, k *kept, as store.HoldAs) error {
	s.mu.Lock()
	r, nowMs := k.record, s.NowMs()
	k.unstated = false // unless the record changes meanwhile
	s.mu.Unlock()
	all, err := s.state(ctx, r.holds(as, nowMs))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number(k, all.numbers)
	k.unstated = k.unstated || err != nil
	for i := range all.answers {
		if err == nil && as == store.HoldState && r.Open(nowMs) && !r.Items[i].Shadowed && !all.answers[i].Held {
			k.lost = true
		}
	}
	s.index(k)
	return err
}

// Send states reservations again that the origin has lost or not acknowledged. It also checks whether the origin has
// lost any. Call it once a second. If a shard does not answer, a later call states the shard's reservations.
func (s *Reservations) Send(ctx context.Context) error {
	away := make(map[int]bool)
	return errors.Join(s.prove(ctx, away), s.stateAll(ctx, s.due(), away))
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := store.RecordKey(k.id); k.id != "" {
		shards = append(shards, s.Origin.ShardOf(&key))
	}
	for i := range k.record.Items {
		cell := k.record.Items[i].Cell()
		shards = append(shards, s.Origin.ShardOf(&cell.Key))
	}
	return shards
}

// prove checks whether each group that has recently answered still has its calls.
func (s *Reservations) prove(ctx context.Context, away map[int]bool) (first error) {
	for _, key := range s.unproven() {
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

// unproven returns keys of the groups that can lose calls that they answered, and that were not called in the last
// second. A group that is away is checked once it is back, because it may be a replica then.
func (s *Reservations) unproven() (keys []window.Key) {
	nowMs := s.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if nowMs-g.provenMs >= time.Second.Milliseconds() && g.provenMs-g.atMs < settledKept.Milliseconds() {
			keys = append(keys, g.key)
		}
	}
	return keys
}

// stateAgain states a reservation again.
func (s *Reservations) stateAgain(ctx context.Context, k *kept) error {
	s.mu.Lock()
	lost, as, isRecent := k.lost, store.HoldState, s.NowMs()-k.atMs < afterFor.Milliseconds()
	k.lost = false                  // unless more is lost meanwhile
	if lost || k.made && isRecent { // the final cost of a hold counts even if the hold is lost
		as = store.HoldForced
	}
	s.mu.Unlock()
	err := s.stateRecord(ctx, k, lost)
	if err == nil {
		err = s.follow(ctx, k, as)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		k.lost = k.lost || lost
		s.index(k)
	}
	return err
}

// stateRecord states a reservation's record again if it may be lost, or withdraws it.
func (s *Reservations) stateRecord(ctx context.Context, k *kept, lost bool) error {
	s.mu.Lock()
	id, was, withdraw := k.id, k.record, k.withdraw
	s.mu.Unlock()
	if id == "" || !withdraw && !lost {
		return nil
	}
	r := &store.Record{ID: id, Text: was.Text(), Withdraw: withdraw}
	if !withdraw {
		r.Restored, r.Spent, r.Settled = true, was.spent(), was.Settled
		r.TTL = max(was.left(s.NowMs()), time.Millisecond) // so that an ended record is stored as ended
	}
	reply, err := s.again(ctx, Note, &store.HoldCall{Group: store.RecordKey(id), Record: r})
	if err == nil {
		s.take(k, &reply)
	}
	return err
}

// take merges the stored record into a reservation. A withdrawn reservation is undone. If another reservation has the
// ID since, the first stays as it is, because its holds were granted.
func (s *Reservations) take(k *kept, reply *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err := Parse(&reply.Record)
	switch own := err == nil && is.MadeBy == k.record.MadeBy; {
	case own:
		k.record = k.record.merged(is)
		if k.withdraw && k.record.Open(s.NowMs()) && s.kept[k.record.MadeBy] == k { // another call has found it
			s.ids[k.id] = k
		}
	case k.withdraw:
		k.record = k.record.undone()
	}
	k.withdraw = false
	s.number(k, numbers{{s.Origin.GroupOf(new(store.RecordKey(k.id))), reply.number}})
}

// undone returns a copy of the reservation without any cost.
func (r *Record) undone() *Record {
	settled := Change{Settled: true}
	gone := settled.apply(r, 0)
	for i := range gone.Items {
		gone.Items[i].Spent = 0
	}
	return gone
}

// due returns reservations that must be stated again, and forgets some that have ended.
func (s *Reservations) due() (some []*kept) {
	nowMs := s.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.pending {
		if over := nowMs - k.record.EndsMs; over >= store.HoldKeptFor.Milliseconds() {
			s.forget(k)
		} else if len(some) < pendingMax {
			some = append(some, k)
		}
	}
	looked := 0
	for _, k := range s.kept {
		if looked++; looked > sweepMax {
			break
		}
		if !k.record.Open(nowMs) && nowMs-k.atMs >= store.HoldKeptFor.Milliseconds() && !s.pending[k] {
			s.forget(k)
		}
	}
	return some
}

// lostOf returns the reservations that a group has lost, and that must be stated again.
func (s *Reservations) lostOf(of int) (some []*kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.pending {
		if k.lost && k.numbers.of(of).n > 0 && len(some) < pendingMax {
			some = append(some, k)
		}
	}
	return some
}

// Each calls f for the open reservations that this node has made or changed.
func (s *Reservations) Each(f func(id string, r *Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nowMs := s.NowMs()
	for _, k := range s.kept {
		if k.id != "" && !k.withdraw && k.record.Open(nowMs) {
			f(k.id, k.record)
		}
	}
}

// Len returns the number of open reservations that this node has made or changed.
func (s *Reservations) Len() (n int) {
	s.Each(func(string, *Record) { n++ })
	return n
}
