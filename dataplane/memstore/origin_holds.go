package memstore

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// GroupOf implements store.Granter.
func (h *Origin) GroupOf(key *window.Key) int { return h.ShardOf(key) }

// Hold implements store.Granter.
func (h *Origin) Hold(ctx context.Context, call store.HoldCall) (reply store.HoldReply, err error) {
	group := h.GroupOf(&call.Group)
	err = store.CheckHoldCall(&call)
	if err == nil {
		err = h.inShard(group, len(call.Holds), func(i int) *window.Key { return &call.Holds[i].Cell.Key })
	}
	if err == nil && call.Record != nil {
		key := store.RecordKey(call.Record.ID)
		err = h.inShard(group, 1, func(int) *window.Key { return &key })
	}
	if err != nil {
		return reply, opError(OpHold, err)
	}
	err = h.call(ctx, OpHold, group, func(s *originShard, epoch store.Epoch) error {
		now := h.clock()
		g := holding{originShard: s, servers: h.originServers, nowMs: now.UnixMilli()}
		reply = s.holds.Apply(&call, &g, epoch, s.clock.steadyMs())
		reply.Now = now
		if reply.Record.EndsMs != 0 {
			reply.Record.EndsMs -= s.clock.back.Milliseconds()
		}
		if !reply.Refused && !reply.Behind && !reply.Emptied {
			g.raise(call.Holds)
		}
		for i := range reply.Answers {
			r, total := s.record(call.Holds[i].Cell, g.nowMs), &reply.Answers[i].Total
			total.Region, total.Foreign, total.Epoch = r.region(), r.foreign, epoch
		}
		return nil
	})
	if err != nil {
		return store.HoldReply{}, err
	}
	return reply, nil
}

// holding is a shard's counts, for a call about holds. The cell's added cost includes holds.Cell.Most, and its known
// cost holds.Cell.Restored.
type holding struct {
	*originShard
	servers *originServers
	nowMs   int64
}

// Expired implements holds.Counts.
func (g *holding) Expired(c window.Cell) bool {
	return c.ExpiresAtMs()+(g.servers.grace+jitter(c)).Milliseconds() <= g.nowMs || g.clock.early(&c, g.nowMs)
}

// Used implements holds.Counts.
func (g *holding) Used(c *window.Cell, held *holds.Cell) int64 {
	r := g.record(*c, g.nowMs)
	known := max(r.known-held.Restored, r.restored) // no hold makes room for cost that nodes have accepted themselves
	return capped(min(max(0, r.added-held.Most)+known+held.Sum, store.CountMax), r.foreign)
}

// Grant implements holds.Counts. Nothing new fits into a cell whose window is over.
func (g *holding) Grant(_ int, h *store.Hold, a *store.HoldAnswer) (holds.Charge, bool) {
	durationMs := h.Cell.DurationMs()
	uncovered := min(max(0, window.Start(h.Cell.Sequence+1, durationMs)-g.nowMs), durationMs)
	if h.Precise {
		a.UsedBefore = g.counted(h.Before, a.UsedBefore, durationMs-uncovered)
		return nil, uncovered > 0 && window.Fits(a.Used, a.UsedBefore, h.Amount, h.Limit, durationMs, durationMs)
	}
	return nil, uncovered > 0 && window.Fits(a.Used, a.UsedBefore, h.Amount, h.Limit, uncovered, durationMs)
}

// counted returns the part of a cell's used cost that counts by a precise window, elapsedMs after its end. The total
// can be larger by cost of holds that ended: such cost may be in the groups that are gone.
func (g *holding) counted(c window.Cell, used, elapsedMs int64) int64 {
	r := g.record(c, g.nowMs)
	gone, more := r.history.Gone(elapsedMs, c.DurationMs()), capped(r.region(), r.foreign)-used
	return max(0, used-max(0, gone-max(0, more)))
}

// raise raises the totals of the cells of holds to their largest sum, and records the limits.
func (g *holding) raise(of []store.Hold) {
	for i := range of {
		h := &of[i]
		before := g.record(h.Cell, g.nowMs)
		after := before
		after.added = capped(after.added, g.holds.Cell(h.Cell).Grown())
		counts, held := g.holds.Counts(h)
		if after.region() > 0 && (held || counts > 0) {
			after.limit = lowered(after.limit, h.Limit)
		}
		if after.history == 0 && h.Precise && (before != (originRecord{}) || after.region() > 0) {
			after.history = window.BeginHistory(h.Limit)
		}
		after = after.marked(&h.Cell, g.nowMs)
		g.servers.put(g.originShard, h.Cell, before, after, g.nowMs)
	}
}

// Hold implements store.Granter.
func (c *Cluster) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	return c.Origin.Hold(ctx, call)
}

// GroupOf implements store.Granter. A group is a bucket.
func (c *Cluster) GroupOf(key *window.Key) int { return c.Origin.ShardOf(key) }
