package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// mates returns n cells of the same group, the first of them h.cell.
func (h *holdTest) mates(n int) []window.Cell {
	cells := []window.Cell{h.cell}
	for i := 1; len(cells) < n; i++ {
		if c := suite.LiveCell("w", fmt.Sprint("id-", i)); h.GroupOf(&c.Key) == h.group {
			cells = append(cells, c)
		}
	}
	return cells
}

// stranger returns a cell of another group than h.cell.
func (h *holdTest) stranger() window.Cell {
	c, _ := strangerTo(h, h.cell)
	return c
}

// strangerTo returns a cell of another group than c, if there is such a group.
func strangerTo(o store.Reservations, c window.Cell) (other window.Cell, ok bool) {
	for i := range 10_000 {
		other = suite.LiveCell("w", fmt.Sprint("id-", i))
		if o.GroupOf(&other.Key) != o.GroupOf(&c.Key) {
			return other, true
		}
	}
	return other, false
}

// after returns the call with the Number of its stream's last answer.
func after(epoch store.Epoch, number int64, call store.HoldCall) store.HoldCall {
	call.After = store.Mark{Epoch: epoch, Number: number}
	return call
}

// wantBehind expects a call to apply nothing, because the group has only some of the stream's calls.
func (h *holdTest) wantBehind(call store.HoldCall, have int64) {
	h.Helper()
	reply := h.call(call)
	if !reply.Behind || reply.Have != have || reply.Number != 0 || len(reply.Answers) != 0 {
		h.Errorf("%+v: %+v, want that the group has %d", call, reply, have)
	}
}

// wantNumber expects a call to be applied, as the stream's number of the group.
func (h *holdTest) wantNumber(call store.HoldCall, want int64) {
	h.Helper()
	if reply := h.call(call); reply.Number != want || reply.Behind || reply.Refused {
		h.Errorf("%+v: %+v, want number %d", call, reply, want)
	}
}

var originGroupTests = map[string]func(*holdTest){
	"is the same on every way to the origin, and all keys of a group are in one shard": func(h *holdTest) {
		way := h.Client(h)
		shards := make(map[int]int)
		for i, c := range append(suite.LiveCells(1000), suite.LookalikeCells("w")...) {
			for _, key := range []window.Key{c.Key, store.RecordKey(fmt.Sprint("id-", i))} {
				group := h.GroupOf(&key)
				if other := partsOf(way).GroupOf(&key); other != group || h.GroupOf(&key) != group {
					h.Fatalf("%v is in group %d, and in %d", key, group, other)
				}
				if shard, known := shards[group]; known && shard != h.ShardOf(&key) {
					h.Fatalf("group %d is in shards %d and %d", group, shard, h.ShardOf(&key))
				}
				shards[group] = h.ShardOf(&key)
			}
		}
	},
}

var originHoldCallTests = map[string]func(*holdTest){
	"is applied as a whole": func(h *holdTest) {
		c := h.mates(2)
		call := h.callOf(opens("a", c[0], 60, 100), opens("b", c[0], 40, 100), opens("a", c[1], 7, 100))
		call.Record = record(h.id("a"), "text")
		reply := h.call(call)
		for i, a := range reply.Answers {
			if !a.Held || !a.Fits || a.Used != []int64{0, 60, 0}[i] || a.Total.Err != nil ||
				a.Total.Region != []int64{100, 100, 7}[i] {
				h.Errorf("%d: %+v", i, a)
			}
		}
		if reply.Refused || !reply.Record.Changed || reply.Record.Text != "text" {
			h.Errorf("%+v", reply)
		}
	},
	"is refused as a whole": testHoldRefusal,
	"leaves out what is optional and does not fit, and nothing else": func(h *holdTest) {
		call := h.callOf(opens("a", h.cell, 60, 100), ifItFits(opens("b", h.cell, 50, 99)), opens("c", h.cell, 30, 100),
			ifItFits(opens("d", h.cell, 10, 100)))
		call.Record = record(h.id("a"), "text")
		reply := h.call(call)
		for i, a := range reply.Answers {
			if want := i != 1; a.Held != want || a.Fits != want || a.Used != []int64{0, 60, 60, 90}[i] {
				h.Errorf("%d: %+v", i, a)
			}
		}
		if reply.Refused || !reply.Record.Changed {
			h.Errorf("%+v", reply)
		}
		h.wantUsed(h.cell, 100, 100)
		h.wantChanges(store.Change{Cell: h.cell, Total: 100, Limit: 100})
		h.refuse(ifItFits(opens("e", h.cell, 0, 100)), opens("f", h.cell, 1, 100))
		h.wantHeld(states("e", h.cell, 0, 0), false)
	},
	"without holds or a record reads the group's epoch and clock": func(h *holdTest) {
		start := h.Clock(h)
		reply := h.call(store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID})
		if reply.Epoch != h.epoch(h.cell) || reply.Now.Before(start) || reply.Now.After(h.Clock(h)) || reply.Refused ||
			reply.Behind {
			h.Errorf("%+v", reply)
		}
		h.wantNumber(h.callOf(opens("a", h.cell, 1, 9)), 1)
		h.wantBehind(after(reply.Epoch, 2, store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID}), 1)
		reply = h.call(after(reply.Epoch, 1, store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID}))
		if reply.Behind {
			h.Errorf("%+v", reply)
		}
	},
	"is counted when it is applied, each time": func(h *holdTest) {
		call := h.callOf(opens("a", h.cell, 10, 100))
		h.wantNumber(call, 1)
		h.wantNumber(call, 2)
		h.refuse(opens("b", h.cell, 91, 100))
		h.wantNumber(h.callOf(states("nobody", h.cell, 1, 1)), 3)
		h.wantNumber(h.callOf(ifItFits(opens("b", h.cell, 91, 100))), 4)
		made := store.HoldCall{Stream: h.stream.ID, Record: record(h.id("a"), "text")}
		made.Group = store.RecordKey(made.Record.ID)
		h.wantNumber(made, 5)
		other := made
		other.Record = record(h.id("a"), "another")
		if reply := h.call(other); !reply.Refused {
			h.Errorf("%+v", reply)
		}
		made.Record = settles(h.id("a"))
		h.wantNumber(made, 6)
		h.lost("hold", func() error { return errOf(h.Hold(h.Context(), call)) })
		h.wantNumber(call, 8)
	},
	"is counted for each stream": func(h *holdTest) {
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		call := h.callOf(opens("b", h.cell, 10, 100))
		call.Stream = sender.NewStream().ID
		h.wantNumber(call, 1)
		h.wantNumber(h.callOf(opens("c", h.cell, 10, 100)), 2)
	},

	"after more calls than the group has applies nothing": func(h *holdTest) {
		epoch, id := h.epoch(h.cell), h.id("a")
		made := h.callOf(opens("c", h.cell, 50, 100))
		made.Record = record(id, "text")
		h.wantBehind(after(epoch, 1, made), 0)
		h.wantUsed(h.cell, 0, 0)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		h.wantNumber(after(epoch, 1, h.callOf(opens("b", h.cell, 10, 100))), 2)
		h.wantBehind(after(epoch, 3, made), 2)
		h.wantBehind(after(epoch, 3, h.callOf(ends("a", h.cell, 0))), 2)
		h.wantUsed(h.cell, 20, 20)
		h.wantRecord(h.look(id), store.RecordAnswer{})
		h.wantChanges(store.Change{Cell: h.cell, Total: 20, Limit: 100})
	},
	"after fewer calls than the group has is applied": func(h *holdTest) {
		epoch := h.epoch(h.cell)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		h.wantNumber(h.callOf(opens("b", h.cell, 10, 100)), 2)
		h.wantNumber(after(epoch, 1, h.callOf(opens("c", h.cell, 10, 100))), 3)
	},
	"after calls of another epoch is applied": func(h *holdTest) {
		epoch := h.epoch(h.cell)
		h.wantNumber(after(epoch+1, 9, h.callOf(opens("a", h.cell, 10, 100))), 1)
		h.Wipe(h)
		reply := h.call(after(epoch, 1, h.callOf(opens("b", h.cell, 10, 100))))
		if reply.Number != 1 || reply.Epoch == epoch || reply.Behind {
			h.Errorf("%+v", reply)
		}
		h.wantUsed(h.cell, 10, 10)
	},
	"that makes a hold in a lost epoch applies nothing": func(h *holdTest) {
		lost, id := h.epoch(h.cell), h.id("a")
		h.Wipe(h)
		call := h.callOf(states("nobody", h.cell, 1, 1), opens("a", h.cell, 10, 100), opens("b", h.cell, 10, 100))
		call.Record = record(id, "text")
		call.Holds[2].Epoch = lost
		for range 2 {
			reply := h.call(call)
			if !reply.Emptied || reply.Epoch == lost || reply.Number != 0 || reply.Behind || reply.Refused {
				h.Errorf("%+v", reply)
			}
		}
		h.wantUsed(h.cell, 0, 0)
		h.wantRecord(h.look(id), store.RecordAnswer{})
		for i := range call.Holds {
			call.Holds[i].Epoch = h.epoch(h.cell)
		}
		if reply := h.call(call); reply.Emptied || !reply.Record.Changed {
			h.Errorf("%+v", reply)
		}
		h.wantUsed(h.cell, 20, 20)
		late := states("a", h.cell, 10, 0)
		late.Epoch = lost // only new holds need the group's epoch
		h.hold(late)
		call = h.callOf(states("a", h.cell, 30, 0), opens("c", h.cell, 10, 100))
		call.Holds[0].Limit, call.Holds[1].Epoch = 5, lost
		if reply := h.call(call); !reply.Emptied {
			h.Errorf("%+v", reply)
		}
		h.wantUsed(h.cell, 20, 20)
		h.wantChanges(store.Change{Cell: h.cell, Total: 20, Limit: 100})
	},

	"that is out of bounds is an error": testHoldBounds,
	"leaves its arguments to its caller": func(h *holdTest) {
		call := h.callOf(opens("a", h.cell, 10, 100))
		call.Record = record(h.id("a"), "text", 1, 2)
		want := store.RecordAnswer{Text: "text", Spent: []int64{1, 2}}
		for range 2 {
			reply := h.call(call)
			clear(call.Record.Spent)
			clear(reply.Record.Spent)
			h.wantRecord(h.look(h.id("a")), want)
			call.Holds, call.Record = nil, change(h.id("a"), 1, 2)
		}
	},
}

// testHoldRefusal makes calls of which a single part is refused: afterwards there must be no other trace of them.
func testHoldRefusal(h *holdTest) {
	c := h.mates(2)
	id, taken := h.id("a"), h.id("b")
	h.hold(opens("old", c[0], 30, 100))
	h.hold(ends("old", c[0], 10))
	h.send(store.Cost{Cell: c[0], Add: 5})
	h.hold(opens("going", c[1], 5, 100))
	stored := store.HoldCall{Group: c[0].Key, Stream: h.stream.ID, Record: record(taken, "first")}
	number := h.call(stored).Number
	with := func(r *store.Record, holds ...store.Hold) store.HoldCall {
		call := h.callOf(holds...)
		call.Record = r
		return call
	}
	for name, call := range map[string]store.HoldCall{
		"two of one cell":   with(record(id, "text"), opens("a", c[0], 60, 50), opens("b", c[0], 60, 50)),
		"one of two cells":  with(record(id, "text"), opens("a", c[1], 60, 100), opens("b", c[0], 86, 100)),
		"the first of two":  with(nil, opens("b", c[0], 86, 100), opens("a", c[1], 60, 50)),
		"beside statements": with(nil, states("going", c[1], 50, 50), ends("late", c[1], 1), opens("b", c[0], 86, 100)),
		"beside the end of another": with(nil, ends("going", c[1], 0), as(store.HoldForced, states("c", c[0], 40, 0)),
			opens("b", c[0], 86, 100)),
		"beside a restored one": with(restored(id, "text"), forced(h.emptied(), states("c", c[0], 40, 0)),
			opens("d", c[0], 1, 90), opens("b", c[0], 86, 100)),
		"another record": with(record(taken, "second"), opens("a", c[1], 60, 50), ends("going", c[1], 0)),
	} {
		reply := h.call(call)
		if !reply.Refused || slices.ContainsFunc(reply.Answers, func(a store.HoldAnswer) bool { return a.Held }) &&
			!strings.HasPrefix(name, "beside") {
			h.Errorf("%s: %+v", name, reply)
		}
		h.wantUsed(c[0], 15, 35)
		h.wantUsed(c[1], 5, 5)
	}
	two := h.refuse(opens("a", c[0], 60, 100), opens("b", c[0], 60, 100)).Answers
	if !two[0].Fits || two[0].Used != 15 || two[1].Fits || two[1].Used != 75 {
		h.Errorf("%+v", two)
	}
	h.wantChanges(store.Change{Cell: c[0], Total: 35, Limit: 100}, store.Change{Cell: c[1], Total: 5, Limit: 100})
	h.wantNumber(h.callOf(states("a", c[0], 1, 1)), number+1)
	h.wantHeld(opens("late", c[1], 1, 100), true)
	h.wantRecord(h.look(id), store.RecordAnswer{})
	h.wantRecord(h.look(taken), store.RecordAnswer{Text: "first"})
}

// testHoldBounds makes calls with a single field out of its bounds, which the error must name.
func testHoldBounds(h *holdTest) {
	id := h.id("a")
	for want, spoil := range map[string]func(*store.HoldCall){
		"stream":        func(c *store.HoldCall) { c.Stream = 0 },
		"after is call": func(c *store.HoldCall) { c.After.Number = -1 },
		"101 holds":     func(c *store.HoldCall) { c.Holds = slices.Repeat(c.Holds, 51)[:101] },
		"has 2 holds":   func(c *store.HoldCall) { c.Record.Text = "" },

		"holds[1]: invalid: the owner has 0": func(c *store.HoldCall) { c.Holds[1].Owner = "" },
		"owner has 33": func(c *store.HoldCall) {
			c.Holds[1].Owner = strings.Repeat("x", store.HoldOwnerBytesMax+1)
		},
		"amount is -1":               func(c *store.HoldCall) { c.Holds[1].Amount = -1 },
		"amount is 9":                func(c *store.HoldCall) { c.Holds[1].Amount = store.CountMax + 1 },
		"amount afterwards is -1":    func(c *store.HoldCall) { c.Holds[1].After = -1 },
		"amount afterwards is 2":     func(c *store.HoldCall) { c.Holds[1].After = 2 },
		"limit is -1":                func(c *store.HoldCall) { c.Holds[1].Limit = -1 },
		"time to live is 0":          func(c *store.HoldCall) { c.Holds[1].TTL = 0 },
		"time to live is -1":         func(c *store.HoldCall) { c.Holds[1].TTL = -time.Second },
		"holds[1]: invalid: the tim": func(c *store.HoldCall) { c.Holds[1].TTL = store.HoldTTLMax + 1 },
		"stated as 3":                func(c *store.HoldCall) { c.Holds[1].As = store.HoldForced + 1 },
		"stated as 0, optional true": func(c *store.HoldCall) {
			c.Holds[1].As, c.Holds[1].Optional = store.HoldState, true
		},
		"tentative true": func(c *store.HoldCall) {
			c.Holds[1].As, c.Holds[1].Tentative = store.HoldForced, true
		},

		"ID has 0":   func(c *store.HoldCall) { c.Record.ID = "" },
		"ID has 125": func(c *store.HoldCall) { c.Record.ID = strings.Repeat("x", store.ReservationIDBytesMax+1) },
		"record has 65537 bytes": func(c *store.HoldCall) {
			c.Record.Text = strings.Repeat("x", store.RecordBytesMax+1)
		},
		"has 33 amounts":             func(c *store.HoldCall) { c.Record.Spent = make([]int64, store.RecordItemsMax+1) },
		"spent[1] is -1":             func(c *store.HoldCall) { c.Record.Spent = []int64{0, -1} },
		"spent[1] is 9":              func(c *store.HoldCall) { c.Record.Spent = []int64{0, store.CountMax + 1} },
		"record's time to live is 0": func(c *store.HoldCall) { c.Record.TTL = 0 },
		"record's time to live is -": func(c *store.HoldCall) { c.Record.TTL = -time.Second },
		"record's time to live is":   func(c *store.HoldCall) { c.Record.TTL = store.HoldTTLMax + 1 },
		"0 bytes, restored true": func(c *store.HoldCall) {
			c.Holds, c.Record.Text, c.Record.Restored = nil, "", true
		},
		"0 bytes, restored false, withdrawn true": func(c *store.HoldCall) {
			c.Holds, c.Record.Text, c.Record.Withdraw = nil, "", true
		},
	} {
		call := h.callOf(opens("a", h.cell, 1, 9), opens("b", h.cell, 1, 9))
		call.Record = record(id, "text")
		spoil(&call)
		reply, err := h.Hold(h.Context(), call)
		if !errors.Is(err, window.ErrInvalid) || !strings.Contains(err.Error(), want) {
			h.Errorf("%s: %+v, %v", want, reply, err)
		}
	}
	h.wantUsed(h.cell, 0, 0)
	h.wantRecord(h.look(id), store.RecordAnswer{})
}

// originHoldFailoverTests are for origins that may lose some of the calls that they have answered.
var originHoldFailoverTests = map[string]func(*holdTest){
	"is reported to the streams that have lost calls": func(h *holdTest) {
		epoch, other := h.epoch(h.cell), sender.NewStream()
		of := func(hold store.Hold) store.HoldCall {
			call := h.callOf(hold)
			call.Stream = other.ID
			return call
		}
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		h.wantNumber(of(opens("b", h.cell, 10, 100)), 1)
		rollback := h.State(h)
		h.wantNumber(after(epoch, 1, h.callOf(opens("c", h.cell, 10, 100))), 2)
		h.wantNumber(after(epoch, 2, h.callOf(ends("a", h.cell, 5))), 3)
		h.wantUsed(h.cell, 25, 30)
		rollback(h)
		h.wantBehind(after(epoch, 3, store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID}), 1)
		h.wantBehind(after(epoch, 3, h.callOf(opens("d", h.cell, 10, 100))), 1)
		h.wantNumber(after(epoch, 1, of(opens("e", h.cell, 10, 100))), 2)
		h.wantUsed(h.cell, 30, 30)
		again := []store.Hold{as(store.HoldForced, states("c", h.cell, 10, 0)), ends("a", h.cell, 5)}
		h.wantNumber(after(epoch, 1, h.callOf(again...)), 2)
		h.wantUsed(h.cell, 35, 35)
		h.wantHeld(opens("c", h.cell, 10, 100), true)
	},
	"that lost the first call of a stream is reported too": func(h *holdTest) {
		epoch := h.epoch(h.cell)
		h.call(store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID}) // the epoch is stored
		rollback := h.State(h)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		rollback(h)
		h.wantBehind(after(epoch, 1, h.callOf(opens("b", h.cell, 10, 100))), 0)
		h.wantUsed(h.cell, 0, 0)
	},
	"is shown by a number that comes a second time": func(h *holdTest) {
		h.epoch(h.cell)
		rollback := h.State(h)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		rollback(h)
		h.wantNumber(h.callOf(opens("b", h.cell, 10, 100)), 1)
	},
	"may lose a record, which is restored": func(h *holdTest) {
		epoch, id := h.epoch(h.cell), h.id("a")
		rollback := h.State(h)
		call := h.callOf(opens("a", h.cell, 10, 100))
		call.Record = record(id, "text", 0)
		h.wantNumber(call, 1)
		rollback(h)
		call.Record.Restored, call.Holds[0].As = true, store.HoldForced
		h.wantBehind(after(epoch, 1, call), 0)
		h.wantRecord(h.look(id), store.RecordAnswer{})
		call.After = store.Mark{}
		reply := h.call(call)
		h.wantRecord(reply.Record, store.RecordAnswer{Text: "text", Changed: true})
		h.wantUsed(h.cell, 10, 10)
	},
}

// originHoldGroupsTests are for origins with several groups.
var originHoldGroupsTests = map[string]func(*holdTest){
	"is counted in each group": func(h *holdTest) {
		other := h.stranger()
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 2)
		h.wantNumber(h.callOf(opens("a", other, 10, 100)), 1)
	}, "about two groups is an error": func(h *holdTest) {
		other := h.stranger()
		record := store.HoldCall{Group: h.cell.Key, Stream: h.stream.ID, Record: record("", "text")}
		for i := 0; record.Record.ID == ""; i++ {
			if key := store.RecordKey(fmt.Sprint(i)); h.GroupOf(&key) == h.GroupOf(&other.Key) {
				record.Record.ID = fmt.Sprint(i)
			}
		}
		group := h.callOf(opens("a", other, 1, 9))
		group.Group = h.cell.Key
		for _, call := range []store.HoldCall{h.callOf(opens("a", h.cell, 1, 9), opens("a", other, 1, 9)), record, group} {
			if reply, err := h.Hold(h.Context(), call); err == nil {
				h.Errorf("%+v: %+v", call, reply)
			}
		}
		h.wantUsed(h.cell, 0, 0)
		h.wantUsed(other, 0, 0)
	}}

// originHoldCallTimeTests are for origins whose clock can be set.
var originHoldCallTimeTests = map[string]func(*holdTest){
	"is counted for HoldKeptFor at least": func(h *holdTest) {
		epoch := h.epoch(h.cell)
		h.wantNumber(h.callOf(opens("a", h.cell, 10, 100)), 1)
		for number := range int64(3) {
			h.pass(store.HoldKeptFor - time.Second)
			h.wantNumber(after(epoch, number+1, h.callOf(states("a", h.cell, 10, 0))), number+2)
		}
	}}
