package memstore

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// keyGrants are the slots that are granted for a key.
type keyGrants struct {
	nodes     map[uint64]nodeGrant
	leases    leaseEnds
	starvedMs int64 // Unix ms until which a lease counts as refused
}

// nodeGrant holds a node's slots. It stays for some time even with 0 slots, so that late calls are recognized.
type nodeGrant struct {
	slots     int64
	endsMs    int64 // Unix ms
	number    int64 // of the last call that was applied
	starvedMs int64 // Unix ms until which it counts as refused
}

// Grants implements store.Granter.
func (h *Origin) Grants(ctx context.Context, shard int, call store.GrantCall) (reply store.GrantReply, err error) {
	if len(call.Asks) == 0 {
		return reply, nil
	}
	err = store.CheckGrantCall(&call)
	if err == nil {
		err = h.inShard(shard, len(call.Asks), func(i int) *window.Key { return &call.Asks[i].Key })
	}
	if err != nil {
		return reply, opError(OpGrants, err)
	}
	j, err := h.depart(ctx, OpGrants, shard)
	if err != nil {
		return reply, err
	}
	if h.hold(func() { h.arriveGrants(shard, &call) }) {
		return reply, opError(OpGrants, errReplyLost)
	}
	if err := j.deliver(ctx, func() { reply = h.arriveGrants(shard, &call) }); err != nil {
		return store.GrantReply{}, err
	}
	return reply, nil
}

func (h *originServers) arriveGrants(shard int, call *store.GrantCall) store.GrantReply {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochLocked(shard)
	s, now := h.shardLocked(shard)
	nowMs := s.clock.steadyMs()
	reply := store.GrantReply{Answers: make([]store.GrantAnswer, len(call.Asks)), Now: now}
	for i := range call.Asks {
		ask, a := &call.Asks[i], &reply.Answers[i]
		if err := store.CheckGrantAsk(ask); err != nil {
			a.Err = opError(OpGrants, err)
			continue
		}
		*a = s.grantLocked(call, ask, nowMs)
	}
	s.sweepGrants(nowMs)
	return reply
}

// grantLocked applies an item of a call, as store.Granter describes it. All its times are those of shardClock.steadyMs.
func (s *originShard) grantLocked(call *store.GrantCall, ask *store.GrantAsk, nowMs int64) (a store.GrantAnswer) {
	g := s.grants[ask.Key]
	if g == nil {
		g = &keyGrants{nodes: make(map[uint64]nodeGrant)}
		s.grants[ask.Key] = g
	}
	g.expire(nowMs)
	was := g.nodes[call.Node]
	have, want := ask.Have, ask.Want
	if ask.Lease != "" {
		if was = (nodeGrant{slots: g.leases.held(ask.Lease)}); was.slots == 1 && have+want > 0 {
			have, want = 1, 0
		}
	}
	a.Others, a.Starved, a.RetryIn = g.others(call.Node, ask.Lease, nowMs)
	if ask.Lease == "" && call.Number <= was.number {
		if a.Held = was.slots; call.Number < was.number {
			a.Held, a.Err = 0, store.ErrGrantLate
		}
		return a
	}
	starvedMs, ttlMs := int64(0), ask.TTL.Milliseconds()
	if recoveringMs := s.lostMs + ttlMs - nowMs; recoveringMs > 0 {
		if a.Held = have; want > 0 {
			a.Err, a.RetryIn = store.ErrRecovering, time.Duration(recoveringMs)*time.Millisecond
		}
	} else {
		keep := min(have, was.slots)
		need, room := have-keep+want, max(0, ask.Limit-a.Others-keep)
		granted := min(need, room)
		if a.Held = keep + granted; !a.Starved {
			a.Held += min(ask.Spare, (room-granted)/2)
		}
		if granted < need && want > 0 {
			starvedMs = nowMs + store.GrantStarvedFor.Milliseconds()
		}
	}
	switch {
	case ask.Lease != "":
		g.starvedMs = max(g.starvedMs, starvedMs)
		g.leases.set(ask.Lease, a.Held, nowMs+ttlMs)
	case a.Held == 0:
		ttlMs = min(ttlMs, store.GrantKeptFor.Milliseconds())
		fallthrough
	default:
		g.nodes[call.Node] = nodeGrant{a.Held, nowMs + ttlMs, call.Number, starvedMs}
	}
	return a
}

// expire removes grants that have ended.
func (g *keyGrants) expire(nowMs int64) {
	maps.DeleteFunc(g.nodes, func(_ uint64, is nodeGrant) bool { return is.endsMs <= nowMs })
	for len(g.leases.ends) > 0 && g.leases.ends[0].ms <= nowMs {
		heap.Pop(&g.leases)
	}
}

// others adds up the slots that others hold than a lease or, without a lease, a node.
func (g *keyGrants) others(node uint64, lease string, nowMs int64) (slots int64, starved bool, in time.Duration) {
	slots = int64(len(g.leases.ends)) - g.leases.held(lease)
	firstMs := g.leases.first(lease)
	starved = lease == "" && g.starvedMs > nowMs
	for id, is := range g.nodes {
		if lease == "" && id == node {
			continue
		}
		starved = starved || is.starvedMs > nowMs
		if slots = capped(slots, is.slots); is.slots > 0 && (firstMs == 0 || is.endsMs < firstMs) {
			firstMs = is.endsMs
		}
	}
	return slots, starved, time.Duration(max(0, firstMs-nowMs)) * time.Millisecond
}

func (s *originShard) sweepGrants(nowMs int64) {
	if len(s.grants) < s.sweepGrantsAt {
		return
	}
	maps.DeleteFunc(s.grants, func(_ window.Key, g *keyGrants) bool {
		g.expire(nowMs)
		return len(g.nodes)+len(g.leases.ends) == 0
	})
	s.sweepGrantsAt = max(sweepMin, 2*len(s.grants))
}

func cloneGrants(of map[window.Key]*keyGrants) map[window.Key]*keyGrants {
	cloned := make(map[window.Key]*keyGrants, len(of))
	for key, g := range of {
		cloned[key] = &keyGrants{maps.Clone(g.nodes), leaseEnds{slices.Clone(g.leases.ends), maps.Clone(g.leases.places)},
			g.starvedMs}
	}
	return cloned
}

// Grants implements store.Granter.
func (c *Cluster) Grants(ctx context.Context, shard int, call store.GrantCall) (reply store.GrantReply, err error) {
	reply.Answers, reply.Now, err = scatter(c, OpGrants, shard, call.Asks,
		func(a *store.GrantAsk) *window.Key { return &a.Key },
		func(bucket int, asks []store.GrantAsk) ([]store.GrantAnswer, time.Time, error) {
			part, err := c.Origin.Grants(ctx, bucket, store.GrantCall{Node: call.Node, Number: call.Number, Asks: asks})
			return part.Answers, part.Now, err
		})
	return reply, err
}

// leaseEnds are the leases of a key: a heap, the first that ends first.
type leaseEnds struct {
	ends   []leaseEnd
	places map[string]int // by ID
}

type leaseEnd struct {
	id string
	ms int64 // Unix ms
}

// held returns 1 for a lease that is held.
func (l *leaseEnds) held(id string) int64 {
	if _, ok := l.places[id]; ok {
		return 1
	}
	return 0
}

// set raises the end of a lease that is held, with 1, or removes it, with 0.
func (l *leaseEnds) set(id string, held, endsMs int64) {
	place, ok := l.places[id]
	switch {
	case ok && held == 1:
		l.ends[place].ms = max(l.ends[place].ms, endsMs)
		heap.Fix(l, place)
	case ok:
		heap.Remove(l, place)
	case held == 1:
		heap.Push(l, leaseEnd{id, endsMs})
	}
}

// first returns when the first lease other than id ends, or 0.
func (l *leaseEnds) first(id string) (ms int64) {
	for _, end := range l.ends[:min(3, len(l.ends))] { // the second end in the heap is below the first
		if end.id != id && (ms == 0 || end.ms < ms) {
			ms = end.ms
		}
	}
	return ms
}

func (l *leaseEnds) Len() int           { return len(l.ends) }
func (l *leaseEnds) Less(i, j int) bool { return l.ends[i].ms < l.ends[j].ms }

func (l *leaseEnds) Swap(i, j int) {
	l.ends[i], l.ends[j] = l.ends[j], l.ends[i]
	l.places[l.ends[i].id], l.places[l.ends[j].id] = i, j
}

// Push implements heap.Interface.
func (l *leaseEnds) Push(x any) {
	if l.places == nil {
		l.places = make(map[string]int)
	}
	end := x.(leaseEnd)
	l.places[end.id] = len(l.ends)
	l.ends = append(l.ends, end)
}

// Pop implements heap.Interface.
func (l *leaseEnds) Pop() any {
	last := len(l.ends) - 1
	end := l.ends[last]
	delete(l.places, end.id)
	l.ends = l.ends[:last]
	return end
}
