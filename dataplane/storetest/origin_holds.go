package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// holdTest is a subtest about the holds and records of a group.
type holdTest struct {
	*originTest
	group int // of the subtest's cell
}

func newHoldTest(h *originTest) *holdTest { return &holdTest{h, h.GroupOf(&h.cell.Key)} }

// briefly is how long a hold or record lasts whose end a test waits for.
const briefly = 20 * time.Millisecond

// before returns the previous cell, unless a reset has renamed it.
func before(c window.Cell) window.Cell { return later(c, -1) }

// later returns the cell of a key n windows later. In a window that has not begun, the previous cell counts in full.
func later(c window.Cell, n int64) window.Cell {
	c.Sequence += n
	return c
}

// opens makes a hold, if it fits.
func opens(owner string, c window.Cell, amount, limit int64) store.Hold {
	return store.Hold{Cell: c, Before: before(c), Owner: owner, Amount: amount, Limit: limit, TTL: time.Hour,
		As: store.HoldNew}
}

// states returns a later statement about a hold that goes on.
func states(owner string, c window.Cell, amount, after int64) store.Hold {
	return store.Hold{Cell: c, Owner: owner, Amount: amount, After: after, TTL: time.Hour}
}

// ends ends a hold for good.
func ends(owner string, c window.Cell, after int64) store.Hold {
	return store.Hold{Cell: c, Owner: owner, Amount: after, After: after}
}

// as returns a hold that is stated in another way.
func as(how store.HoldAs, h store.Hold) store.Hold {
	h.As = how
	return h
}

// forced returns a hold that its cell has if its group was not emptied since the epoch.
func forced(in store.Epoch, h store.Hold) store.Hold {
	h.As, h.Epoch = store.HoldForced, in
	return h
}

// emptied returns an epoch that the group of the subtest's cell does not have.
func (h *holdTest) emptied() store.Epoch { return ^h.epoch(h.cell) | 1 }

// lasting returns a hold with another duration.
func lasting(ttl time.Duration, h store.Hold) store.Hold {
	h.TTL = ttl
	return h
}

// ifItFits returns a new hold that the rest of its call does not need.
func ifItFits(h store.Hold) store.Hold {
	h.Optional = true
	return h
}

// tentative returns a new hold that another group's refusal can end.
func tentative(h store.Hold) store.Hold {
	h.Tentative = true
	return h
}

// callOf returns a call of the subtest's stream about holds.
func (h *holdTest) callOf(holds ...store.Hold) store.HoldCall {
	return store.HoldCall{Group: holds[0].Cell.Key, Stream: h.stream.ID, Holds: holds}
}

// call expects a call to be answered, with a Number unless it has applied nothing.
func (h *holdTest) call(call store.HoldCall) store.HoldReply {
	h.Helper()
	reply, err := h.Hold(h.Context(), call)
	if err != nil || reply.Epoch == 0 || reply.Now.IsZero() {
		h.Fatalf("%+v: %+v: %v", call, reply, err)
	}
	if n := len(reply.Answers); n != len(call.Holds) && (n != 0 || !reply.Behind && !reply.Emptied && call.Record == nil) {
		h.Fatalf("%d holds have %d answers: %+v", len(call.Holds), n, reply)
	}
	applied := !reply.Refused && !reply.Behind && !reply.Emptied
	if is := call.Record != nil || len(call.Holds) > 0; is && applied != (reply.Number > 0) {
		h.Errorf("%+v: number %d, refused %v, behind %v, emptied %v", call, reply.Number, reply.Refused, reply.Behind,
			reply.Emptied)
	}
	for i, a := range reply.Answers {
		if a.Total.Epoch != reply.Epoch {
			h.Errorf("answer %d has epoch %d, and the reply %d", i, a.Total.Epoch, reply.Epoch)
		}
	}
	return reply
}

// hold expects a call about holds to be applied.
func (h *holdTest) hold(holds ...store.Hold) store.HoldReply {
	h.Helper()
	reply := h.call(h.callOf(holds...))
	if reply.Refused || reply.Behind || reply.Emptied {
		h.Errorf("%+v: %+v, want it applied", holds, reply)
	}
	return reply
}

// refuse expects a call about holds to be refused.
func (h *holdTest) refuse(holds ...store.Hold) store.HoldReply {
	h.Helper()
	reply := h.call(h.callOf(holds...))
	if !reply.Refused {
		h.Errorf("%+v: %+v, want it refused", holds, reply)
	}
	return reply
}

// wantHeld makes a call about a single hold, and expects whether the origin has it afterwards.
func (h *holdTest) wantHeld(hold store.Hold, want bool) {
	h.Helper()
	if a := h.call(h.callOf(hold)).Answers[0]; a.Held != want || a.Total.Err != nil {
		h.Errorf("%+v: %+v, want that it is held: %v", hold, a, want)
	}
}

// wantUsed expects the used cost of a cell, for which its holds must leave room, and its region total. It uses a hold
// that never fits.
func (h *holdTest) wantUsed(c window.Cell, used, region int64) {
	h.Helper()
	a := h.refuse(opens("probe", c, 1, 0)).Answers[0]
	if a.Held || a.Fits || a.Used != used || a.Total.Region != region || a.Total.Err != nil {
		h.Errorf("%+v, want %d used and a region total of %d", a, used, region)
	}
}

// originHoldForeignTests are for origins that are Relayed.
var originHoldForeignTests = map[string]func(*holdTest){
	"fits beside what was sent and what other regions have accepted": func(h *holdTest) {
		h.send(store.Cost{Cell: h.cell, Add: 30})
		h.apply(store.Foreign{Cell: h.cell, Count: 20})
		h.refuse(opens("a", h.cell, 51, 100))
		if a := h.hold(opens("a", h.cell, 50, 100)).Answers[0]; a.Total.Foreign != 20 {
			h.Errorf("%+v", a)
		}
		h.wantUsed(h.cell, 100, 80)
	},
	"fits beside what other regions have accepted in the cell before": func(h *holdTest) {
		at := later(h.cell, 1)
		h.send(store.Cost{Cell: h.cell, Add: 30})
		h.apply(store.Foreign{Cell: h.cell, Count: 20})
		if a := h.refuse(opens("a", at, 51, 100)).Answers[0]; a.UsedBefore != 50 {
			h.Errorf("%+v", a)
		}
		h.hold(opens("a", at, 50, 100))
	},
	"counts are at most CountMax": func(h *holdTest) {
		at := later(h.cell, 1)
		for _, owner := range []string{"a", "b"} {
			h.hold(as(store.HoldForced, opens(owner, at, store.CountMax, 100)))
			h.wantUsed(at, store.CountMax, store.CountMax)
		}
		h.apply(store.Foreign{Cell: at, Count: store.CountMax})
		h.refuse(opens("c", at, 1, store.CountMax))
		h.wantUsed(at, store.CountMax, store.CountMax)
		for _, limit := range []int64{1000, store.CountMax - 1} {
			if a := h.refuse(opens("d", later(at, 1), 1, limit)).Answers[0]; a.UsedBefore != store.CountMax {
				h.Errorf("%+v", a)
			}
		}
	},
}

var originHoldTests = map[string]func(*holdTest){
	"is granted while it fits, and is in the totals": func(h *holdTest) {
		c := h.cells(2)
		for i, hold := range []store.Hold{opens("a", c[0], 60, 100), opens("b", c[0], 41, 100), opens("b", c[0], 40, 100),
			opens("c", c[0], 1, 100), opens("a", c[1], 7, 100)} {
			reply := h.call(h.callOf(hold))
			a, fits := reply.Answers[0], i != 1 && i != 3
			if a.Held != fits || a.Fits != fits || reply.Refused == fits || a.Used != []int64{0, 60, 60, 100, 0}[i] {
				h.Errorf("%+v: %+v", hold, a)
			}
			if want := []int64{60, 60, 100, 100, 7}[i]; a.Total.Region != want || a.Total.Err != nil {
				h.Errorf("%+v: %+v, want %d", hold, a.Total, want)
			}
		}
		h.wantRegions(c, 100, 7)
		h.wantChanges(store.Change{Cell: c[0], Total: 100, Limit: 100}, store.Change{Cell: c[1], Total: 7, Limit: 100})
	},
	"fits beside all of the cell before while its window has not begun": func(h *holdTest) {
		after := later(h.cell, 1)
		h.send(store.Cost{Cell: h.cell, Add: 60})
		if a := h.refuse(opens("a", after, 41, 100)).Answers[0]; a.Used != 0 || a.UsedBefore != 60 {
			h.Errorf("%+v", a)
		}
		h.hold(opens("a", after, 40, 100))
		h.wantUsed(after, 40, 40)
	},
	"fits beside the share of the cell before that the window still covers": testHoldCarried,
	"fits beside the cell before by the name that it has": func(h *holdTest) {
		hold := opens("a", later(h.cell, 1), 41, 100)
		hold.Before.Generation = 3
		h.send(store.Cost{Cell: hold.Before, Add: 60}, store.Cost{Cell: h.cell, Add: 1000})
		h.refuse(hold)
		hold.Amount = 40
		h.hold(hold)
	},
	"is granted once however often its call comes": func(h *holdTest) {
		for _, amount := range []int64{60, 60, 60, 70} { // a new hold changes nothing if its owner has a hold
			h.hold(opens("a", h.cell, amount, 100))
			h.wantUsed(h.cell, 60, 60)
		}
		second := h.callOf(opens("b", h.cell, 40, 100))
		h.lost("hold", func() error { return errOf(h.Hold(h.Context(), second)) })
		a := h.call(second).Answers[0]
		if !a.Held || !a.Fits || a.Used != 60 { // "without the hold itself"
			h.Errorf("%+v", a)
		}
		h.wantUsed(h.cell, 100, 100)
	},
	"that has ended leaves totals as they are, and room for holds alone": func(h *holdTest) {
		h.hold(opens("a", h.cell, 100, 100))
		h.hold(ends("a", h.cell, 10))
		h.wantUsed(h.cell, 10, 100)
		h.claim([]store.Cost{{Cell: h.cell, Add: 1, AtMost: 100}}, no(100))
		h.refuse(opens("b", h.cell, 91, 100))
		h.hold(opens("b", h.cell, 90, 100))
		h.wantUsed(h.cell, 100, 100)
		h.send(store.Cost{Cell: h.cell, Add: 1})
		h.wantUsed(h.cell, 101, 101)
	},
	"may have spent more than it held": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100), opens("b", h.cell, 40, 100))
		h.hold(ends("a", h.cell, 65))
		h.wantUsed(h.cell, 105, 105)
	},
	"may hold more later, whatever the limit is": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100))
		h.hold(states("a", h.cell, 160, 0))
		h.wantUsed(h.cell, 160, 160)
	},
	"never holds less by a later statement": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100))
		h.hold(states("a", h.cell, 5, 5))
		h.wantUsed(h.cell, 60, 60)
	},
	"ends with its time, and After counts from then on": func(h *holdTest) {
		spent := lasting(briefly, opens("b", h.cell, 40, 100))
		spent.After = 35
		h.hold(lasting(briefly, opens("a", h.cell, 60, 100)), spent)
		h.pass(2 * briefly)
		h.wantUsed(h.cell, 35, 100)
		h.hold(opens("c", h.cell, 65, 100))
	},
	"ends at the latest time that was stated": func(h *holdTest) {
		h.hold(opens("a", h.cell, 10, 100), lasting(briefly, opens("b", h.cell, 20, 100)))
		h.hold(lasting(briefly, states("a", h.cell, 10, 0)), states("b", h.cell, 20, 0))
		h.pass(2 * briefly)
		h.wantUsed(h.cell, 30, 30)
	},
	"that has ended by time goes on with the next statement": func(h *holdTest) {
		h.hold(lasting(briefly, opens("a", h.cell, 60, 100)), lasting(briefly, opens("b", h.cell, 20, 100)))
		h.pass(2 * briefly)
		h.hold(opens("c", h.cell, 100, 100))
		h.wantHeld(states("a", h.cell, 70, 0), true)
		h.wantUsed(h.cell, 170, 170)
		h.wantHeld(lasting(briefly, states("b", h.cell, 20, 9)), true)
		h.pass(2 * briefly)
		h.wantUsed(h.cell, 179, 190)
		h.wantHeld(ends("b", h.cell, 4), false)
		h.wantUsed(h.cell, 174, 190)
	},
	"counts as stated, whatever the order was": testHoldMerges,
	"is as in a model, after any calls":        testHoldModel,
	"that was ended takes no later statement": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100))
		h.wantHeld(ends("a", h.cell, 10), false)
		for _, late := range []store.Hold{states("a", h.cell, 60, 20), ends("a", h.cell, 30),
			as(store.HoldForced, states("a", h.cell, 60, 20)), forced(h.emptied(), states("a", h.cell, 60, 20))} {
			h.hold(late)
			h.wantHeld(late, false)
		}
		h.wantHeld(opens("a", h.cell, 10, 100), false)
		h.refuse(opens("a", h.cell, 10, 100))
		h.wantUsed(h.cell, 10, 60)
	},
	"is refused if its end came first": func(h *holdTest) {
		h.wantHeld(ends("a", h.cell, 10), false)
		h.wantUsed(h.cell, 0, 0)
		h.wantHeld(states("a", h.cell, 10, 0), false)
		if a := h.refuse(opens("a", h.cell, 60, 100)).Answers[0]; a.Held || a.Fits {
			h.Errorf("%+v", a)
		}
		h.hold(opens("b", h.cell, 60, 100), ifItFits(opens("a", h.cell, 5, 100)))
		h.wantUsed(h.cell, 60, 60)
	},
	"whose end came first is made if it is forced": func(h *holdTest) {
		h.hold(ends("a", h.cell, 10), ends("b", h.cell, 10), ends("c", h.cell, 10))
		h.wantHeld(as(store.HoldForced, states("a", h.cell, 20, 0)), true)
		h.wantUsed(h.cell, 20, 20)
		h.wantHeld(as(store.HoldForced, ends("b", h.cell, 5)), false)
		h.wantUsed(h.cell, 25, 25)
		h.wantHeld(forced(h.emptied(), states("c", h.cell, 40, 0)), true)
		h.wantUsed(h.cell, 65, 25)
		h.wantHeld(ends("a", h.cell, 3), false)
		h.wantUsed(h.cell, 48, 25)
	},
	"that is not known is not made by a later statement": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100))
		late := states("b", h.cell, 9, 9)
		late.Limit = 50
		h.wantHeld(late, false)
		h.wantUsed(h.cell, 60, 60)
		h.wantChanges(store.Change{Cell: h.cell, Total: 60, Limit: 100})
		h.wantHeld(opens("b", h.cell, 5, 100), true)
		h.wantUsed(h.cell, 65, 65)
	},
	"is made whatever the limit is if it is forced": func(h *holdTest) {
		h.wantHeld(as(store.HoldForced, opens("a", h.cell, 500, 100)), true)
		h.wantUsed(h.cell, 500, 500)
		h.wantHeld(as(store.HoldForced, ends("b", h.cell, 7)), false)
		h.wantUsed(h.cell, 507, 507)
	},
	"that is forced after its group was emptied is in what nodes restore": func(h *holdTest) {
		for _, first := range []string{"the hold", "the total"} {
			made := h.hold(opens("a", h.cell, 60, 100)).Epoch
			h.Wipe(h)
			restored := forced(made, states("a", h.cell, 60, 0))
			if first == "the hold" {
				h.wantHeld(restored, true)
				h.wantUsed(h.cell, 60, 0)
			}
			h.send(store.Cost{Cell: h.cell, Epoch: h.epoch(h.cell), Known: 60})
			h.wantHeld(restored, true)
			h.wantHeld(restored, true)
			h.wantUsed(h.cell, 60, 60)
			h.hold(ends("a", h.cell, 10))
			h.wantUsed(h.cell, 10, 60)
			h.refuse(opens("b", h.cell, 91, 100))
			h.hold(opens("b", h.cell, 90, 100))
			h.wantUsed(h.cell, 100, 100)
			h.Wipe(h)
		}
	},
	"that is forced counts once, whatever its maker knows of the loss": func(h *holdTest) {
		old := h.hold(opens("a", h.cell, 60, 100), opens("b", h.cell, 20, 100))
		h.Wipe(h)
		h.call(after(old.Epoch, old.Number, h.callOf(forced(old.Epoch, states("a", h.cell, 60, 0)))))
		current := h.epoch(h.cell)
		h.send(store.Cost{Cell: h.cell, Epoch: current, Known: 80})
		h.wantUsed(h.cell, 80, 80)
		h.call(after(current, 1, h.callOf(forced(old.Epoch, states("b", h.cell, 20, 0)))))
		h.wantUsed(h.cell, 80, 80)
		h.hold(ends("a", h.cell, 10))
		h.wantUsed(h.cell, 30, 80)
		h.hold(forced(current, states("c", h.cell, 30, 0))) // it was made in this epoch
		h.wantUsed(h.cell, 60, 80)
		h.hold(forced(0, states("d", h.cell, 40, 0)))
		h.wantUsed(h.cell, 100, 100)
	},
	"whose end comes first after its group was emptied restores nothing": func(h *holdTest) {
		end := ends("a", h.cell, 60)
		end.Epoch = h.hold(opens("a", h.cell, 60, 100)).Epoch
		h.Wipe(h)
		h.hold(end)
		h.send(store.Cost{Cell: h.cell, Epoch: h.epoch(h.cell), Known: 80})
		h.wantUsed(h.cell, 80, 80)
		h.hold(forced(end.Epoch, end))
		h.wantUsed(h.cell, 80, 80)
	},
	"that is known is not made again to force it": func(h *holdTest) {
		h.hold(opens("a", h.cell, 60, 100))
		h.hold(as(store.HoldForced, states("a", h.cell, 60, 0)))
		h.hold(forced(h.emptied(), states("a", h.cell, 60, 0)))
		h.wantUsed(h.cell, 60, 60)
		h.hold(ends("a", h.cell, 0))
		h.wantUsed(h.cell, 0, 60)
	},
	"of nothing lowers no limit": func(h *holdTest) {
		h.hold(opens("a", h.cell, 0, 5))
		h.hold(opens("b", h.cell, 10, 100))
		h.wantChanges(store.Change{Cell: h.cell, Total: 10, Limit: 100})
	},
	"lowers its cell's limit as costs do, and is kept to the region without one": func(h *holdTest) {
		c := h.mates(2)
		h.hold(opens("a", c[0], 10, 100), as(store.HoldForced, opens("a", c[1], 10, 0)))
		h.wantChanges(store.Change{Cell: c[0], Total: 10, Limit: 100})
		h.hold(opens("b", c[0], 10, 50))
		h.hold(opens("c", c[0], 10, 200))
		h.wantChanges(store.Change{Cell: c[0], Total: 30, Limit: 50})
	},
	"lasts up to HoldTTLMax": func(h *holdTest) {
		h.hold(lasting(store.HoldTTLMax, opens("a", h.cell, 10, 100)))
		h.hold(lasting(store.HoldTTLMax, states("a", h.cell, 20, 0)))
		h.wantUsed(h.cell, 20, 20)
	},
	"that is new does not fit into a cell whose window is over": func(h *holdTest) {
		now := h.call(store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID}).Now // the origin's clock may be behind
		over := h.cell
		over.Sequence = window.Sequence(now.UnixMilli(), over.DurationMs()) - 1
		h.refuse(opens("a", over, 1, 100))
		h.hold(as(store.HoldForced, states("b", over, 1, 0)))
		h.wantHeld(opens("b", over, 1, 100), true)
	},
	"that was restored makes no room of what nodes have accepted": func(h *holdTest) {
		h.send(store.Cost{Cell: h.cell, Restore: 40, Known: 100})
		for _, owner := range []string{"a", "b"} {
			h.hold(forced(h.emptied(), states(owner, h.cell, 60, 0)))
			h.hold(ends(owner, h.cell, 0))
		}
		h.wantUsed(h.cell, 40, 100)
	},
	"is not made in a cell that has expired": func(h *holdTest) {
		c := h.cell
		c.Sequence -= 1000
		for _, how := range []store.HoldAs{store.HoldNew, store.HoldState, store.HoldForced} {
			if a := h.call(h.callOf(as(how, opens("a", c, 1, 100)))).Answers[0]; a.Held || a.Fits || a.Total.Region != 0 {
				h.Errorf("stated as %d: %+v", how, a)
			}
		}
		h.wantRegions([]window.Cell{c}, 0)
		h.wantChanges()
	},
	"is one of HoldsMax": func(h *holdTest) {
		const limit = 1_000_000
		for at := 0; at < store.HoldsMax; at += store.HoldCallMax {
			h.hold(h.holds(at, func(owner string) store.Hold { return opens(owner, h.cell, 1, limit) })...)
		}
		one := opens("one", h.cell, 1, limit)
		if a := h.refuse(one).Answers[0]; a.Held || !errors.Is(a.Total.Err, store.ErrHolds) || a.Open != store.HoldsMax {
			h.Errorf("one more: %+v", a)
		}
		optional := one
		optional.Optional = true
		reply := h.call(h.callOf(optional, states("7", h.cell, 2, 2)))
		if a := reply.Answers[0]; reply.Refused || a.Held || !errors.Is(a.Total.Err, store.ErrHolds) ||
			!reply.Answers[1].Held {
			h.Errorf("one more, which is optional: %+v", reply)
		}
		c := h.mates(2)
		h.refuse(opens("another", c[1], 1, limit), one)
		h.wantHeld(opens("7", h.cell, 1, limit), true)
		h.hold(states("7", h.cell, 3, 3))
		h.hold(ends("8", h.cell, 1))
		h.wantHeld(one, true)
		h.wantRegions(c, store.HoldsMax+3, 0)
	},
	"that has ended is none of HoldsMax": func(h *holdTest) {
		for at := 0; at <= store.HoldsMax; at += store.HoldCallMax {
			h.hold(h.holds(at, func(owner string) store.Hold { return opens(owner, h.cell, 1, store.HoldCallMax) })...)
			h.hold(h.holds(at, func(owner string) store.Hold { return ends(owner, h.cell, 0) })...)
		}
		h.wantUsed(h.cell, 0, store.HoldCallMax)
	},
	"has an owner of any bytes": func(h *holdTest) {
		owners := []string{"a", "a ", "A", "=a", "c", "m", "a:b{c}%", "a%3Ab", "0", "00", "\x00", "\x00\xff\n",
			"12345678901234567890123456789012"}
		for i, owner := range owners {
			for range 2 {
				h.wantHeld(opens(owner, h.cell, 1, 100), true)
			}
			h.wantUsed(h.cell, int64(i+1), int64(i+1))
		}
		for _, owner := range owners {
			h.hold(ends(owner, h.cell, 0))
		}
		h.wantUsed(h.cell, 0, int64(len(owners)))
	},
	"is one of no more than fit, also of many at once": func(h *holdTest) {
		h.atOnce(40, 16, func(i int) (int64, error) { // of 3 each, and a limit of 50
			r, err := h.Hold(h.Context(), h.callOf(opens(fmt.Sprint(i), h.cell, 3, 50)))
			return granted(err == nil && !r.Refused && r.Answers[0].Held), err
		})
		h.wantUsed(h.cell, 48, 48)
	},
	"that is tentative counts for holds, and in totals with the next statement": func(h *holdTest) {
		for range 2 {
			h.hold(tentative(opens("a", h.cell, 60, 100)))
			h.wantUsed(h.cell, 60, 0)
			h.wantChanges()
		}
		h.refuse(opens("b", h.cell, 41, 100))
		h.hold(opens("b", h.cell, 30, 100))
		h.wantUsed(h.cell, 90, 30)
		stated := states("a", h.cell, 60, 0)
		stated.Limit = 50
		h.wantHeld(stated, true)
		h.wantUsed(h.cell, 90, 90)
		h.wantChanges(store.Change{Cell: h.cell, Total: 90, Limit: 50})
		h.refuse(opens("c", h.cell, 11, 100))
	},
	"that is tentative and has ended leaves totals as they are": func(h *holdTest) {
		h.hold(tentative(opens("a", h.cell, 60, 100)), opens("b", h.cell, 10, 100),
			lasting(briefly, tentative(opens("c", h.cell, 20, 100))))
		h.hold(ends("a", h.cell, 0))
		h.pass(2 * briefly)
		h.wantUsed(h.cell, 10, 10)
		h.hold(opens("d", h.cell, 90, 100))
		h.wantUsed(h.cell, 100, 100)
		h.hold(tentative(opens("e", h.cell, 60, 160)))
		h.hold(ends("e", h.cell, 7))
		h.wantUsed(h.cell, 107, 107)
	},
	"that is tentative leaves nothing where its call is refused": func(h *holdTest) {
		h.refuse(tentative(opens("a", h.cell, 60, 100)), tentative(opens("b", h.cell, 41, 100)))
		h.wantUsed(h.cell, 0, 0)
		h.hold(tentative(opens("a", h.cell, 60, 100)))
		h.hold(tentative(opens("b", h.cell, 40, 100)))
		h.hold(states("a", h.cell, 60, 0))
		h.wantUsed(h.cell, 100, 60)
	},
}

// holds returns HoldCallMax holds of a cell, of owners that are numbered from at on.
func (h *holdTest) holds(at int, hold func(owner string) store.Hold) []store.Hold {
	holds := make([]store.Hold, store.HoldCallMax)
	for i := range holds {
		holds[i] = hold(fmt.Sprint(at + i))
	}
	return holds
}

// testHoldCarried requests holds of limits around the cost that the window carries over, and compares each answer with
// the formula, by the answer's clock.
func testHoldCarried(h *holdTest) {
	c := h.cell
	durationMs := c.DurationMs()
	c.Sequence = window.Sequence(h.Clock(h).UnixMilli(), durationMs)
	const used, carries, amount = 20, 100_000, 3
	h.send(store.Cost{Cell: before(c), Add: carries}, store.Cost{Cell: c, Add: used})
	probe := opens("a", c, amount, used+amount)
	uncovered := func(now time.Time) int64 {
		return min(max(0, window.Start(c.Sequence+1, durationMs)-now.UnixMilli()), durationMs)
	}
	for step := int64(3); step >= -3; step-- {
		carried := carries * uncovered(h.Clock(h)) / durationMs
		probe.Owner, probe.Limit = fmt.Sprint(step), used+amount+carried-step
		reply := h.call(h.callOf(probe))
		a := reply.Answers[0]
		want := window.Fits(used, carries, amount, probe.Limit, uncovered(reply.Now), durationMs)
		if a.Used != used || a.UsedBefore != carries || a.Fits != want || a.Held != want {
			h.Errorf("limit %d, where some %d are carried over: %+v, want that it fits: %v", probe.Limit, carried, a, want)
		}
		h.call(h.callOf(ends(probe.Owner, c, 0)))
	}
}

// testHoldMerges states the same about two holds in each order, in two cells for each order. One hold goes on until its
// time has come, and the other ends by one of its statements.
func testHoldMerges(h *holdTest) {
	orders := permutations(4)
	cell := func(owner, order int) window.Cell { return later(h.cell, int64(2*order+owner)) }
	for i, order := range orders {
		a, b := cell(0, i), cell(1, i)
		going := []store.Hold{states("a", a, 70, 2), states("a", a, 50, 5), states("a", a, 60, 9),
			as(store.HoldForced, states("a", a, 65, 0))}
		final := []store.Hold{states("b", b, 70, 2), ends("b", b, 4), states("b", b, 60, 9), states("b", b, 50, 5)}
		h.hold(lasting(briefly, opens("a", a, 50, 1000)), opens("b", b, 50, 1000))
		for _, n := range order {
			h.hold(lasting(briefly, going[n]), final[n])
		}
	}
	h.pass(2 * briefly)
	for i, order := range orders {
		h.wantUsed(cell(0, i), 9, 70)
		b := h.refuse(opens("probe", cell(1, i), 1, 0)).Answers[0]
		if b.Used != 4 || b.Total.Region < 50 || b.Total.Region > 70 {
			h.Errorf("in the order %v: %+v", order, b)
		}
		h.wantHeld(states("a", cell(0, i), 0, 0), true)
		h.wantHeld(states("b", cell(1, i), 0, 0), false)
	}
}

// permutations returns all orders of the numbers below n.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, order := range permutations(n - 1) {
		for at := range n {
			longer := append(append(append([]int{}, order[:at]...), n-1), order[at:]...)
			all = append(all, longer)
		}
	}
	return all
}

// originHoldTimeTests are for origins whose clock can be set.
var originHoldTimeTests = map[string]func(*holdTest){
	"is remembered for HoldKeptFor after its end": func(h *holdTest) {
		h.hold(lasting(time.Second, opens("a", h.cell, 10, 100)), opens("b", h.cell, 20, 100))
		h.hold(ends("b", h.cell, 5), ends("c", h.cell, 7))
		h.pass(store.HoldKeptFor - time.Second)
		h.refuse(opens("b", h.cell, 1, 100))
		h.refuse(opens("c", h.cell, 1, 100))
		h.wantHeld(lasting(time.Second, states("a", h.cell, 10, 3)), true)
		h.pass(store.HoldKeptFor + 2*time.Second)
		h.wantHeld(states("a", h.cell, 10, 4), false)
		h.wantHeld(states("b", h.cell, 20, 6), false)
		h.wantUsed(h.cell, 8, 30) // the cost that they count stays
	}}
