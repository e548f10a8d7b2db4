package memstore

import (
	"context"
	"maps"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// slotsHeld is what one node holds of a key. It stays for its time with 0 slots too, so that late calls are known.
type slotsHeld struct {
	slots     int64
	endsMs    int64 // Unix ms
	number    int64 // of the last call that was applied
	starvedMs int64 // Unix ms until which it counts as refused
}

// Slots implements store.Granter.
func (h *Origin) Slots(ctx context.Context, shard int, call store.SlotsCall) (reply store.SlotsReply, err error) {
	if len(call.Asks) == 0 {
		return reply, nil
	}
	if err := store.CheckSlotsCall(&call); err != nil {
		return reply, opError(OpSlots, err)
	}
	err = h.inShard(shard, len(call.Asks), func(i int) *window.Key { return &call.Asks[i].Key })
	if err != nil {
		return reply, opError(OpSlots, err)
	}
	j, err := h.depart(ctx, OpSlots, shard)
	if err != nil {
		return reply, err
	}
	if h.hold(func() { h.arriveSlots(shard, call) }) {
		return store.SlotsReply{}, opError(OpSlots, errReplyLost)
	}
	arrive := func() { reply = h.arriveSlots(shard, call) }
	if err := j.deliver(ctx, arrive); err != nil { // what has left arrives
		return store.SlotsReply{}, err
	}
	return reply, nil
}

func (h *originServers) arriveSlots(shard int, call store.SlotsCall) store.SlotsReply {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochLocked(shard)
	s, now := h.shards[shard], h.clock()
	reply := store.SlotsReply{Answers: make([]store.SlotsAnswer, len(call.Asks)), Now: now}
	for i := range call.Asks {
		ask := &call.Asks[i]
		if err := store.CheckSlotsAsk(ask); err != nil {
			reply.Answers[i].Err = opError(OpSlots, err)
			continue
		}
		reply.Answers[i] = s.slotsLocked(call.Node, call.Number, ask, now.UnixMilli())
	}
	s.sweepSlots(now.UnixMilli())
	return reply
}

// slotsLocked is the formula of store.SlotsAsk.
func (s *originShard) slotsLocked(node uint64, number int64, ask *store.SlotsAsk, nowMs int64) (a store.SlotsAnswer) {
	held := s.heldOf(&ask.Key)
	a.Others, a.Starved, a.RetryIn = s.othersSlots(&ask.Key, node, nowMs)
	was := held[node]
	if number <= was.number {
		if a.Held = was.slots; number < was.number {
			a.Held, a.Err = 0, store.ErrSlotsLate
		}
		return a
	}
	next := slotsHeld{number: number, endsMs: nowMs + ask.TTL.Milliseconds()}
	keep := min(ask.Have, was.slots)
	want := ask.Have - keep + ask.Want
	if recovering := s.lostMs + ask.TTL.Milliseconds() - nowMs; recovering > 0 {
		keep, want = ask.Have, ask.Want
		if want > 0 {
			a.Err, a.RetryIn = store.ErrRecovering, time.Duration(recovering)*time.Millisecond
		}
		next.slots = keep
	} else {
		room := max(0, ask.Limit-a.Others-keep)
		granted := min(want, room)
		if !a.Starved {
			granted += min(ask.Spare, (room-granted)/2)
		}
		if next.slots = keep + granted; granted < want {
			next.starvedMs = nowMs + store.SlotsStarvedFor.Milliseconds()
		}
	}
	held[node] = next
	a.Held = next.slots
	return a
}

// heldOf is what nodes hold of a key.
func (s *originShard) heldOf(key *window.Key) map[uint64]slotsHeld {
	held := s.slots[*key]
	if held == nil {
		held = make(map[uint64]slotsHeld)
		s.slots[*key] = held
	}
	return held
}

// othersSlots removes what has ended, and adds up what is not a node's own.
func (s *originShard) othersSlots(key *window.Key, node uint64,
	nowMs int64) (slots int64, starved bool, in time.Duration) {
	soonest := func(endsMs int64) {
		if ends := time.Duration(endsMs-nowMs) * time.Millisecond; in == 0 || ends < in {
			in = ends
		}
	}
	leases := s.leases[*key]
	for id, endsMs := range leases {
		if endsMs <= nowMs {
			delete(leases, id)
			continue
		}
		soonest(endsMs)
	}
	slots = int64(len(leases))
	held := s.slots[*key]
	for id, is := range held {
		switch {
		case is.endsMs <= nowMs:
			delete(held, id)
			continue
		case id == node:
			continue
		}
		starved = starved || is.starvedMs > nowMs
		if slots = capped(slots, is.slots); is.slots > 0 {
			soonest(is.endsMs)
		}
	}
	return slots, starved, in
}

func (s *originShard) sweepSlots(nowMs int64) {
	if len(s.slots)+len(s.leases) < s.sweepSlotsAt {
		return
	}
	maps.DeleteFunc(s.slots, func(_ window.Key, held map[uint64]slotsHeld) bool {
		maps.DeleteFunc(held, func(_ uint64, is slotsHeld) bool { return is.endsMs <= nowMs })
		return len(held) == 0
	})
	maps.DeleteFunc(s.leases, func(_ window.Key, leases map[string]int64) bool {
		maps.DeleteFunc(leases, func(_ string, endsMs int64) bool { return endsMs <= nowMs })
		return len(leases) == 0
	})
	s.sweepSlotsAt = max(sweepMin, 2*(len(s.slots)+len(s.leases)))
}

func cloneEach[K, C comparable, V any](by map[K]map[C]V) map[K]map[C]V {
	cloned := make(map[K]map[C]V, len(by))
	for key, of := range by {
		cloned[key] = maps.Clone(of)
	}
	return cloned
}

// Slots implements store.Granter.
func (c *Cluster) Slots(ctx context.Context, shard int, call store.SlotsCall) (reply store.SlotsReply, err error) {
	reply.Answers, reply.Now, err = scatter(c, OpSlots, shard, call.Asks,
		func(a *store.SlotsAsk) *window.Key { return &a.Key },
		func(bucket int, asks []store.SlotsAsk) ([]store.SlotsAnswer, time.Time, error) {
			part, err := c.Origin.Slots(ctx, bucket, store.SlotsCall{Node: call.Node, Number: call.Number, Asks: asks})
			return part.Answers, part.Now, err
		})
	return reply, err
}
