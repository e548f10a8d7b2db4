package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// holdFault is a fault of an origin's holds and records: changes of calls, changes of answers, or another way to make a
// call.
type holdFault struct {
	subtest string // the beginning of the name of the subtest that must find it

	hold   func(*originSubject, *store.Hold)
	record func(*originSubject, *store.Record)
	call   func(*originSubject, *store.HoldCall)
	reply  func(*originSubject, store.HoldCall, *store.HoldReply)
	answer func(context.Context, *originSubject, store.HoldCall) (store.HoldReply, error)
}

// allOriginFaults returns the faults of originFaults and of holdFaults.
func allOriginFaults() map[string]string {
	all := maps.Clone(originFaults)
	for name, fault := range holdFaults {
		all[name] = fault.subtest
	}
	return all
}

// Hold implements store.Granter.
func (h *originSubject) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	fault := holdFaults[h.fault]
	call.Holds = slices.Clone(call.Holds)
	for i := range call.Holds {
		if fault.hold != nil {
			fault.hold(h, &call.Holds[i])
		}
	}
	if call.Record != nil && fault.record != nil {
		changed := *call.Record
		fault.record(h, &changed)
		call.Record = &changed
	}
	if fault.call != nil {
		fault.call(h, &call)
	}
	if h.fault == "never looks at ctx" {
		ctx = context.Background()
	}
	if fault.answer != nil {
		return fault.answer(ctx, h, call)
	}
	reply, err := h.Origin.Hold(ctx, call)
	if err == nil && fault.reply != nil {
		fault.reply(h, call, &reply)
	}
	return reply, err
}

// GroupOf implements store.Granter.
func (h *originSubject) GroupOf(key *window.Key) int {
	if h.fault == "groups are drawn" {
		h.number++
		return int(h.number % 3)
	}
	return h.Origin.GroupOf(key)
}

// also makes another call of the stream, to the same group.
func (h *originSubject) also(call store.HoldCall, r *store.Record, holds ...store.Hold) store.HoldReply {
	call.Record, call.Holds, call.After = r, holds, store.Mark{}
	reply, err := h.Origin.Hold(context.Background(), call)
	if err != nil {
		panic(err)
	}
	return reply
}

// now returns the origin's time.
func (h *originSubject) now() time.Time {
	reply, err := h.Read(context.Background(), []window.Cell{{Key: store.RecordKey("x")}})
	if err != nil {
		panic(err)
	}
	return reply.Now
}

// era returns a number that changes every 45 s.
func (h *originSubject) era() string { return fmt.Sprint(h.now().Unix() / 45) }

var holdFaults = map[string]holdFault{
	"groups are drawn": {subtest: "GroupOf/is_the_same"},

	"holds past the limit": {subtest: "Hold/is_granted_while", hold: func(_ *originSubject, w *store.Hold) {
		w.As = max(w.As, w.As*store.HoldForced)
	}},
	"the cell before does not count": {subtest: "Hold/fits_beside_the_share", hold: func(_ *originSubject, w *store.Hold) {
		w.Before.Sequence -= 100
	}},
	"the cell before has one name": {subtest: "Hold/fits_beside_the_cell_before",
		hold: func(_ *originSubject, w *store.Hold) { w.Before.Generation = 0 }},
	"foreign totals are no part of used": {subtest: "Hold/fits_beside_what", hold: func(h *originSubject, w *store.Hold) {
		if reply, err := h.Read(context.Background(), []window.Cell{w.Cell}); err == nil {
			w.Limit += reply.Totals[0].Foreign
		}
	}},
	"holds never return": {subtest: "Hold/ends_with_its_time", hold: func(_ *originSubject, w *store.Hold) {
		w.After = w.Amount
	}},
	"holds end at their first time": {subtest: "Hold/ends_at_the_latest", hold: func(_ *originSubject, w *store.Hold) {
		if w.As == store.HoldState {
			w.TTL = min(w.TTL, time.Nanosecond)
		}
	}},
	"holds stay ended": {subtest: "Hold/that_has_ended_by_time", hold: func(h *originSubject, w *store.Hold) {
		if ends := h.seen[w.Owner]; w.As == store.HoldState && ends != "" && ends < h.now().Format(time.RFC3339Nano) {
			w.TTL = 0
		}
		h.seen[w.Owner] = h.now().Add(w.TTL).Format(time.RFC3339Nano)
	}},
	"later Afters are lost": {subtest: "Hold/counts_as_stated", hold: func(_ *originSubject, w *store.Hold) {
		if w.TTL > 0 {
			w.After = 0
		}
	}},
	"holds are new each time": {subtest: "Hold/is_granted_once", hold: func(h *originSubject, w *store.Hold) {
		h.number++
		w.Owner += fmt.Sprint(h.number)
	}},
	"an amount is in its own Used": {subtest: "Hold/is_granted_once",
		reply: func(_ *originSubject, c store.HoldCall, r *store.HoldReply) {
			for i := range r.Answers {
				if r.Answers[i].Held {
					r.Answers[i].Used += c.Holds[i].Amount
				}
			}
		}},
	"known holds are made again": {subtest: "Hold/that_is_known", hold: func(_ *originSubject, w *store.Hold) {
		if w.As > store.HoldNew {
			w.Owner += "'"
		}
	}},
	"any statement makes a hold": {subtest: "Hold/that_is_not_known", hold: func(_ *originSubject, w *store.Hold) {
		if w.As == store.HoldState {
			w.As = store.HoldForced
		}
	}},
	"ends that come first are lost": {subtest: "Hold/is_refused_if", hold: func(h *originSubject, w *store.Hold) {
		if w.As == store.HoldState && h.seen[w.Owner] == "" {
			w.Owner = "nobody"
		}
		h.seen[w.Owner] = "known"
	}},
	"an end that comes first is final": {subtest: "Hold/whose_end", hold: func(h *originSubject, w *store.Hold) {
		if h.seen[w.Owner] == "" && w.As == store.HoldState && w.TTL == 0 {
			h.seen[w.Owner] = "ended"
		}
		if h.seen[w.Owner] == "ended" {
			w.As = min(w.As, w.As%store.HoldForced)
		}
	}},
	"no end is final": {subtest: "Hold/that_was_ended", hold: func(_ *originSubject, w *store.Hold) {
		w.TTL = max(w.TTL, time.Nanosecond)
	}},
	"forced holds must fit": {subtest: "Hold/is_made_whatever", hold: func(_ *originSubject, w *store.Hold) {
		if w.As == store.HoldForced && w.TTL > 0 {
			w.As = store.HoldNew
		}
	}},
	"restored holds add": {subtest: "Hold/that_is_forced_after", hold: func(_ *originSubject, w *store.Hold) {
		w.Epoch = 0
	}},
	"ended holds are of HoldsMax": {subtest: "Hold/that_has_ended_is_none",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if c.Holds[0].As == store.HoldNew {
				h.number += int64(len(c.Holds))
			}
			if h.number > store.HoldsMax {
				r.Refused, r.Number, r.Answers[0].Total.Err = true, 0, store.ErrHolds
			}
		}},
	"any number of holds is open": {subtest: "Hold/is_one_of", hold: func(_ *originSubject, w *store.Hold) {
		w.As = max(w.As, w.As*store.HoldForced)
	}},
	"tentative holds are in totals": {subtest: "Hold/that_is_tentative_counts",
		hold: func(_ *originSubject, w *store.Hold) { w.Tentative = false }},
	"tentative holds do not count": {subtest: "Hold/that_is_tentative_counts",
		hold: func(_ *originSubject, w *store.Hold) {
			if w.Tentative {
				w.Amount = 0
			}
		}},
	"what an end leaves is not counted": {subtest: "Hold/is_as_in_a_model",
		hold: func(_ *originSubject, w *store.Hold) {
			if w.TTL == 0 {
				w.After = 0
			}
		}},
	"owners lose their letter case": {subtest: "Hold/has_an_owner", hold: func(_ *originSubject, w *store.Hold) {
		w.Owner = strings.ToLower(w.Owner)
	}},
	"holds are forgotten early": {subtest: "Hold/is_remembered", hold: func(h *originSubject, w *store.Hold) {
		w.Owner += h.era()
	}},

	"holds are decided one by one": {subtest: "a_call/is_refused_as_a_whole",
		answer: func(ctx context.Context, h *originSubject, c store.HoldCall) (all store.HoldReply, err error) {
			for i := range max(1, len(c.Holds)) {
				one := c
				one.Holds = c.Holds[min(i, len(c.Holds)):min(i+1, len(c.Holds))]
				reply, err := h.Origin.Hold(ctx, one)
				if err != nil {
					return reply, err
				}
				reply.Answers = append(all.Answers, reply.Answers...)
				reply.Refused = reply.Refused || all.Refused
				if all = reply; all.Refused {
					all.Number = 0
				}
			}
			return all, nil
		}},
	"records are stored before holds": {subtest: "a_call/is_refused_as_a_whole",
		call: func(h *originSubject, c *store.HoldCall) {
			if c.Record != nil && store.CheckHoldCall(c) == nil {
				h.also(*c, c.Record)
			}
		}},
	"refused calls are counted": {subtest: "a_call/is_refused_as_a_whole",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if r.Refused && len(c.Holds) > 0 {
				h.also(c, nil, store.Hold{Cell: c.Holds[0].Cell, Owner: "nobody", TTL: time.Second})
			}
		}},
	"optional holds refuse": {subtest: "a_call/leaves_out", hold: func(_ *originSubject, w *store.Hold) {
		w.Optional = false
	}},
	"calls have one number": {subtest: "a_call/is_counted_when",
		reply: func(_ *originSubject, _ store.HoldCall, r *store.HoldReply) { r.Number = min(r.Number, 1) }},
	"streams have one number": {subtest: "a_call/is_counted_for",
		call: func(_ *originSubject, c *store.HoldCall) { c.Stream = 1 }},
	"groups have one number": {subtest: "a_call/is_counted_in",
		reply: func(h *originSubject, _ store.HoldCall, r *store.HoldReply) {
			h.number += r.Number - max(0, r.Number-1)
			r.Number = h.number
		}},
	"lost calls are not reported": {subtest: "a_call/after_more",
		call: func(_ *originSubject, c *store.HoldCall) { c.After.Number = 0 }},
	"calls after lost ones are applied": {subtest: "a_call/after_more",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if r.Behind {
				h.also(c, c.Record, c.Holds...)
			}
		}},
	"late calls are reported as lost ones": {subtest: "a_call/after_fewer",
		reply: func(_ *originSubject, c store.HoldCall, r *store.HoldReply) {
			if c.After.Number > 0 && r.Number > c.After.Number+1 {
				*r = store.HoldReply{Epoch: r.Epoch, Now: r.Now, Behind: true, Have: r.Number}
			}
		}},
	"lost epochs are compared": {subtest: "a_call/after_calls_of",
		call: func(h *originSubject, c *store.HoldCall) { c.After.Epoch = h.also(*c, nil).Epoch }},
	"holds are made in any epoch": {subtest: "a_call/that_makes", hold: func(_ *originSubject, w *store.Hold) {
		if w.As == store.HoldNew {
			w.Epoch = 0
		}
	}},
	"losses are every stream's": {subtest: "a_failover_of_a_group/is_reported",
		call: func(_ *originSubject, c *store.HoldCall) {
			if c.After.Number == 1 {
				c.After.Number++
			}
		}},
	"calls are about several groups": {subtest: "a_call/about_two_groups",
		call: func(h *originSubject, c *store.HoldCall) {
			if len(c.Holds) > 0 {
				c.Group = c.Holds[0].Cell.Key
			}
			c.Holds = slices.DeleteFunc(c.Holds, func(w store.Hold) bool {
				return h.GroupOf(&w.Cell.Key) != h.GroupOf(&c.Group)
			})
		}},
	"calls out of bounds are refused": {subtest: "a_call/that_is_out",
		answer: func(ctx context.Context, h *originSubject, c store.HoldCall) (store.HoldReply, error) {
			if store.CheckHoldCall(&c) != nil {
				return store.HoldReply{Refused: true}, nil
			}
			return h.Origin.Hold(ctx, c)
		}},
	"calls out of bounds are without a name": {subtest: "a_call/that_is_out",
		answer: func(ctx context.Context, h *originSubject, c store.HoldCall) (store.HoldReply, error) {
			if store.CheckHoldCall(&c) != nil {
				return store.HoldReply{}, window.ErrInvalid
			}
			return h.Origin.Hold(ctx, c)
		}},

	"any text is the stored one": {subtest: "Record/is_stored_once", record: func(_ *originSubject, r *store.Record) {
		if r.Text != "" {
			r.Text = "first"
		}
	}},
	"holds of a refused record are made": {subtest: "Record/is_stored_once",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if r.Refused && len(r.Answers) == 0 {
				h.also(c, nil, c.Holds...)
			}
		}},
	"no text is the stored one": {subtest: "Record/is_found", record: func(h *originSubject, r *store.Record) {
		if h.number++; r.Text != "" {
			r.Text += fmt.Sprint(h.number)
		}
	}},
	"refused calls have no record": {subtest: "Record/is_in_the_answer",
		reply: func(_ *originSubject, _ store.HoldCall, r *store.HoldReply) {
			if r.Refused {
				r.Record = store.RecordAnswer{}
			}
		}},
	"records are always Changed": {subtest: "Record/is_one_where",
		reply: func(_ *originSubject, _ store.HoldCall, r *store.HoldReply) { r.Record.Changed = true }},
	"late answers are not Changed": {subtest: "Record/is_Changed_by",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if c.Record != nil {
				name := fmt.Sprintf("%+v", *c.Record)
				r.Record.Changed = r.Record.Changed && h.seen[name] == ""
				h.seen[name] = "made"
			}
		}},
	"amounts are lost": {subtest: "Record/has_spent", record: func(_ *originSubject, r *store.Record) { r.Spent = nil }},
	"any number of amounts": {subtest: "Record/is_not_changed_by", record: func(_ *originSubject, r *store.Record) {
		if len(r.Spent) == 1 || len(r.Spent) == 3 {
			r.Spent = []int64{9, 9}
		}
	}},
	"no record is extended": {subtest: "Record/ends_at", record: func(_ *originSubject, r *store.Record) {
		if r.Text == "" {
			r.TTL = 0
		}
	}},
	"records never end": {subtest: "Record/is_not_changed_after", record: func(_ *originSubject, r *store.Record) {
		r.TTL = max(r.TTL, time.Minute)
	}},
	"records are never settled": {subtest: "Record/is_settled_once", record: func(_ *originSubject, r *store.Record) {
		r.Settled = false
	}},
	"changes make records": {subtest: "Record/is_not_made",
		reply: func(h *originSubject, c store.HoldCall, r *store.HoldReply) {
			if c.Record != nil && r.Record.Text == "" {
				r.Record = h.also(c, &store.Record{ID: c.Record.ID, Text: "made", TTL: time.Second}).Record
			}
		}},
	"any text withdraws": {subtest: "Record/is_not_withdrawn_by", record: func(_ *originSubject, r *store.Record) {
		if r.Withdraw {
			r.Text, r.Withdraw = "", false
		}
	}},
	"records that others have found are withdrawn": {subtest: "Record/is_not_withdrawn_once",
		record: func(h *originSubject, r *store.Record) {
			if r.Withdraw && h.seen[r.ID] == r.Text {
				r.Text, r.Withdraw = "", false
			}
			if h.seen[r.ID] == "" {
				h.seen[r.ID] = r.Text
			}
		}},
	"withdrawn records stay": {subtest: "Record/is_withdrawn_if", record: func(_ *originSubject, r *store.Record) {
		if r.Withdraw {
			r.Text, r.Withdraw = "", false
		}
	}},
	"restored records are withdrawn": {subtest: "Record/is_not_withdrawn_where",
		record: func(_ *originSubject, r *store.Record) { r.Restored = false }},
	"nothing is withdrawn": {subtest: "Record/is_withdrawn", record: func(_ *originSubject, r *store.Record) {
		if r.Withdraw {
			*r = store.Record{ID: r.ID}
		}
	}},
	"restored records are new ones": {subtest: "Record/is_restored_where",
		record: func(_ *originSubject, r *store.Record) {
			if r.Restored = false; r.Text != "" {
				r.TTL = max(r.TTL, time.Minute)
			}
		}},
	"restored records stay ended": {subtest: "Record/that_has_ended", record: func(_ *originSubject, r *store.Record) {
		r.Restored = false
	}},
	"texts end at NUL": {subtest: "Record/has_an_ID", record: func(_ *originSubject, r *store.Record) {
		r.Text, _, _ = strings.Cut(r.Text, "\x00")
	}},
	"IDs lose their letter case": {subtest: "Record/has_an_ID", record: func(_ *originSubject, r *store.Record) {
		r.ID = strings.ToLower(r.ID)
	}},
	"records are forgotten early": {subtest: "Record/is_forgotten", record: func(h *originSubject, r *store.Record) {
		r.ID += h.era()
	}},
}
