package dataplane_test

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The events around a history's node, and the checks of its memory.

func (h *history) pass(rt *rapid.T) {
	h.w.clock.advance(time.Duration(rapid.IntRange(0, 6_000).Draw(rt, "ms")) * time.Millisecond)
}

func (h *history) jump(rt *rapid.T) {
	h.w.clock.advance(time.Duration(rapid.IntRange(0, 200_000).Draw(rt, "ms")) * time.Millisecond)
}

// relativeStep is how far one of two clocks steps. A limiter follows each of these steps, because an answer shows it.
var relativeStep = rapid.Map(rapid.OneOf(rapid.Just(0), rapid.IntRange(-45, 45), rapid.IntRange(-3_600, 3_600)),
	func(n int) time.Duration { return time.Duration(n) * 2 * time.Second })

// step sets wall clocks, forward or back, while no time passes: both clocks, the node's or the origin's.
func (h *history) step(rt *rapid.T) {
	before := h.nowMs()
	far := rapid.OneOf(rapid.IntRange(-90_000, 0), rapid.IntRange(-7_200_000, 7_200_000))
	switch which := rapid.SampledFrom([]string{"both", "node", "origin"}).Draw(rt, "clock"); {
	case which == "both" || h.origin == nil:
		h.w.clock.step(time.Duration(far.Draw(rt, "ms")) * time.Millisecond)
	case h.origin.down || h.lossy: // a decision would find out, halfway
	case which == "node":
		by := relativeStep.Draw(rt, "by")
		h.w.clock.step(by)
		h.originAhead -= by
		h.readTime()
	default:
		h.originAhead += relativeStep.Draw(rt, "by")
		h.readTime()
	}
	if h.nowMs() < before {
		clear(h.hosted) // the overflow decays with time, and cells come again
	}
}

// readTime makes the node read the origin's time between two decisions.
func (h *history) readTime() {
	h.origin.forget()
	h.n.ReadTime(h.keys[0])
	if !h.origin.answered {
		h.rt.Fatal("the origin did not answer")
	}
	h.observeTime()
}

// sweep removes the keys that may go. When everything was sent, all expired keys must go.
func (h *history) sweep(rt *rapid.T) {
	h.rt = rt
	tidy := !h.lossy && (h.origin == nil || !h.origin.down)
	for range 4 { // a lost epoch, or a last read of a closed cell, takes further rounds
		if tidy {
			h.replay(rt)
		}
	}
	nowMs := h.nowMs()
	h.during(nowMs, h.n.Sweep)
	for key, k := range h.known {
		if tidy && k.over(k.latest, nowMs-h.skewMs) && k.strictMs <= h.steadyMs() && k.restMs <= h.steadyMs() {
			rt.Fatalf("%s is over, and was not swept: %+v", key.Identifier, k)
		}
	}
}

// makeRoom tries to evict every key. It may evict only the keys that during allows.
func (h *history) makeRoom(rt *rapid.T) {
	h.rt = rt
	h.during(h.nowMs(), h.n.MakeRoom)
}

// peers counts cost of another node of the region.
func (h *history) peers(rt *rapid.T) {
	if _, err := add(h.w.origin("eu"), h.someCell(rt), rapid.Int64Range(1, 9).Draw(rt, "cost")); err != nil {
		rt.Fatal(err)
	}
}

// regions applies other regions' accepted cost at the origin, as a relay does: more than before, or not.
func (h *history) regions(rt *rapid.T) {
	published := store.Foreign{Cell: h.someCell(rt), Count: rapid.Int64Range(1, 30).Draw(rt, "count")}
	if _, err := h.w.origin("eu").Apply(context.Background(), 0, []store.Foreign{published}); err != nil {
		rt.Fatal(err)
	}
}

// listen delivers a message about applied totals, possibly a late message; a key without an entry ignores it.
func (h *history) listen(rt *rapid.T) {
	cell := h.someCell(rt)
	count := h.w.origin("eu").Totals()[cell].Foreign
	if h.origin == nil || count == 0 {
		return
	}
	announced := store.Foreign{Cell: cell, Count: rapid.Int64Range(1, count).Draw(rt, "announced")}
	h.n.ApplyForeign([]store.Foreign{announced})
	k := h.known[cell.Key]
	if k == nil {
		return
	}
	if cell.Sequence > k.latest {
		k.reach(h.nowMs())
	}
	if slices.Contains(k.alive(), cell.Sequence) {
		k.applyForeign(cell.Sequence, announced.Count)
	}
}

func (h *history) someCell(rt *rapid.T) window.Cell {
	key := rapid.SampledFrom(h.keys).Draw(rt, "key")
	back := rapid.Int64Range(0, 1).Draw(rt, "back")
	return window.Cell{Key: key, Sequence: window.Sequence(h.nowMs(), key.DurationMs()) - back}
}

func (h *history) faults(rt *rapid.T) {
	if h.origin == nil {
		return
	}
	switch rapid.SampledFrom([]string{"heal", "heal", "down", "replies", "wipe"}).Draw(rt, "fault") {
	case "heal":
		h.setFaults(false, false)
	case "down":
		h.setFaults(true, false)
	case "replies":
		h.setFaults(false, true)
	case "wipe":
		h.w.origin("eu").Wipe()
		clear(h.hosted)
	}
}

// setFaults makes the node's way to the origin fail; peers have their own way.
func (h *history) setFaults(down, lossy bool) {
	clear(h.hosted) // the origin has cost that the overflow does not have
	h.lossy, h.origin.down = lossy, down
	h.origin.Faults.Fail(nil)
	if down {
		h.origin.Faults.Fail(errDown)
	}
	h.origin.Faults.LoseReplies(lossy)
}

// check compares the node's memory with the expected state.
func (h *history) check(rt *rapid.T) {
	if got := h.n.NowMs(); got != h.nowMs() {
		rt.Fatalf("it is %d, want %d", got, h.nowMs())
	}
	pending := int64(0)
	for _, f := range h.flight {
		pending += f.cost.Add + f.cost.Restore
	}
	for key, k := range h.known {
		for _, s := range k.alive() {
			pending += h.checkCell(rt, window.Cell{Key: key, Sequence: s}, k)
		}
	}
	if h.n.Entries() != len(h.known) {
		rt.Fatalf("%d entries, want %d", h.n.Entries(), len(h.known))
	}
	if got := h.n.Health().PendingCost; got != pending {
		rt.Fatalf("%d pending, want %d", got, pending)
	}
}

// checkCell returns the cost of a cell that must be sent to the origin.
func (h *history) checkCell(rt *rapid.T, cell window.Cell, k *dumbKey) (pending int64) {
	s := cell.Sequence
	got := h.n.Cell(cell)
	h.resolve(k, s, got.Unsent)
	_, sending := k.way[s]
	foreign := k.foreign[s]
	if h.origin == nil {
		foreign += k.carried[s]
	}
	if !got.Held || got.Count != k.regional(s) || got.Foreign != foreign || got.Sending != sending {
		rt.Fatalf("%v, cell %d: %+v, the dumb limiter has %d and %d of others, on its way: %v: %+v",
			cell, s, got, k.regional(s), k.foreign[s], sending, *k)
	}
	if h.origin == nil {
		return 0
	}
	if r, restores := k.restore[s]; restores && !sending {
		pending = max(1, r.own)
	}
	return pending + k.unsent(s)
}
