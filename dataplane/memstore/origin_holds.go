package memstore

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// cellHolds are the holds of one cell. The cell's added cost has most in it, and its known cost has restored.
type cellHolds struct {
	sum       int64 // of what all holds count, those included that have ended
	tentative int64 // part of it
	most      int64 // the largest sum so far, without tentative and restored ones
	restored  int64 // the sum of what was restored
	open      int   // holds that have not ended
	dueMs     int64 // Unix ms before which no hold ends or is forgotten
	by        map[string]hold
}

// hold is what an owner holds.
type hold struct {
	amount, after int64
	endsMs        int64 // Unix ms
	ended         bool  // after counts, not amount
	final         bool  // no HoldState changes it
	void          bool  // it had ended before it was known, and counts nothing
	tentative     bool
}

func (h *hold) counts() int64 {
	if h.ended {
		return h.after
	}
	return h.amount
}

// dueMs is when the hold ends, or is forgotten.
func (h *hold) dueMs() int64 {
	if h.ended {
		return h.endsMs + store.HoldKeptFor.Milliseconds()
	}
	return h.endsMs
}

// storedRecord is a reservation's record.
type storedRecord struct {
	text        string
	spent       []int64 // never changed in place
	endsMs      int64   // Unix ms
	settled     bool
	settledBy   uint64 // the attempt
	withdrawn   bool
	asked       bool // another call than its maker's has found it
	forgottenMs int64
}

// holdStream is how many calls of a stream a group has applied.
type holdStream struct {
	number      int64
	forgottenMs int64
}

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
		g := holding{originShard: s, servers: h.originServers, call: &call, nowMs: now.UnixMilli()}
		reply = g.apply(epoch)
		reply.Epoch, reply.Now = epoch, now
		return nil
	})
	if err != nil {
		return store.HoldReply{}, err
	}
	return reply, nil
}

// holding is a call that a shard applies. undo has what takes back the changes that were made so far.
type holding struct {
	*originShard
	servers *originServers
	call    *store.HoldCall
	nowMs   int64
	undo    []func()
}

// apply makes all changes of a call, and takes them back if one is refused.
func (g *holding) apply(epoch store.Epoch) (reply store.HoldReply) {
	counted := g.holdStreams[g.call.Stream]
	if counted.forgottenMs <= g.nowMs {
		counted = holdStream{}
	}
	if after := g.call.After; after.Epoch == epoch && counted.number < after.Number {
		return store.HoldReply{Behind: true, Have: counted.number}
	}
	if r := g.call.Record; r != nil {
		var ok bool
		if reply.Record, ok = g.change(r); !ok {
			reply.Refused = true
			return reply
		}
	}
	reply.Answers = make([]store.HoldAnswer, len(g.call.Holds))
	for i := range g.call.Holds {
		refused := !g.state(&g.call.Holds[i], &reply.Answers[i])
		reply.Refused = reply.Refused || refused
	}
	if reply.Refused {
		for _, undo := range slices.Backward(g.undo) {
			undo()
		}
		for i := range reply.Answers {
			reply.Answers[i].Held = g.isHeld(&g.call.Holds[i])
		}
		reply.Record = store.RecordAnswer{}
		if g.call.Record != nil {
			reply.Record = g.stored(g.call.Record).answer()
		}
	} else {
		g.raise()
		if g.call.Record != nil || len(g.call.Holds) > 0 {
			reply.Number = counted.number + 1
			g.holdStreams[g.call.Stream] = holdStream{reply.Number, g.nowMs + 2*store.HoldKeptFor.Milliseconds()}
		}
	}
	for i := range reply.Answers {
		r, total := g.record(g.call.Holds[i].Cell, g.nowMs), &reply.Answers[i].Total
		total.Region, total.Foreign, total.Epoch = r.region(), r.foreign, epoch
	}
	g.sweepHolds()
	return reply
}

// state applies one statement. It is false for a HoldNew that is refused.
func (g *holding) state(h *store.Hold, a *store.HoldAnswer) (ok bool) {
	held := g.holdsOf(h.Cell)
	was, known := held.by[h.Owner]
	a.Used, a.UsedBefore = g.used(h.Cell)-was.counts(), g.used(h.Before)
	a.Used = max(0, a.Used)
	if was.void && h.As >= store.HoldForced {
		was, known = hold{}, false // the record is the truth, and it is not known whether it was there
	}
	expired := h.Cell.ExpiresAtMs()+(g.servers.grace+jitter(h.Cell)).Milliseconds() <= g.nowMs
	next := hold{amount: h.Amount, after: h.After, endsMs: g.nowMs + h.TTL.Milliseconds(), tentative: h.Tentative}
	switch {
	case h.As == store.HoldNew && (known || expired):
		a.Held = known && !was.final && !expired
		a.Fits = a.Held
		return a.Held || h.Optional
	case expired:
		return true
	case h.As == store.HoldNew && held.open >= store.HoldsMax:
		a.Total.Err = store.ErrHolds
		return h.Optional
	case h.As == store.HoldNew && (window.Start(h.Cell.Sequence+1, h.Cell.DurationMs()) <= g.nowMs || !g.fits(h, a)):
		return h.Optional
	case was.final:
		return true
	case h.TTL == 0 && !known && h.As == store.HoldState:
		next = hold{endsMs: g.nowMs, ended: true, final: true, void: true}
	case h.TTL == 0:
		next.amount, next.ended, next.final = h.After, true, true
	case !known && h.As == store.HoldState:
		return true
	case known:
		next.amount, next.after = max(next.amount, was.amount), max(next.after, was.after)
		next.endsMs = max(next.endsMs, was.endsMs)
		next.ended = next.endsMs <= g.nowMs
	}
	a.Held, a.Fits = !next.final, h.As == store.HoldNew
	g.undo = append(g.undo, held.putBack(h.Owner))
	if h.As == store.HoldRestored && !known {
		held.restored += h.Amount
	}
	held.put(h.Owner, next)
	return true
}

// fits is the formula of store.Hold.
func (g *holding) fits(h *store.Hold, a *store.HoldAnswer) bool {
	durationMs := h.Cell.DurationMs()
	uncovered := min(max(0, window.Start(h.Cell.Sequence+1, durationMs)-g.nowMs), durationMs)
	return window.Fits(a.Used, a.UsedBefore, h.Amount, h.Limit, uncovered, durationMs)
}

func (g *holding) isHeld(h *store.Hold) bool {
	was, known := g.holdsOf(h.Cell).by[h.Owner]
	return known && !was.final
}

// raise raises the totals of the call's cells to their largest sum, and notes the limits.
func (g *holding) raise() {
	for i := range g.call.Holds {
		h := &g.call.Holds[i]
		held, before := g.holdsOf(h.Cell), g.record(h.Cell, g.nowMs)
		grown := max(0, held.sum-held.tentative-held.restored-held.most)
		held.most += grown
		after := before
		after.added = capped(after.added, grown)
		if after.region() > 0 && g.isKnown(h) {
			after.limit = lowered(after.limit, h.Limit)
		}
		g.servers.put(g.originShard, h.Cell, before, after, g.nowMs)
	}
}

func (g *holding) isKnown(h *store.Hold) bool {
	was, known := g.holdsOf(h.Cell).by[h.Owner]
	return known && (!was.final || was.after > 0)
}

// change applies what the call says about a record. It is false if another record has the ID.
func (g *holding) change(r *store.Record) (a store.RecordAnswer, ok bool) {
	before, had := g.records[r.ID]
	was := g.stored(r)
	stored, own := was.text != "", r.Text == was.text
	next := was
	again := was.settled && r.Settled && r.Attempt != 0 && r.Attempt == was.settledBy
	switch open := !was.settled && g.nowMs < was.endsMs; {
	case !stored && r.Text == "":
		return a, true
	case !stored && r.Withdraw: // its own call may come later
		next = storedRecord{text: r.Text, endsMs: g.nowMs, settled: true, settledBy: r.Attempt, withdrawn: true}
		a.Changed = true
	case !stored:
		next = storedRecord{text: r.Text, spent: slices.Clone(r.Spent), endsMs: g.nowMs + r.TTL.Milliseconds(),
			settled: r.Settled, asked: r.Restored}
		a.Changed = true
	case r.Withdraw:
		if a.Changed = own && open && !was.asked; a.Changed {
			next.settled, next.settledBy, next.withdrawn = true, r.Attempt, true
		}
	case r.Text != "" && !r.Restored:
		a.Changed = own && !was.withdrawn
		next.asked = was.asked || !own
	default:
		next.asked = was.asked || own || r.Text == ""
		fits := len(r.Spent) == 0 || len(r.Spent) == len(was.spent)
		if a.Changed = fits && (open && r.Text == "" || own && !was.settled); a.Changed {
			next.spent = larger(was.spent, r.Spent)
			next.endsMs = max(was.endsMs, g.nowMs+r.TTL.Milliseconds())
			next.settled, next.settledBy = r.Settled, r.Attempt
			if r.TTL == 0 {
				next.endsMs = was.endsMs
			}
		}
	}
	a.Changed = a.Changed || again
	if next.forgottenMs = next.endsMs + store.HoldKeptFor.Milliseconds(); next.settled && !was.settled {
		next.forgottenMs = g.nowMs + store.HoldKeptFor.Milliseconds()
	} else if was.settled {
		next.forgottenMs = was.forgottenMs
	}
	g.records[r.ID] = next
	g.undo = append(g.undo, func() {
		if had {
			before.asked = next.asked // noted also of a call that is refused
			g.records[r.ID] = before
		} else {
			delete(g.records, r.ID)
		}
	})
	changed := a.Changed
	a = next.answer()
	a.Changed = changed
	return a, own || !stored || r.Text == "" || r.Withdraw
}

// stored is the record that a call finds; one without a text is none.
func (g *holding) stored(r *store.Record) storedRecord {
	was := g.records[r.ID]
	if was.forgottenMs <= g.nowMs || was.withdrawn && (was.text != r.Text || r.Restored) {
		return storedRecord{}
	}
	return was
}

// answer is what is stored.
func (r storedRecord) answer() store.RecordAnswer {
	return store.RecordAnswer{Text: r.text, Spent: slices.Clone(r.spent), EndsMs: r.endsMs, Settled: r.settled}
}

// larger has the larger of each two amounts.
func larger(a, b []int64) []int64 {
	all := slices.Clone(a)
	for i := range b {
		all[i] = max(a[i], b[i])
	}
	return all
}

// used is what the formula of store.Hold goes by.
func (g *holding) used(c window.Cell) int64 {
	r := g.record(c, g.nowMs)
	used := r.region()
	if held := g.holds[c]; held != nil {
		held.end(g.nowMs)
		known := max(r.known-held.restored, r.restored) // no hold makes room of what nodes have accepted themselves
		used = max(0, r.added-held.most) + known + held.sum
	}
	return capped(min(used, store.CountMax), r.foreign)
}

// holdsOf makes a cell's holds if there are none.
func (g *holding) holdsOf(c window.Cell) *cellHolds {
	held := g.holds[c]
	if held == nil {
		held = &cellHolds{by: make(map[string]hold)}
		g.holds[c] = held
	}
	held.end(g.nowMs)
	return held
}

// put stores a hold in place of the owner's last one.
func (c *cellHolds) put(owner string, h hold) {
	c.remove(owner)
	c.by[owner] = h
	c.dueMs = min(c.dueMs, h.dueMs())
	c.count(h, 1)
}

// count adds a hold, or takes it off with -1.
func (c *cellHolds) count(h hold, by int) {
	c.sum += int64(by) * h.counts()
	if h.tentative {
		c.tentative += int64(by) * h.counts()
	}
	if !h.ended {
		c.open += by
	}
}

func (c *cellHolds) remove(owner string) {
	h, known := c.by[owner]
	if !known {
		return
	}
	delete(c.by, owner)
	c.count(h, -1)
}

// putBack returns what takes back all later changes of an owner's hold.
func (c *cellHolds) putBack(owner string) func() {
	was, known := c.by[owner]
	most, restored := c.most, c.restored
	return func() {
		c.most, c.restored = most, restored
		if c.remove(owner); known {
			c.put(owner, was)
		}
	}
}

// end ends the holds whose time has come, and forgets those that ended long ago: what they count stays.
func (c *cellHolds) end(nowMs int64) {
	if nowMs < c.dueMs {
		return
	}
	c.dueMs = math.MaxInt64
	for owner, h := range c.by {
		if !h.ended && h.endsMs <= nowMs {
			c.count(h, -1)
			h.ended, h.tentative = true, false
			c.count(h, 1)
			c.by[owner] = h
		}
		if h.ended && h.dueMs() <= nowMs {
			delete(c.by, owner)
			continue
		}
		c.dueMs = min(c.dueMs, h.dueMs())
	}
}

func cloneHolds(holds map[window.Cell]*cellHolds) map[window.Cell]*cellHolds {
	cloned := make(map[window.Cell]*cellHolds, len(holds))
	for c, held := range holds {
		copied := *held
		copied.by = maps.Clone(held.by)
		cloned[c] = &copied
	}
	return cloned
}

// sweepHolds forgets records and streams whose time has come.
func (s *holding) sweepHolds() {
	if len(s.records)+len(s.holdStreams) < s.sweepRecordsAt {
		return
	}
	maps.DeleteFunc(s.records, func(_ string, r storedRecord) bool { return r.forgottenMs <= s.nowMs })
	maps.DeleteFunc(s.holdStreams, func(_ uint64, h holdStream) bool { return h.forgottenMs <= s.nowMs })
	s.sweepRecordsAt = max(sweepMin, 2*(len(s.records)+len(s.holdStreams)))
}

// Hold implements store.Granter.
func (c *Cluster) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	return c.Origin.Hold(ctx, call)
}

// GroupOf implements store.Granter. A group is a bucket.
func (c *Cluster) GroupOf(key *window.Key) int { return c.Origin.ShardOf(key) }
