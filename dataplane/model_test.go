package dataplane_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Any sequential history of one node agrees, step by step, with the dumb limiter:
// verdict, remaining, retry-after, current and source of every single and every item
// of a batch, what is read from the origin and what is not, what is sent to it, what is
// published, and what is held in memory. The histories have other nodes and regions,
// stores that fail, lose replies and forget, a wall clock that steps both ways by hours, and
// tables that are full.
func TestAnyHistoryAgreesWithTheDumbLimiter(t *testing.T) {
	for round := range 10 { // of a hundred histories
		ok := t.Run(fmt.Sprint(round), rapid.MakeCheck(func(rt *rapid.T) {
			h := newHistory(t, rt)
			rt.Repeat(map[string]func(*rapid.T){
				"single":  h.single,
				"again":   h.single, // decisions are what most of a history should be made of
				"batch":   h.batch,
				"pass":    h.pass,
				"jump":    h.jump,
				"step":    h.step,
				"replay":  h.replay,
				"flush":   h.flush,
				"import":  h.imports,
				"sweep":   h.sweep,
				"crowd":   h.crowd,
				"peers":   h.peers,
				"regions": h.regions,
				"faults":  h.faults,
				"":        h.check,
			})
		}))
		if !ok {
			return
		}
	}
}

// history is one node, what is around it, and the dumb keys that stand for what it
// should know.
type history struct {
	rt     *rapid.T
	w      *world
	n      *node
	origin *heardOrigin // nil for none
	counts *heardCounts // nil for none
	keys   []window.Key
	full   bool   // the table has no room for all keys
	outage string // what is set for the namespace

	handles map[window.Key]*dataplane.Handle

	known   map[window.Key]*dumbKey // held in memory
	entries map[window.Key]any      // and where
	dropped int64                   // accepted cost that will never reach the origin
	lossy   bool                    // the origin loses replies
	hosted  map[window.Cell]int64   // accepted without a place in the table, and still known
	skewMs  int64                   // how far back requests may come from
}

func newHistory(t *testing.T, rt *rapid.T) *history {
	h := &history{rt: rt, skewMs: time.Minute.Milliseconds(), w: newWorld(t), handles: map[window.Key]*dataplane.Handle{},
		known: map[window.Key]*dumbKey{}, entries: map[window.Key]any{}, hosted: map[window.Cell]int64{}}
	for i, d := range []time.Duration{time.Minute, time.Minute, 90_001 * time.Millisecond, 7 * time.Second, time.Hour} {
		h.keys = append(h.keys, window.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("k", i), Duration: d})
	}
	entriesMax := rapid.SampledFrom([]int{100, 100, 2, 4}).Draw(rt, "entries max")
	h.full = entriesMax < len(h.keys)
	withOrigin, withCounts := rapid.Bool().Draw(rt, "origin"), rapid.Bool().Draw(rt, "counts")
	if withOrigin && withCounts {
		h.outage = rapid.SampledFrom([]string{"", "open", "closed"}).Draw(rt, "outage")
		h.w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: h.outage})
	}
	h.n = h.w.node("eu", "a", func(c *dataplane.Config) {
		c.EntriesMax, c.Origin, c.Counts = entriesMax, nil, nil
		if withOrigin {
			h.origin = &heardOrigin{Origin: h.w.origin("eu")}
			c.Origin = h.origin
		}
		if withCounts {
			h.counts = &heardCounts{Counts: h.w.counts, row: h.imported}
			c.Counts = h.counts
		}
	})
	return h
}

func (h *history) nowMs() int64 { return h.w.clock.Now().UnixMilli() }

// steadyMs is the time that no step of the clock changes.
func (h *history) steadyMs() int64 { return 1<<40 + h.w.clock.elapsed().Milliseconds() }

// during runs one step of the node's at atMs and finds out which keys it brought in
// and which it forgot.
func (h *history) during(atMs int64, step func()) {
	if h.origin != nil {
		h.origin.forget()
	}
	step()
	h.n.AwaitCalls()
	for _, key := range h.keys {
		entry := h.n.Entry(key)
		if entry == h.entries[key] {
			continue
		}
		if k := h.known[key]; k != nil && !k.mayGo(atMs-h.skewMs, h.steadyMs(), h.origin == nil && h.counts == nil, h.origin != nil) {
			h.rt.Fatalf("%s was forgotten: %+v", key.Identifier, k)
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
		allow = func() dataplane.Decision { return h.n.AllowAt(context.Background(), time.UnixMilli(atMs), r) }
	case r.ZeroCost: // a handle's costs are at least 1
	case by == 1:
		allow = func() dataplane.Decision {
			return h.handle(key).Allow(context.Background(), r.Limit, dataplane.Cost(r.Cost))
		}
	case by == 2:
		atMs += rapid.Int64Range(-30_000, 30_000).Draw(rt, "off by ms")
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
		k = newDumbKey(key.DurationMs(), atMs) // of which nothing was kept
	}
	k.reach(atMs)
	o := k.judge(atMs, r.Limit, 0, r.Cost)
	source := h.foreseen(k, atMs)
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

// host takes in a decision about keys that found no room. What it goes by is another test's: here
// it stays within the limit together with what is known of the key's other such decisions.
func (h *history) host(of []window.Key, requests []dataplane.Request, atMs int64, allowed bool, droppedBefore int64) {
	h.dropped += h.n.Health().DroppedCost - droppedBefore
	if !allowed || h.outage == "open" {
		return
	}
	for i, key := range of {
		cell := window.Cell{Key: key, Sequence: window.Sequence(atMs, key.DurationMs())}
		if h.hosted[cell] += requests[i].Cost; h.hosted[cell] > requests[i].Limit && requests[i].Cost > 0 {
			h.rt.Fatalf("%s: %d passed of a limit of %d without a place in the table", key.Identifier, h.hosted[cell], requests[i].Limit)
		}
	}
}

// foreseen is the source of a decision that local state would deny: an open namespace
// does not ask, but knows that nobody would answer.
func (h *history) foreseen(k *dumbKey, atMs int64) dataplane.Source {
	if h.origin != nil && h.outage == "open" && k.wantsOrigin(h.steadyMs()) && h.steadyMs() < k.restMs {
		return dataplane.SourceDegradedOpen
	}
	return dataplane.SourceLocal
}

// byPolicy is what the outage policy makes of an opinion.
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

// degraded is the source of a decision that got no answer.
func (h *history) degraded() dataplane.Source {
	switch h.outage {
	case "open":
		return dataplane.SourceDegradedOpen
	case "closed":
		return dataplane.SourceDegradedClosed
	}
	return dataplane.SourceDegraded
}

// handle is the key's handle, made when it is first used and kept over evictions.
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
	if h.full { // its own keys could push each other out
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
	if h.full && h.known[keys[0]] == nil && slices.ContainsFunc(requests, func(r dataplane.Request) bool { return r.Cost <= r.Limit }) {
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
		sources[key] = h.foreseen(ks[i], atMs)
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

// refreshed takes in what the origin said before a decision, once it is sure that it
// was asked what it should have been asked: once, for all keys that want it.
func (h *history) refreshed(atMs int64, of []window.Key, ks []*dumbKey) map[window.Key]dataplane.Source {
	sources := map[window.Key]dataplane.Source{}
	var asked []window.Cell
	var asking []*dumbKey
	for i, key := range of {
		switch k := ks[i]; {
		case h.origin == nil || sources[key] != dataplane.SourceNone:
		case !k.wantsOrigin(h.steadyMs()):
			sources[key] = dataplane.SourceLocal
		case h.steadyMs() < k.restMs:
			sources[key] = h.degraded()
		default:
			sources[key] = dataplane.SourceOrigin
			asked = append(asked, window.Cell{Key: key, Sequence: k.latest - 1}, window.Cell{Key: key, Sequence: k.latest})
			asking = append(asking, k)
		}
	}
	h.wantReads(asked)
	if len(asked) > 0 {
		if answer := h.origin.reads[0]; !h.heard(answer, asking) {
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

// heard takes in the answer to one read; false if there was none.
func (h *history) heard(r heardRead, asking []*dumbKey) bool {
	for i, k := range asking {
		if r.totals == nil {
			k.restMs = h.steadyMs() + 300
			continue
		}
		k.restMs = 0
		for j := range 2 {
			k.hear(r.cells[2*i+j].Sequence, r.totals[2*i+j])
		}
		if r.cells[2*i+1].Sequence == k.latest {
			k.heardMs = max(k.heardMs, h.steadyMs())
		}
	}
	return r.totals != nil
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
	if d.Err != nil || d.Allowed != o.allowed || d.Remaining != remaining || d.RetryAfter.Milliseconds() != o.retryAfterMs ||
		math.Abs(d.Current-o.current) > 1e-9*max(1, o.current) || d.ResetAt.UnixMilli() != o.resetMs || d.Source != source {
		h.rt.Fatalf("%s at %v: %+v\nthe dumb limiter says %+v, remaining %d, from %v", what, h.w.clock.Now(), d, o, remaining, source)
	}
}

// count takes in what became of a request: counted on its key, or lost with it where
// the table had no room, or denied.
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

func (h *history) pass(rt *rapid.T) {
	h.w.clock.advance(time.Duration(rapid.IntRange(0, 6_000).Draw(rt, "ms")) * time.Millisecond)
}

func (h *history) jump(rt *rapid.T) {
	h.w.clock.advance(time.Duration(rapid.IntRange(0, 200_000).Draw(rt, "ms")) * time.Millisecond)
}

// step sets the wall clock, either way, while no time passes.
func (h *history) step(rt *rapid.T) {
	h.w.clock.step(time.Duration(rapid.OneOf(rapid.IntRange(-90_000, 0), rapid.IntRange(-7_200_000, 7_200_000)).Draw(rt, "ms")) * time.Millisecond)
}

// replay sends all that is unsent, drops and counts what nobody needs any more, and
// may read closed cells once more.
func (h *history) replay(rt *rapid.T) {
	h.rt = rt
	if h.origin == nil {
		return
	}
	nowMs := h.nowMs()
	var err error
	h.during(nowMs, func() { err = h.n.ReplayOnce(context.Background()) })
	want := map[window.Cell]int64{}
	for _, key := range h.keys {
		k := h.known[key]
		if k == nil {
			continue
		}
		for s := range k.own {
			switch cost := k.unsent(s); {
			case cost == 0:
			case s < k.latest-1 || k.over(s, nowMs):
				h.dropped += cost
				k.sent[s] = k.own[s]
			default:
				want[window.Cell{Key: key, Sequence: s}] = cost
			}
		}
	}
	for i, add := range h.origin.adds {
		if want[add.Cell] != add.Cost {
			rt.Fatalf("sent %v, unsent was %v", h.origin.adds, want)
		}
		delete(want, add.Cell)
		if answer := h.origin.added[i]; answer.Err == nil {
			k := h.known[add.Cell.Key]
			k.sent[add.Cell.Sequence] += add.Cost
			k.hear(add.Cell.Sequence, answer.Total)
			if add.Cell.Sequence == k.latest && k.heardMs > 0 { // a reply is no hydration
				k.heardMs = max(k.heardMs, h.steadyMs())
			}
		} else if err == nil {
			rt.Fatal("a failed send was not reported")
		}
	}
	if len(want) != 0 {
		rt.Fatalf("not sent: %v", want)
	}
	for _, r := range h.origin.reads {
		var asking []*dumbKey
		for i := 0; i < len(r.cells); i += 2 {
			asking = append(asking, h.known[r.cells[i].Key])
		}
		h.heard(r, asking)
	}
	if got := h.n.Health().DroppedCost; got != h.dropped {
		rt.Fatalf("%d counted as dropped, want %d", got, h.dropped)
	}
}

// flush publishes what is due, and nothing else.
func (h *history) flush(rt *rapid.T) {
	h.rt = rt
	if h.counts == nil {
		return
	}
	nowMs := h.nowMs()
	want := h.published()
	var err error
	h.during(nowMs, func() { err = h.n.FlushOnce(context.Background()) })
	got, failed := h.published(), false
	for key, k := range h.known {
		for _, s := range k.alive() {
			cell := window.Cell{Key: key, Sequence: s}
			count, due := k.due(s, nowMs)
			switch {
			case k.over(s, nowMs):
				k.missed[s] = true
			case !due:
			case h.counts.down:
				failed = failed || !k.missed[s] || err != nil
			case !k.missed[s] || got[cell] == count:
				k.stored[s], k.missed[s] = count, false
				want[cell] = max(want[cell], count)
			}
		}
	}
	if (err != nil) != failed || !maps.Equal(got, want) {
		rt.Fatalf("flush: %v, published %v, want %v", err, got, want)
	}
}

// published is the region's own rows.
func (h *history) published() map[window.Cell]int64 {
	rows := map[window.Cell]int64{}
	for _, r := range h.w.counts.Rows() {
		if r.Region == "eu" {
			rows[r.Cell] = r.Count
		}
	}
	return rows
}

func (h *history) imports(rt *rapid.T) {
	h.rt = rt
	if h.counts == nil {
		return
	}
	if err := h.n.ImportOnce(context.Background()); (err != nil) != h.counts.down {
		rt.Fatalf("import: %v", err)
	}
}

// imported is called for each row of an import, around the node's merging it.
func (h *history) imported(in store.Imported, merge func()) {
	nowMs := h.nowMs()
	h.during(nowMs, merge)
	current := window.Sequence(nowMs, in.Cell.DurationMs())
	if k := h.known[in.Cell.Key]; k != nil && (in.Cell.Sequence == current || in.Cell.Sequence == current-1) {
		k.reach(nowMs)
		k.read(in.Cell.Sequence, in.Own, in.Foreign)
	}
}

// sweep forgets what may go; and once everything was sent and published, all that is
// over must go.
func (h *history) sweep(rt *rapid.T) {
	h.rt = rt
	tidy := !h.lossy && (h.origin == nil || !h.origin.down) && (h.counts == nil || !h.counts.down)
	if tidy {
		h.replay(rt)
		h.flush(rt)
	}
	nowMs := h.nowMs()
	h.during(nowMs, h.n.Sweep)
	for key, k := range h.known {
		if tidy && k.over(k.latest, nowMs-h.skewMs) && k.strictMs <= h.steadyMs() && k.restMs <= h.steadyMs() {
			rt.Fatalf("%s is over, and was not swept: %+v", key.Identifier, k)
		}
	}
}

// crowd has every key asked to make room. It may take away what during lets go, and nothing else.
func (h *history) crowd(rt *rapid.T) {
	h.rt = rt
	h.during(h.nowMs(), h.n.Crowd)
}

// peers is another node of the region that adds to the origin, or publishes.
func (h *history) peers(rt *rapid.T) {
	cell := h.someCell(rt)
	cost := rapid.Int64Range(1, 9).Draw(rt, "cost")
	if rapid.Bool().Draw(rt, "publishes") {
		h.publish("eu", cell, cost)
		return
	}
	h.w.origin("eu").Faults.LoseReplies(false)
	h.w.origin("eu").Add(context.Background(), []store.Add{{Cell: cell, Cost: cost}})
	h.w.origin("eu").Faults.LoseReplies(h.lossy)
}

// regions is another region that publishes.
func (h *history) regions(rt *rapid.T) {
	h.publish(rapid.SampledFrom([]string{"us", "ap"}).Draw(rt, "region"), h.someCell(rt), rapid.Int64Range(1, 9).Draw(rt, "count"))
}

func (h *history) someCell(rt *rapid.T) window.Cell {
	key := rapid.SampledFrom(h.keys).Draw(rt, "key")
	return window.Cell{Key: key, Sequence: window.Sequence(h.nowMs(), key.DurationMs()) - rapid.Int64Range(0, 1).Draw(rt, "back")}
}

func (h *history) publish(region string, cell window.Cell, count int64) {
	_ = h.w.counts.Publish(context.Background(), region, []store.Count{{Cell: cell, Count: count}}) // it may be down
}

func (h *history) faults(rt *rapid.T) {
	switch rapid.SampledFrom([]string{"heal", "heal", "origin", "replies", "counts", "wipe origin", "wipe counts"}).Draw(rt, "fault") {
	case "heal":
		h.setFaults(false, false, false)
	case "origin":
		h.setFaults(true, false, false)
	case "replies":
		h.setFaults(false, true, false)
	case "counts":
		h.setFaults(false, false, true)
	case "wipe origin":
		h.w.origin("eu").Wipe()
		clear(h.hosted)
	case "wipe counts":
		h.w.counts.Wipe()
	}
}

func (h *history) setFaults(origin, replies, counts bool) {
	fail := func(f *memstore.Faults, down bool) {
		f.Fail(nil)
		if down {
			f.Fail(errDown)
		}
	}
	h.lossy = replies
	clear(h.hosted) // what the origin knows, the overflow does not
	fail(&h.w.origin("eu").Faults, origin)
	h.w.origin("eu").Faults.LoseReplies(replies)
	fail(&h.w.counts.Faults, counts)
	if h.origin != nil {
		h.origin.down = origin
	}
	if h.counts != nil {
		h.counts.down = counts
	}
}

// check holds what is in memory to what should be known.
func (h *history) check(rt *rapid.T) {
	pending := int64(0)
	for key, k := range h.known {
		for _, s := range k.alive() {
			got := h.n.Cell(window.Cell{Key: key, Sequence: s})
			if !got.Held || got.Count != k.regional(s) || got.Global != k.foreign[s] || got.Sending {
				rt.Fatalf("%s, cell %d: %+v, the dumb limiter has %d and %d of others", key.Identifier, s, got, k.regional(s), k.foreign[s])
			}
			if h.origin != nil {
				pending += k.unsent(s)
			}
		}
	}
	if h.n.Entries() != len(h.known) {
		rt.Fatalf("%d entries, want %d", h.n.Entries(), len(h.known))
	}
	if got := h.n.Health().PendingCost; got != pending {
		rt.Fatalf("%d pending, want %d", got, pending)
	}
}

// heardOrigin is an origin that remembers what was said in the last step.
type heardOrigin struct {
	*memstore.Origin
	down bool

	mu    sync.Mutex
	reads []heardRead
	adds  []store.Add
	added []store.Added
}

type heardRead struct {
	cells  []window.Cell
	totals []int64 // nil if there was no answer
}

func (o *heardOrigin) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads, o.adds, o.added = nil, nil, nil
}

func (o *heardOrigin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	totals, err := o.Origin.Read(ctx, cells)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads = append(o.reads, heardRead{slices.Clone(cells), totals})
	return totals, err
}

func (o *heardOrigin) Add(ctx context.Context, adds []store.Add) []store.Added {
	added := o.Origin.Add(ctx, adds)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.adds, o.added = append(o.adds, adds...), append(o.added, added...)
	return added
}

// heardCounts is a count store that tells of each row it hands out, in a fixed order.
type heardCounts struct {
	*memstore.Counts
	down bool
	row  func(in store.Imported, merge func())
}

func (c *heardCounts) Import(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (store.Cursor, error) {
	var rows []store.Imported
	next, err := c.Counts.Import(ctx, region, nowMs, after, func(in store.Imported) { rows = append(rows, in) })
	slices.SortFunc(rows, func(a, b store.Imported) int { return a.Cell.Compare(b.Cell) })
	for _, in := range rows {
		c.row(in, func() { yield(in) })
	}
	return next, err
}
