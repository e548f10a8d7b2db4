package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
)

// record returns a new reservation.
func record(id, text string, spent ...int64) *store.Record {
	return &store.Record{ID: id, Text: text, Spent: spent, TTL: time.Hour}
}

// restored returns a reservation that may be lost.
func restored(id, text string, spent ...int64) *store.Record {
	return &store.Record{ID: id, Text: text, Spent: spent, TTL: time.Hour, Restored: true}
}

// change returns a change of a reservation's spent cost.
func change(id string, spent ...int64) *store.Record { return &store.Record{ID: id, Spent: spent} }

// settles settles a reservation, by an attempt of its own.
func settles(id string, spent ...int64) *store.Record {
	return &store.Record{ID: id, Spent: spent, Settled: true, Attempt: sender.NewStream().ID}
}

// withdraws settles a reservation whose maker got no answer.
func withdraws(id, text string) *store.Record {
	return &store.Record{ID: id, Text: text, Settled: true, Withdraw: true, Attempt: sender.NewStream().ID}
}

// id draws an ID whose record is in the group of h.cell.
func (h *holdTest) id(name string) string {
	for i := 0; ; i++ {
		id := fmt.Sprint(name, "-", i)
		if key := store.RecordKey(id); h.GroupOf(&key) == h.group {
			return id
		}
	}
}

// recordCall returns a call of the subtest's stream about a record alone.
func (h *holdTest) recordCall(r *store.Record) store.HoldCall {
	return store.HoldCall{Group: store.RecordKey(r.ID), Stream: h.stream.ID, Record: r}
}

// record makes a call about a record alone, which is refused if another record has the ID.
func (h *holdTest) record(r *store.Record) store.RecordAnswer {
	h.Helper()
	reply := h.call(h.recordCall(r))
	if another := r.Text != "" && !r.Withdraw && reply.Record.Text != r.Text; reply.Refused != another {
		h.Errorf("%+v: %+v", r, reply)
	}
	return reply.Record
}

// look makes a change that changes nothing.
func (h *holdTest) look(id string) store.RecordAnswer {
	h.Helper()
	a := h.record(change(id))
	a.Changed = false
	return a
}

// wantRecord compares all of an answer but EndsMs. Amounts at the end that are 0 may be left out.
func (h *holdTest) wantRecord(got, want store.RecordAnswer) {
	h.Helper()
	for _, a := range []*store.RecordAnswer{&got, &want} {
		for len(a.Spent) > 0 && a.Spent[len(a.Spent)-1] == 0 {
			a.Spent = a.Spent[:len(a.Spent)-1]
		}
	}
	if got.Text != want.Text || !slices.Equal(got.Spent, want.Spent) || got.Settled != want.Settled ||
		got.Changed != want.Changed {
		h.Errorf("the record is %+v, want %+v", got, want)
	}
}

var originRecordTests = map[string]func(*holdTest){
	"is stored once, with the holds of its call": func(h *holdTest) {
		id := h.id("a")
		made := func(text, owner string) store.HoldCall {
			call := h.callOf(opens(owner, h.cell, 10, 100))
			call.Record = record(id, text, 0, 0)
			return call
		}
		first := store.RecordAnswer{Text: "first", Changed: true}
		for range 3 {
			h.wantRecord(h.call(made("first", "a")).Record, first)
			h.wantUsed(h.cell, 10, 10)
		}
		first.Changed = false
		for range 2 {
			reply := h.call(made("second", "b"))
			h.wantRecord(reply.Record, first)
			if !reply.Refused || len(reply.Answers) != 0 {
				h.Errorf("%+v", reply)
			}
		}
		h.wantUsed(h.cell, 10, 10)
		h.wantHeld(states("b", h.cell, 1, 1), false)
		h.wantRecord(h.record(record(h.id("b"), "second")), store.RecordAnswer{Text: "second", Changed: true})
	},
	"is found where the answer was lost": func(h *holdTest) {
		id := h.id("a")
		call := h.callOf(opens("a", h.cell, 60, 100))
		call.Record = record(id, "text", 0)
		h.lost("hold", func() error { return errOf(h.Hold(h.Context(), call)) })
		reply := h.call(call)
		h.wantRecord(reply.Record, store.RecordAnswer{Text: "text", Changed: true})
		if reply.Refused || !reply.Answers[0].Held {
			h.Errorf("%+v", reply)
		}
		h.wantUsed(h.cell, 60, 60)
	},
	"is in the answer to its own call, also where a hold has been ended since": func(h *holdTest) {
		call := h.callOf(opens("a", h.cell, 60, 100))
		call.Record = record(h.id("a"), "text", 0)
		h.call(call)
		h.record(settles(call.Record.ID, 7))
		h.hold(ends("a", h.cell, 7))
		got := h.call(call).Record
		got.Changed = false
		h.wantRecord(got, store.RecordAnswer{Text: "text", Spent: []int64{7}, Settled: true})
		h.wantUsed(h.cell, 7, 60)
	},
	"is one where several are stored at once": func(h *holdTest) {
		id := h.id("a")
		h.atOnce(20, 1, func(i int) (int64, error) {
			call := h.callOf(opens(fmt.Sprint(i), h.cell, 3, 100))
			call.Record = record(id, fmt.Sprint(i))
			reply, err := h.Hold(h.Context(), call)
			return granted(err == nil && reply.Record.Changed), err
		})
		h.wantUsed(h.cell, 3, 3)
	},
	"has spent the largest amounts that were stated": func(h *holdTest) {
		for i, order := range permutations(3) {
			id := h.id(fmt.Sprint(i))
			h.record(record(id, "text", 0, 0))
			changes := []*store.Record{change(id, 5, 1), change(id, 3, 7), change(id, 4, 4)}
			for _, n := range order {
				h.record(changes[n])
			}
			h.wantRecord(h.look(id), store.RecordAnswer{Text: "text", Spent: []int64{5, 7}})
			h.wantRecord(h.record(change(id, 6, 0)), store.RecordAnswer{Text: "text", Spent: []int64{6, 7}, Changed: true})
		}
	},
	"is not changed by another number of amounts than were stored": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 1, 2))
		for _, amounts := range [][]int64{{9}, {9, 9, 9}} {
			h.wantRecord(h.record(settles(id, amounts...)), store.RecordAnswer{Text: "text", Spent: []int64{1, 2}})
		}
		h.wantRecord(h.record(settles(id)), store.RecordAnswer{Text: "text", Spent: []int64{1, 2}, Settled: true,
			Changed: true})
	},
	"ends at the latest time that was stated": func(h *holdTest) {
		id := h.id("a")
		extend := func(ttl time.Duration) *store.Record { return &store.Record{ID: id, TTL: ttl} }
		for _, step := range []struct {
			record *store.Record
			ttl    time.Duration
		}{
			{record(id, "text"), time.Hour},
			{extend(2 * time.Hour), 2 * time.Hour},
			{extend(time.Hour), 2 * time.Hour},
			{change(id), 2 * time.Hour},
		} {
			got := time.UnixMilli(h.record(step.record).EndsMs).Sub(h.Clock(h))
			if got > step.ttl || got < step.ttl-time.Minute {
				h.Errorf("%+v: it ends in %v, want %v", step.record, got, step.ttl)
			}
		}
	},
	"lasts up to HoldTTLMax": func(h *holdTest) {
		long := record(h.id("a"), "text")
		long.TTL = store.HoldTTLMax
		if got := time.UnixMilli(h.record(long).EndsMs).Sub(h.Clock(h)); got < store.HoldTTLMax-time.Minute {
			h.Errorf("it ends in %v", got)
		}
	},
	"is settled once": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 0))
		h.record(change(id, 3))
		settled := store.RecordAnswer{Text: "text", Spent: []int64{5}, Settled: true, Changed: true}
		h.wantRecord(h.record(settles(id, 5)), settled)
		settled.Changed = false
		for _, late := range []*store.Record{settles(id, 9), change(id, 9), {ID: id, Spent: []int64{9}, TTL: 9 * time.Hour}} {
			h.wantRecord(h.record(late), settled)
		}
		if got := time.UnixMilli(h.record(settles(id, 9)).EndsMs).Sub(h.Clock(h)); got > time.Hour {
			h.Errorf("it ends in %v", got)
		}
		h.wantRecord(h.record(record(id, "another")), settled)
	},
	"is Changed by the same change again, and settled by no other one": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 0))
		for _, call := range []store.HoldCall{h.recordCall(change(id, 3)), h.recordCall(settles(id, 5))} {
			h.lost("hold", func() error { return errOf(h.Hold(h.Context(), call)) })
			want := store.RecordAnswer{Text: "text", Spent: call.Record.Spent, Settled: call.Record.Settled, Changed: true}
			h.wantRecord(h.call(call).Record, want)
		}
		h.wantRecord(h.record(settles(id, 5)), store.RecordAnswer{Text: "text", Spent: []int64{5}, Settled: true})
		withdrawn := withdraws(h.id("b"), "text")
		h.record(record(withdrawn.ID, "text"))
		for range 2 {
			h.wantRecord(h.record(withdrawn), store.RecordAnswer{Text: "text", Settled: true, Changed: true})
		}
	},
	"is settled by one of many at once": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 0))
		h.atOnce(20, 1, func(i int) (int64, error) {
			reply, err := h.Hold(h.Context(), h.recordCall(settles(id, int64(i+1))))
			return granted(err == nil && reply.Record.Changed), err
		})
	},
	"is not made by a change": func(h *holdTest) {
		id := h.id("a")
		for _, r := range []*store.Record{change(id, 5), settles(id, 5), {ID: id, TTL: time.Hour}} {
			h.wantRecord(h.record(r), store.RecordAnswer{})
		}
		h.wantRecord(h.record(record(id, "text", 0)), store.RecordAnswer{Text: "text", Changed: true})
	},
	"is not changed after its end": func(h *holdTest) {
		id := h.id("a")
		brief := record(id, "text", 0)
		brief.TTL = briefly
		h.record(brief)
		h.pass(2 * briefly)
		for _, late := range []*store.Record{change(id, 5), settles(id, 5), {ID: id, TTL: time.Hour}} {
			h.wantRecord(h.record(late), store.RecordAnswer{Text: "text"})
		}
		h.wantRecord(h.record(record(id, "another")), store.RecordAnswer{Text: "text"})
	},
	"that has ended unsettled is open again if it is restored": func(h *holdTest) {
		id := h.id("a")
		brief := record(id, "text", 2)
		brief.TTL = briefly
		h.record(brief)
		h.pass(2 * briefly)
		h.wantRecord(h.record(restored(id, "text", 1)), store.RecordAnswer{Text: "text", Spent: []int64{2}, Changed: true})
		h.wantRecord(h.record(change(id, 5)), store.RecordAnswer{Text: "text", Spent: []int64{5}, Changed: true})
		h.wantRecord(h.record(settles(id, 4)),
			store.RecordAnswer{Text: "text", Spent: []int64{5}, Settled: true, Changed: true})
	},
	"is withdrawn if only its own call has found it": func(h *holdTest) {
		id := h.id("a")
		for range 2 {
			h.record(record(id, "text", 0))
		}
		h.wantRecord(h.record(withdraws(id, "text")), store.RecordAnswer{Text: "text", Settled: true, Changed: true})
		h.wantRecord(h.record(record(id, "text", 0)), store.RecordAnswer{Text: "text", Settled: true})
		h.wantRecord(h.look(id), store.RecordAnswer{})
		h.wantRecord(h.record(settles(id, 5)), store.RecordAnswer{})
		h.wantRecord(h.record(record(id, "another", 0)), store.RecordAnswer{Text: "another", Changed: true})
	},
	"is not stored by a call that comes after its withdrawal": func(h *holdTest) {
		id := h.id("a")
		h.wantRecord(h.record(withdraws(id, "text")), store.RecordAnswer{Text: "text", Settled: true, Changed: true})
		h.wantRecord(h.record(record(id, "text", 0)), store.RecordAnswer{Text: "text", Settled: true})
		h.wantRecord(h.look(id), store.RecordAnswer{})
		h.wantRecord(h.record(restored(id, "text", 0)), store.RecordAnswer{Text: "text", Changed: true})
	},
	"is not withdrawn where it was restored": func(h *holdTest) {
		for _, restore := range []string{"first", "too", "with a hold that does not fit"} {
			id := h.id(restore)
			if restore != "first" {
				h.record(record(id, "text", 0))
			}
			call := h.recordCall(restored(id, "text", 0))
			if restore == "with a hold that does not fit" {
				call.Holds = []store.Hold{opens("a", h.cell, 2, 1)}
			}
			if reply := h.call(call); reply.Refused != (len(call.Holds) > 0) {
				h.Errorf("restored %s: %+v", restore, reply)
			}
			h.wantRecord(h.record(withdraws(id, "text")), store.RecordAnswer{Text: "text"})
		}
	},
	"is withdrawn where another was to be restored": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 0))
		h.record(restored(id, "another", 0))
		h.wantRecord(h.record(withdraws(id, "text")), store.RecordAnswer{Text: "text", Settled: true, Changed: true})
		h.wantRecord(h.record(restored(id, "another", 0)), store.RecordAnswer{Text: "another", Changed: true})
	},
	"is not withdrawn by another text": func(h *holdTest) {
		id := h.id("a")
		h.record(record(id, "text", 0))
		h.wantRecord(h.record(withdraws(id, "another")), store.RecordAnswer{Text: "text"})
		h.wantRecord(h.look(id), store.RecordAnswer{Text: "text"})
	},
	"is not withdrawn once another call has found it": func(h *holdTest) {
		for i, other := range []func(id string) *store.Record{
			func(id string) *store.Record { return record(id, "another") },
			func(id string) *store.Record { return change(id, 0) },
		} {
			id := h.id(fmt.Sprint(i))
			h.record(record(id, "text", 0))
			h.record(other(id))
			h.record(record(id, "text", 0))
			h.wantRecord(h.record(withdraws(id, "text")), store.RecordAnswer{Text: "text"})
			h.wantRecord(h.look(id), store.RecordAnswer{Text: "text"})
		}
	},
	"is restored where it was lost": func(h *holdTest) {
		id := h.id("a")
		want := store.RecordAnswer{Text: "text", Spent: []int64{4, 0}, Changed: true}
		for range 2 {
			h.wantRecord(h.record(restored(id, "text", 4, 0)), want)
		}
		h.wantRecord(h.record(restored(id, "another", 9, 9)), store.RecordAnswer{Text: "text", Spent: []int64{4, 0}})
		h.wantRecord(h.record(restored(id, "text", 2, 9)),
			store.RecordAnswer{Text: "text", Spent: []int64{4, 9}, Changed: true})
		last := restored(id, "text", 3, 3)
		last.Settled, last.TTL = true, 0
		h.wantRecord(h.record(last),
			store.RecordAnswer{Text: "text", Spent: []int64{4, 9}, Settled: true, Changed: true})
	},
	"is restored as it was when it was settled": func(h *holdTest) {
		id := h.id("a")
		lost := restored(id, "text", 4)
		lost.Settled, lost.TTL = true, 0
		h.wantRecord(h.record(lost), store.RecordAnswer{Text: "text", Spent: []int64{4}, Settled: true, Changed: true})
		for _, late := range []*store.Record{change(id, 9), restored(id, "text", 9)} {
			h.wantRecord(h.record(late), store.RecordAnswer{Text: "text", Spent: []int64{4}, Settled: true})
		}
	},
	"is restored with the holds of its call": func(h *holdTest) {
		call := h.callOf(as(store.HoldForced, states("a", h.cell, 60, 0)))
		call.Record = restored(h.id("a"), "text", 0)
		for range 2 {
			h.wantRecord(h.call(call).Record, store.RecordAnswer{Text: "text", Changed: true})
			h.wantUsed(h.cell, 60, 60)
		}
	},
	"has an ID and a text of any bytes": func(h *holdTest) {
		texts := append([]string{strings.Repeat("\x00\xff{x}", store.RecordBytesMax/5)}, suite.Lookalikes...)
		for i, text := range texts {
			id := text
			if i == 0 {
				id = text[:store.ReservationIDBytesMax]
			}
			h.wantRecord(h.record(record(id, text, int64(i))),
				store.RecordAnswer{Text: text, Spent: []int64{int64(i)}, Changed: true})
		}
		for i, text := range texts[1:] {
			h.wantRecord(h.look(text), store.RecordAnswer{Text: text, Spent: []int64{int64(i + 1)}})
		}
	},
	"has amounts up to CountMax": func(h *holdTest) {
		id, most := h.id("a"), slices.Repeat([]int64{store.CountMax}, store.RecordItemsMax)
		h.record(record(id, "text", make([]int64, store.RecordItemsMax)...))
		h.record(change(id, most...))
		h.wantRecord(h.look(id), store.RecordAnswer{Text: "text", Spent: most})
	},
}

// originRecordTimeTests are for origins whose clock can be set.
var originRecordTimeTests = map[string]func(*holdTest){
	"is forgotten HoldKeptFor after its end, or after it was settled": func(h *holdTest) {
		brief, id := record(h.id("a"), "text"), h.id("b")
		brief.TTL = time.Second
		h.record(brief)
		h.record(record(id, "text"))
		h.record(settles(id))
		h.pass(store.HoldKeptFor - time.Second)
		h.wantRecord(h.look(brief.ID), store.RecordAnswer{Text: "text"})
		h.wantRecord(h.look(id), store.RecordAnswer{Text: "text", Settled: true})
		h.pass(3 * time.Second)
		h.wantRecord(h.look(brief.ID), store.RecordAnswer{})
		h.wantRecord(h.look(id), store.RecordAnswer{})
		h.wantRecord(h.record(record(id, "another")), store.RecordAnswer{Text: "another", Changed: true})
	}}
