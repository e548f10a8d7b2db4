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
	size   int64   // of the room
	atMs   int64   // when it was changed last

	numbers  map[int]number // by group: of the latest answer about it
	made     bool           // it was: its holds are at the origin, unless they are lost
	unstated bool           // the origin has not acknowledged its holds as they follow from the record
	withdraw bool           // its maker does not know whether the record was stored, and has decided otherwise
	lost     loss
}

// loss is how much the origin may have lost of a reservation.
type loss uint8

const (
	lostNothing loss = iota
	lostLatest       // a replica was promoted that lacks the latest calls
	lostAll          // a server has lost its data: totals are restored, and the holds with them
)

const (
	settledKept = 10 * time.Second // a promoted replica may lack calls that were answered so long ago
	pendingMax  = 1000             // reservations that a turn states again
	sweepMax    = 5000             // reservations that a turn looks at to forget them
)

// keep remembers a reservation until it ends, and for HoldKeptFor after its last change. It merges the copy that was
// kept before. If there is no room, the reservation is not kept, and not stated again if the origin loses it.
func (s *Reservations) keep(k *kept) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := k.numbers
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
		s.kept[k.record.MadeBy], k.numbers = k, make(map[int]number)
	}
	k.atMs = s.NowMs()
	s.number(k, numbers)
	s.index(k)
	if k.id != "" && !k.withdraw {
		s.ids[k.id] = k
	}
	return k
}

// number takes note of the numbers of answers about a reservation. Those that the origin has lost meanwhile have to be
// stated again. The mutex is held.
func (s *Reservations) number(k *kept, numbers map[int]number) {
	for of, is := range numbers {
		if is.n > k.numbers[of].n {
			k.numbers[of] = is
		}
		if g := s.groups[of]; g != nil && is.n > 0 && (!g.seen[is.n] || is.losses != g.losses) {
			k.lost = max(k.lost, lostLatest)
		}
	}
}

// index adds a reservation to those that are to be stated again, or removes it. The mutex is held.
func (s *Reservations) index(k *kept) {
	if s.kept[k.record.MadeBy] != k {
		return
	}
	if delete(s.pending, k); k.unstated || k.withdraw || k.lost != lostNothing {
		s.pending[k] = true
	}
}

// forget is called with the mutex held.
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

// find returns the reservation of an ID that this node has made, found or changed, also for some time after its end. It
// returns nil if there is none.
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
	if !s.room.hasRoom(of) && s.room.sweeps(s.NowMs()) { // nodes restore the totals of an ended reservation that is lost
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

// Lose has the next Send state all that is kept: some part of the origin has lost its data.
func (s *Reservations) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(lostAll, func(*kept) bool { return true })
}

// lose is called with the mutex held.
func (s *Reservations) lose(what loss, of func(k *kept) bool) {
	for _, k := range s.kept {
		if of(k) {
			k.lost = max(k.lost, what)
			s.pending[k] = true
		}
	}
}

// follow states what follows from a reservation's record for its holds. If the origin does not take it, or does not
// know a hold, Send states it again.
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
			k.lost = max(k.lost, lostLatest)
		}
	}
	s.index(k)
	return err
}

// Send states reservations again that the origin has lost or not acknowledged, and finds out whether it has lost any.
// It is called each second. If a shard does not answer, a later call states the shard's reservations.
func (s *Reservations) Send(ctx context.Context) error {
	away := make(map[int]bool)
	return errors.Join(s.prove(ctx, away), s.stateAll(ctx, s.due(), away))
}

// stateAll states reservations again, without those of a shard that is away.
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

// shardsOf are where a reservation's record and its holds are.
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

// prove asks each group that has lately answered whether it still has that.
func (s *Reservations) prove(ctx context.Context, away map[int]bool) (first error) {
	for _, key := range s.unproven() {
		shard := s.Origin.ShardOf(&key)
		if away[shard] {
			continue
		}
		if _, err := s.once(ctx, Hold, store.HoldCall{Group: key}); err != nil {
			away[shard], first = true, cmp.Or(first, err)
		}
	}
	return first
}

// unproven returns keys of the groups that can lose calls that they answered, and were not called in the last second. A
// group that is away is asked once it is back, which may be a replica.
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
	k.lost = lostNothing // unless more is lost meanwhile
	switch {
	case lost == lostAll:
		as = store.HoldRestored
	case lost == lostLatest || k.made && isRecent: // the final cost of a hold counts even if the hold is lost
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
		k.lost = max(k.lost, lost)
		s.index(k)
	}
	return err
}

// stateRecord states a reservation's record again if it may be lost, or withdraws it.
func (s *Reservations) stateRecord(ctx context.Context, k *kept, lost loss) error {
	s.mu.Lock()
	was, withdraw := k.record, k.withdraw
	s.mu.Unlock()
	if k.id == "" || !withdraw && lost == lostNothing {
		return nil
	}
	r := &store.Record{ID: k.id, Text: was.Text(), Withdraw: withdraw}
	if !withdraw {
		r.Restored, r.Spent, r.Settled = true, was.spent(), was.Settled
		r.TTL = max(was.left(s.NowMs()), time.Millisecond) // an ended record is stored as ended
	}
	reply, err := s.again(ctx, Note, store.HoldCall{Group: store.RecordKey(k.id), Record: r})
	if err == nil {
		s.take(k, &reply)
	}
	return err
}

// take merges the stored record into a reservation. A withdrawn reservation is undone. If another reservation has the
// ID since, the first goes on as it is, because its holds were granted.
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
	s.number(k, map[int]number{s.Origin.GroupOf(new(store.RecordKey(k.id))): reply.number})
}

// undone is a reservation of which nothing counts.
func (r *Record) undone() *Record {
	settled := Change{Settled: true}
	gone := settled.apply(r, 0)
	for i := range gone.Items {
		gone.Items[i].Spent = 0
	}
	return gone
}

// due returns reservations to state again, and forgets some that have ended.
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

// lostOf returns the reservations to state again that a group has lost.
func (s *Reservations) lostOf(of int) (some []*kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.pending {
		if k.lost != lostNothing && k.numbers[of].n > 0 && len(some) < pendingMax {
			some = append(some, k)
		}
	}
	return some
}

// Each calls f with the reservations that are open, as far as this node has made or changed them.
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

// Len returns how many open reservations this node has made or changed.
func (s *Reservations) Len() (n int) {
	s.Each(func(string, *Record) { n++ })
	return n
}
