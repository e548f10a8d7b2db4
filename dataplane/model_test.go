package dataplane_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Any sequential history of a node agrees, step by step, with the dumb limiter. It compares the verdict, remaining,
// retry-after, current and source of every single and every item of a batch, the cells that are read from the origin,
// the cost that is sent, restored and sent again, and the node's memory. The histories have other nodes and regions,
// an origin that fails, loses replies and forgets, a wall clock that steps both ways by hours, and tables that are
// full.
//
//weir:unraced
func TestAnyHistoryAgreesWithTheDumbLimiter(t *testing.T) {
	for round := range 10 { // of a hundred histories
		ok := t.Run(fmt.Sprint(round), rapid.MakeCheck(func(rt *rapid.T) {
			h := newHistory(t, rt)
			rt.Repeat(map[string]func(*rapid.T){
				"single":    h.single,
				"again":     h.single, // most steps of a history should be decisions
				"batch":     h.batch,
				"pass":      h.pass,
				"jump":      h.jump,
				"step":      h.step,
				"replay":    h.replay,
				"sweep":     h.sweep,
				"make room": h.makeRoom,
				"peers":     h.peers,
				"regions":   h.regions,
				"listen":    h.listen,
				"faults":    h.faults,
				"":          h.check,
			})
		}))
		if !ok {
			return
		}
	}
}

// history is a node, its surroundings, and the dumb keys that have the expected state.
type history struct {
	rt     *rapid.T
	w      *world
	n      *node
	origin *spiedOrigin // nil for none
	keys   []window.Key
	full   bool   // the table has no room for all keys
	outage string // the namespace's outage policy

	handles map[window.Key]*dataplane.Handle

	known   map[window.Key]*dumbKey // held in memory
	entries map[window.Key]any      // and the memory that holds them
	dropped int64                   // accepted cost that will never reach the origin
	pending int64                   // number of the chunk that got no answer; 0: there is none
	flight  []flying                // the costs in that chunk
	lossy   bool                    // the origin loses replies
	hosted  map[window.Cell]int64   // accepted without room in the table, and still in the overflow
	skewMs  int64                   // how far back requests may come from
	leadMs  int64                   // how far ahead of the clock a request's time was

	failures       int   // sends that failed, since the last answer
	refusedUntilMs int64 // by the steady clock: until when the failures count

	originAhead time.Duration // how far the origin's clock is ahead of this node's
	followed    bool          // time is the origin's
	ahead       time.Duration // of originAhead, as of the last answer
	floorMs     int64         // the time at which it stands still after a small step back
}

func newHistory(t *testing.T, rt *rapid.T) *history {
	h := &history{rt: rt, skewMs: time.Minute.Milliseconds(), w: newWorld(t), handles: map[window.Key]*dataplane.Handle{},
		known: map[window.Key]*dumbKey{}, entries: map[window.Key]any{}, hosted: map[window.Cell]int64{}}
	for i, d := range []time.Duration{time.Minute, time.Minute, 90_001 * time.Millisecond, 7 * time.Second, time.Hour} {
		key := window.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("k", i), Duration: d}
		h.keys = append(h.keys, key)
	}
	entriesMax := rapid.SampledFrom([]int{100, 100, 2, 4}).Draw(rt, "entries max")
	h.full = entriesMax < len(h.keys)
	withOrigin, withCounts := rapid.Bool().Draw(rt, "origin"), rapid.Bool().Draw(rt, "counts")
	if withOrigin {
		if withCounts {
			h.outage = rapid.SampledFrom([]string{"", "open", "closed"}).Draw(rt, "outage")
		}
		// The dumb limiter makes no claims: TestNodesThatWaitAccountForEverything has histories with claims.
		h.w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: h.outage, NodeShare: "flush"})
	}
	h.n = h.w.node("eu", "a", func(c *dataplane.Config) {
		c.EntriesMax, c.Origin, c.RegionNodes = entriesMax, nil, 1 // reads nothing for a large cost
		if withOrigin {
			h.w.origins["eu"] = memstore.NewOrigin(memstore.OriginOptions{Clock: h.originNow})
			h.w.names = append(h.w.names, "eu")
			h.origin = &spiedOrigin{Origin: h.w.origin("eu").Client()}
			c.Origin = h.origin
		}
		if !withCounts && !withOrigin {
			c.Settings = nil
		}
	})
	h.n.KnowTime() // other tests cover the time before this
	if h.origin != nil {
		h.originAhead = relativeStep.Draw(rt, "origin ahead")
		h.readTime()
	}
	return h
}

// originNow returns the origin's time.
func (h *history) originNow() time.Time { return h.w.clock.Now().Add(h.originAhead) }

// nowMs returns the node's time. After a step back of up to 1 s it stands still.
func (h *history) nowMs() int64 {
	own := h.w.clock.Now().Add(h.ahead).UnixMilli()
	if h.followed && own < h.floorMs && h.floorMs-own <= 1_000 {
		return h.floorMs
	}
	h.floorMs = min(h.floorMs, own)
	return own
}

// observeTime follows the origin's clock from its first answer on.
func (h *history) observeTime() {
	if h.origin == nil || !h.origin.answered || h.followed && h.ahead == h.originAhead {
		return
	}
	if h.floorMs = h.nowMs(); !h.followed {
		h.floorMs = h.originNow().UnixMilli()
	}
	h.followed, h.ahead = true, h.originAhead
	h.nowMs() // judges how far the step is
}

// absorbWrites merges the results of the last step's sends.
func (h *history) absorbWrites() {
	if h.origin == nil {
		return
	}
	for _, s := range h.origin.sends {
		if h.failures++; s.err == nil {
			h.failures = 0
		}
		h.refusedUntilMs = h.steadyMs() + 1_200 // two ticks, and the duration of a send
	}
}

// refused reports whether the node has found that the origin refuses writes. For an open or closed namespace that is
// an outage, although reads are answered.
func (h *history) refused() bool {
	return h.outage != "" && h.failures >= 2 && h.steadyMs() < h.refusedUntilMs
}

// steadyMs returns the time that no step of the clock changes.
func (h *history) steadyMs() int64 { return 1<<40 + h.w.clock.elapsed().Milliseconds() }

// during runs a step of the node at atMs, and finds the keys that the node added and dropped.
func (h *history) during(atMs int64, step func()) {
	if h.origin != nil {
		h.origin.forget()
	}
	step()
	h.n.AwaitCalls()
	h.observeTime()
	h.absorbWrites()
	for _, key := range h.keys {
		entry := h.n.Entry(key)
		if entry == h.entries[key] {
			continue
		}
		if k := h.known[key]; k != nil && entry != nil && k.isAhead(h.nowMs()+h.leadMs) {
			for s := range k.own {
				h.dropped += k.giveUp(s)
			}
			h.known[key], h.entries[key] = k.setRight(h.nowMs(), h.origin != nil), entry
			continue
		}
		if k := h.known[key]; k != nil && !k.mayGo(atMs-h.skewMs, h.steadyMs(), h.origin != nil) {
			h.rt.Fatalf("%s was forgotten: %+v", key.Identifier, k)
		}
		if k := h.known[key]; k != nil && h.origin == nil { // no other place has its counts
			for _, s := range k.alive() {
				h.hosted[window.Cell{Key: key, Sequence: s}] += k.total(s)
			}
		}
		delete(h.known, key)
		delete(h.entries, key)
		if entry != nil {
			h.known[key], h.entries[key] = newDumbKey(key.DurationMs(), atMs), entry
		}
	}
}

// ask draws the amounts of a request.
func (h *history) ask(rt *rapid.T, key window.Key) dataplane.Request {
	r := dataplane.Request{
		Workspace: key.Workspace, Namespace: key.Namespace, Identifier: key.Identifier, Duration: key.Duration,
		Limit: rapid.SampledFrom([]int64{20, 20, 20, 0, 7, 40}).Draw(rt, "limit"),
		Cost:  rapid.OneOf(rapid.Int64Range(0, 4), rapid.Int64Range(0, 41)).Draw(rt, "cost"),
	}
	r.ZeroCost = r.Cost == 0
	return r
}

func (h *history) single(rt *rapid.T) {
	h.rt = rt
	key := rapid.SampledFrom(h.keys).Draw(rt, "key")
	r := h.ask(rt, key)
	atMs := h.nowMs()
	allow := func() dataplane.Decision { return h.n.Allow(context.Background(), r) }
	switch by := rapid.IntRange(0, 5).Draw(rt, "by"); {
	case by == 0:
		atMs += rapid.Int64Range(-30_000, 30_000).Draw(rt, "off by ms")
		h.leadMs = max(h.leadMs, atMs-h.nowMs())
		allow = func() dataplane.Decision { return h.n.AllowAt(context.Background(), time.UnixMilli(atMs), r) }
	case r.ZeroCost: // a handle's costs are at least 1
	case by == 1:
		allow = func() dataplane.Decision {
			return h.handle(key).Allow(context.Background(), r.Limit, dataplane.Cost(r.Cost))
		}
	case by == 2:
		atMs += rapid.Int64Range(-30_000, 30_000).Draw(rt, "off by ms")
		h.leadMs = max(h.leadMs, atMs-h.nowMs())
		allow = func() dataplane.Decision {
			return h.handle(key).AllowAt(context.Background(), time.UnixMilli(atMs), r.Limit, dataplane.Cost(r.Cost))
		}
	}
	var d dataplane.Decision
	dropped := h.n.Health().DroppedCost
	h.during(atMs, func() { d = allow() })
	k, held := h.known[key]
	if !held {
		if r.Cost <= r.Limit {
			h.host([]window.Key{key}, []dataplane.Request{r}, atMs, d.Allowed, dropped)
			return
		}
		k = newDumbKey(key.DurationMs(), atMs) // nothing was kept of it
	}
	k.reach(atMs)
	o := k.judge(atMs, r.Limit, 0, r.Cost)
	source := h.foreseen(k, held)
	if !o.allowed && source == dataplane.SourceDegradedClosed {
		source = dataplane.SourceLocal // denied by the counts in memory
	}
	o = h.byPolicy(o, source, k, atMs, r.Limit, r.Cost)
	if o.allowed {
		source = h.refreshed(atMs, []window.Key{key}, []*dumbKey{k})[key]
		o = h.byPolicy(k.judge(atMs, r.Limit, 0, r.Cost), source, k, atMs, r.Limit, r.Cost)
	} else {
		h.wantReads(nil)
	}
	h.compare("single", d, o, source, o.allowed)
	h.count(k, held, atMs, r, 0, o, o.allowed)
}

// host merges a decision about keys that found no room. Other tests cover the verdict. Here the cost must stay within
// the limit, together with the key's other such decisions that are still in the overflow.
func (h *history) host(of []window.Key, requests []dataplane.Request, atMs int64, allowed bool, droppedBefore int64) {
	h.dropped += h.n.Health().DroppedCost - droppedBefore
	if !allowed || h.outage == "open" {
		return
	}
	for i, key := range of {
		cell := window.Cell{Key: key, Sequence: window.Sequence(atMs, key.DurationMs())}
		if h.hosted[cell] += requests[i].Cost; h.hosted[cell] > requests[i].Limit && requests[i].Cost > 0 {
			h.rt.Fatalf("%s: %d passed of a limit of %d without a place in the table",
				key.Identifier, h.hosted[cell], requests[i].Limit)
		}
	}
}

// foreseen returns the source of a decision that local state would deny. If the node has already noticed an outage,
// an open namespace passes without a read. A closed namespace is out if the origin refuses writes.
func (h *history) foreseen(k *dumbKey, held bool) dataplane.Source {
	switch rests := h.steadyMs() < k.restMs; {
	case h.origin == nil || !held: // a cost above its limit, which is always denied
	case h.outage == "open" && k.wantsOrigin(h.steadyMs()) && (rests || h.refused()):
		return dataplane.SourceDegradedOpen
	case h.outage == "closed" && h.refused():
		return dataplane.SourceDegradedClosed
	}
	return dataplane.SourceLocal
}

// byPolicy applies the outage policy to an opinion.
func (h *history) byPolicy(o opinion, source dataplane.Source, k *dumbKey, atMs, limit, cost int64) opinion {
	switch {
	case source == dataplane.SourceDegradedOpen && cost <= limit:
		o.allowed, o.retryAfterMs = true, 0
	case source == dataplane.SourceDegradedClosed && o.allowed:
		o.allowed, o.refused, o.retryAfterMs = false, true, k.restMs-h.steadyMs()
		if o.retryAfterMs <= 0 {
			o.retryAfterMs = 300
		}
	}
	return o
}

// degraded returns the source of a decision that got no answer.
func (h *history) degraded() dataplane.Source {
	switch h.outage {
	case "open":
		return dataplane.SourceDegradedOpen
	case "closed":
		return dataplane.SourceDegradedClosed
	}
	return dataplane.SourceDegraded
}

// handle returns the key's handle, made at its first use and kept over evictions.
func (h *history) handle(key window.Key) *dataplane.Handle {
	if h.handles[key] == nil {
		handle, err := h.n.Handle(key.Workspace, key.Namespace, key.Identifier, key.Duration)
		if err != nil {
			h.rt.Fatal(err)
		}
		h.handles[key] = handle
	}
	return h.handles[key]
}

func (h *history) batch(rt *rapid.T) {
	h.rt = rt
	keys := h.keys
	if h.withoutRoom() { // its own keys could evict each other
		keys = keys[:1]
	}
	var requests []dataplane.Request
	var of []window.Key
	for range rapid.IntRange(1, 6).Draw(rt, "items") {
		key := rapid.SampledFrom(keys).Draw(rt, "key")
		requests, of = append(requests, h.ask(rt, key)), append(of, key)
	}
	atMs := h.nowMs()
	var b dataplane.Batch
	dropped := h.n.Health().DroppedCost
	h.during(atMs, func() { b = h.n.AllowMany(context.Background(), requests) })
	fits := func(r dataplane.Request) bool { return r.Cost <= r.Limit }
	if h.withoutRoom() && h.known[keys[0]] == nil && slices.ContainsFunc(requests, fits) {
		h.host(of, requests, atMs, b.Allowed, dropped)
		return
	}

	byKey := map[window.Key]*dumbKey{}
	ks, before := make([]*dumbKey, len(of)), make([]int64, len(of))
	same := map[window.Key]int64{}
	for _, key := range of {
		if byKey[key] = h.known[key]; byKey[key] == nil {
			byKey[key] = newDumbKey(key.DurationMs(), atMs)
		}
	}
	for i, key := range of {
		ks[i], before[i] = byKey[key], same[key]
		same[key] += requests[i].Cost
		ks[i].reach(atMs)
	}
	sources := map[window.Key]dataplane.Source{}
	for i, key := range of {
		sources[key] = h.foreseen(ks[i], h.known[key] != nil)
	}
	judge := func() (all []opinion, allowed bool) {
		allowed = true
		for i, r := range requests {
			o := ks[i].judge(atMs, r.Limit, before[i], r.Cost)
			o = h.byPolicy(o, sources[of[i]], ks[i], atMs, r.Limit, before[i]+r.Cost)
			all, allowed = append(all, o), allowed && o.allowed
		}
		return all, allowed
	}
	all, allowed := judge()
	if allowed {
		sources = h.refreshed(atMs, of, ks)
		all, allowed = judge()
	} else {
		h.wantReads(nil)
	}
	if b.Err != nil || b.Allowed != allowed || len(b.Decisions) != len(of) {
		rt.Fatalf("batch %v: %+v, the dumb limiter says %v", requests, b, allowed)
	}
	for i, key := range of {
		h.compare(fmt.Sprint("item ", i), b.Decisions[i], all[i], max(sources[key], dataplane.SourceLocal), allowed)
		h.count(ks[i], h.known[key] != nil, atMs, requests[i], before[i], all[i], allowed)
	}
}

// withoutRoom reports whether a key can be without an entry: in a full table, and on a node alone, where the overflow
// judges an evicted key until its window is over.
func (h *history) withoutRoom() bool { return h.full || h.origin == nil }

// refreshed merges the origin's answers before a decision. It first checks the read: one call, for all keys that need
// it.
func (h *history) refreshed(atMs int64, of []window.Key, ks []*dumbKey) map[window.Key]dataplane.Source {
	sources := map[window.Key]dataplane.Source{}
	var asked []window.Cell
	var asking []*dumbKey
	for i, key := range of {
		switch k := ks[i]; {
		case h.origin == nil || sources[key] != dataplane.SourceNone:
		case h.outage == "closed" && h.refused():
			sources[key] = dataplane.SourceDegradedClosed
		case !k.wantsOrigin(h.steadyMs()):
			sources[key] = dataplane.SourceLocal
		case h.steadyMs() < k.restMs || h.refused():
			sources[key] = h.degraded()
		default:
			sources[key] = dataplane.SourceOrigin
			for _, s := range k.alive() {
				asked = append(asked, window.Cell{Key: key, Sequence: s})
			}
			asking = append(asking, k)
		}
	}
	h.wantReads(asked)
	if len(asked) > 0 {
		if answer := h.origin.reads[0]; !h.absorbRead(answer, asking) {
			for _, c := range asked {
				sources[c.Key] = h.degraded()
			}
		}
	}
	if h.origin == nil {
		for _, key := range of {
			sources[key] = dataplane.SourceLocal
		}
	}
	return sources
}

func (h *history) wantReads(cells []window.Cell) {
	if h.origin == nil {
		return
	}
	var got [][]window.Cell
	for _, r := range h.origin.reads {
		got = append(got, r.cells)
	}
	if len(cells) == 0 && len(got) == 0 {
		return
	}
	if len(got) != 1 || !slices.Equal(got[0], cells) {
		h.rt.Fatalf("the origin was asked for %v, want one read of %v", got, cells)
	}
}

func (h *history) compare(what string, d dataplane.Decision, o opinion, source dataplane.Source, kept bool) {
	remaining := o.remainingBefore
	if kept {
		remaining = o.remainingAfter
	}
	if d.Err != nil || d.Allowed != o.allowed || d.Remaining != remaining || d.Source != source ||
		d.RetryAfter.Milliseconds() != o.retryAfterMs || d.ResetAt.UnixMilli() != o.resetMs ||
		math.Abs(d.Current-o.current) > 1e-9*max(1, o.current) {
		h.rt.Fatalf("%s at %v: %+v\nthe dumb limiter says %+v, remaining %d, from %v",
			what, h.w.clock.Now(), d, o, remaining, source)
	}
}

// count applies the result of a request: counted on its key, lost with it if the table had no room, or denied.
func (h *history) count(k *dumbKey, held bool, atMs int64, r dataplane.Request, before int64, o opinion, kept bool) {
	switch {
	case o.refused:
	case !o.allowed:
		k.deny(h.steadyMs(), r.Limit, before+r.Cost)
	case kept && !held: // a cost of nothing: all others found no room
	case kept:
		k.accept(r.Limit, r.Cost)
	}
}
