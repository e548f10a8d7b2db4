package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/shared/window"
)

var originEpochTests = map[string]func(*originTest){
	"is not 0, and every way to the origin has the same": func(h *originTest) {
		c := h.cells(2)
		epoch := h.epoch(c[0])
		if epoch == 0 {
			h.Error("the epoch is 0")
		}
		answers := []store.Total{get(h, h.Client(h), c[0])[0], h.send(store.Cost{Cell: c[0], Add: 1})[0],
			h.send(store.Cost{Cell: c[0], Add: 1, AtMost: 9})[0], get(h, h, c[0])[0]}
		for i, total := range answers {
			if total.Epoch != epoch {
				h.Errorf("answer %d has epoch %d, the first one %d", i, total.Epoch, epoch)
			}
		}
	},
	"changes when the origin is emptied, and what was meant for the earlier one is refused": func(h *originTest) {
		c := h.cells(2)
		chunk := h.stream.Chunk(h, h.adds(c, 5, 7)...)
		sendTo(h, h, chunk)
		old := h.epoch(c[0])
		h.Wipe(h)
		next := h.stream.Chunk(h, store.Cost{Cell: c[0], Epoch: old, Add: 1}, store.Cost{Cell: c[1], Epoch: old, Restore: 3})
		for range 2 {
			for _, chunk := range []store.Chunk{chunk, next} {
				for i, total := range sendAny(h, h, chunk) {
					if !errors.Is(total.Err, store.ErrEpoch) || total.Region != 0 || total.Epoch == old || total.Epoch == 0 {
						h.Errorf("chunk %d, cost %d for an earlier epoch: %+v", chunk.Number, i, total)
					}
				}
			}
		}
		h.wantRegions(c, 0, 0)
		h.send(h.adds(c, 2, 3)...)
		h.wantRegions(c, 2, 3)
	},
	"0 belongs to the epoch in which the chunk is first sent": func(h *originTest) {
		c := h.cells(1)
		h.epoch(c[0])
		chunk := h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 5})
		h.sendLost(chunk) // other nodes may have received it in answers, and restore it as Known
		h.Wipe(h)
		if total := sendAny(h, h, chunk)[0]; !errors.Is(total.Err, store.ErrEpoch) || total.Epoch == 0 {
			h.Errorf("sent again after the origin was emptied: %+v", total)
		}
		h.wantRegions(c, 0)
	},
	"a first chunk with 0 counts, also where the origin is new": func(h *originTest) {
		c := h.cells(1)
		h.send(store.Cost{Cell: c[0], Add: 5})
		h.Wipe(h)
		s := sender.NewStream()
		if got := sendTo(h, h.Client(h), s.Chunk(h, store.Cost{Cell: c[0], Add: 2})); got[0].Region != 2 {
			h.Errorf("total of a new cell after a wipe: %+v", got[0])
		}
	},
	"the total is the sum of Add and max(sum of Restore, greatest Known)": func(h *originTest) {
		c := h.cells(1)
		e := h.epoch(c[0])
		for i, step := range []struct {
			cost store.Cost
			want int64
		}{
			{store.Cost{Add: 3}, 3},
			{store.Cost{Known: 40}, 43},
			{store.Cost{Restore: 30, Known: 35}, 43},
			{store.Cost{Restore: 30, Add: 1}, 64},
			{store.Cost{Known: 61}, 65},
			{store.Cost{Known: 50}, 65},
			{store.Cost{Add: 10}, 75},
		} {
			step.cost.Cell, step.cost.Epoch = c[0], e
			chunk := h.stream.Chunk(h, step.cost)
			for range 2 {
				if got := sendTo(h, h, chunk)[0].Region; got != step.want {
					h.Errorf("step %d: total %d, want %d", i, got, step.want)
				}
			}
		}
	},
	"refuses bounded costs for an earlier one": func(h *originTest) {
		c := h.cells(2)
		old := h.epoch(c[0])
		h.Wipe(h)
		totals := sendAny(h, h, h.stream.Chunk(h, store.Cost{Cell: c[0], Epoch: old, Add: 1, AtMost: 9},
			store.Cost{Cell: c[1], Add: 1, AtMost: 9}))
		if t := totals[0]; !errors.Is(t.Err, store.ErrEpoch) || t.Added || t.Epoch == old || t.Epoch == 0 {
			h.Errorf("a bounded cost for an earlier epoch: %+v", t)
		}
		if totals[1].Err != nil || !totals[1].Added {
			h.Errorf("a bounded cost for any epoch: %+v", totals[1])
		}
		h.wantRegions(c, 0, 1)
	},
}

// "When an origin has lost chunks that it had answered, as a promoted replica may have, it reports that, and their
// sender sends them again". The origins of these tests send them again by themselves: see sender.Keeper.
var originFailoverTests = map[string]func(*originTest){
	"loses no answered chunk of a sender that sends on": func(h *originTest) {
		c := h.cells(2)
		h.send(h.adds(c, 1, 10)...)
		rollback := h.State(h)
		lost := []store.Chunk{h.stream.Chunk(h, h.adds(c, 100)...), h.stream.Chunk(h, h.adds(c, 1000, 10_000)...)}
		for _, chunk := range lost {
			sendTo(h, h, chunk)
		}
		rollback(h)
		h.wantRegions(c, 1, 10)
		if got := regions(h.send(h.adds(c, 100_000)...)); !slices.Equal(got, []int64{101_101}) {
			h.Errorf("the next chunk is answered %v", got)
		}
		other := h.Client(h)
		for _, late := range []store.Origin{h, other} {
			for _, chunk := range lost {
				sendTo(h, late, chunk)
			}
		}
		h.wantRegions(c, 101_101, 10_010)
	},
	"loses no answered bounded cost of a sender that sends on": func(h *originTest) {
		c := h.cells(2)
		get(h, h, c...) // all epochs are drawn
		h.claim([]store.Cost{{Cell: c[0], Add: 1, AtMost: 9}}, yes(1))
		rollback := h.State(h)
		h.claim([]store.Cost{{Cell: c[0], Add: 2, AtMost: 9}, {Cell: c[1], Add: 4, AtMost: 9}}, yes(3), yes(4))
		h.claim([]store.Cost{{Cell: c[0], Add: 9, AtMost: 9}, {Cell: c[0], Add: 5, AtMost: 9}}, no(3), yes(8))
		rollback(h)
		sendTo(h, h.Client(h), (&sender.Stream{ID: h.stream.ID + 1<<32}).Chunk(h, h.adds(c, 10)...)) // takes the room
		h.claim([]store.Cost{{Cell: c[0], Add: 3, AtMost: 9}, {Cell: c[1], Add: 5, AtMost: 9}}, no(18), yes(9))
		h.wantRegions(c, 18, 9)
	},
	"in bounded costs that were not answered adds them once": func(h *originTest) {
		c := h.cells(1)
		h.epoch(c[0])
		rollback := h.State(h)
		h.claim([]store.Cost{{Cell: c[0], Add: 1, AtMost: 99}}, yes(1))
		unanswered := h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 10, AtMost: 99})
		h.sendLost(unanswered)
		rollback(h)
		h.wantClaimed(again(unanswered), no(1))
		h.wantClaimed(unanswered, no(1)) // the claims on their way
		h.claim([]store.Cost{{Cell: c[0], Add: 10, AtMost: 99}}, yes(11))
		rollback(h)
		h.claim([]store.Cost{{Cell: c[0], Add: 1, AtMost: 99}}, yes(12))
	},
	"of bounded costs is noticed by a chunk without costs": func(h *originTest) {
		c := h.cells(40)
		costs, all := make([]store.Cost, len(c)), make([]claimed, len(c))
		for i := range c {
			h.epoch(c[i])
			costs[i], all[i] = store.Cost{Cell: c[i], Add: 2, AtMost: 9}, yes(2)
		}
		rollback := h.State(h)
		h.claim(costs, all...)
		rollback(h)
		h.wantRepeats()
		h.wantRegions(c, slices.Repeat([]int64{2}, len(c))...)
	},
	"adds no bounded cost again that an earlier epoch had": func(h *originTest) {
		c := h.cells(1)
		h.claim([]store.Cost{{Cell: c[0], Add: 5, AtMost: 9}}, yes(5))
		h.Wipe(h)
		h.claim([]store.Cost{{Cell: c[0], Add: 1, AtMost: 9}}, yes(1))
	},
	"is noticed by a chunk without costs": func(h *originTest) {
		c := h.cells(1)
		h.send(h.adds(c, 1)...)
		rollback := h.State(h)
		h.send(h.adds(c, 10)...)
		rollback(h)
		h.wantRepeats()
		h.wantRegions(c, 11)
	},
	"that lost the first chunk of all is one too": func(h *originTest) {
		c := h.cells(store.ChunkMax)
		h.epoch(c[0]) // drawn
		costs := make([]store.Cost, len(c))
		for i, total := range get(h, h, c...) {
			costs[i] = store.Cost{Cell: c[i], Epoch: total.Epoch, Add: 1}
		}
		rollback := h.State(h)
		h.send(costs...)
		rollback(h)
		h.send(costs...)
		for i, total := range get(h, h, c...) {
			if total.Region != 2 {
				h.Fatalf("cell %d is %d", i, total.Region)
			}
		}
	},
	"in a chunk that was not answered applies everything once": func(h *originTest) {
		c := h.cells(1)
		rollback := func() func() { f := h.State(h); return func() { f(h) } }
		h.send(h.adds(c, 1)...)
		back := rollback()
		h.send(h.adds(c, 10)...)
		unanswered := h.stream.Chunk(h, h.adds(c, 100)...)
		h.sendLost(unanswered)
		back()
		h.sendLost(unanswered)
		if got := sendTo(h, h, unanswered)[0].Region; got != 111 {
			h.Errorf("total is %d, want 111", got)
		}
		back()
		h.send(h.adds(c, 1000)...)
		h.wantRegions(c, 1111)
	},
	"is reported where the origin is not as far as After says": testBehind,
	"applies no cost again that an earlier epoch had": func(h *originTest) {
		c := h.cells(1)
		h.send(store.Cost{Cell: c[0], Add: 5})
		h.Wipe(h)
		h.send(store.Cost{Cell: c[0], Epoch: h.epoch(c[0]), Restore: 5})
		h.wantRegions([]window.Cell{c[0]}, 5)
	},
}

// testBehind sends chunks that follow other chunks than the origin has, to the origin itself.
func testBehind(h *originTest) {
	c, raw := h.cells(1), h.Origin.Origin.(*sender.Keeper).Origin
	epoch := h.epoch(c[0])
	for i, step := range []struct {
		number int64
		after  store.Mark
		again  bool // the chunk Repeats
		empty  bool
		behind int64 // 0: the chunk is applied
		want   int64
	}{
		{number: 1, want: 1},
		{number: 2, after: store.Mark{Epoch: epoch, Number: 1}, want: 2},
		{number: 5, after: store.Mark{Epoch: epoch, Number: 4}, behind: 2, want: 2},
		{number: 5, after: store.Mark{Epoch: epoch, Number: 4, Ask: true}, empty: true, behind: 2, want: 2},
		{number: 3, after: store.Mark{Epoch: epoch, Number: 1}, again: true, behind: 2, want: 2},
		{number: 3, after: store.Mark{Epoch: epoch, Number: 3}, again: true, behind: 2, want: 2},
		{number: 4, after: store.Mark{Epoch: epoch, Number: 2}, again: true, want: 3},
		{number: 4, after: store.Mark{Epoch: epoch, Number: 2}, again: true, behind: 4, want: 3},
		{number: 5, after: store.Mark{Epoch: epoch, Number: 3}, want: 4},
		{number: 6, after: store.Mark{Epoch: epoch + 1, Number: 9, Ask: true}, want: 5},
		{number: 6, after: store.Mark{Epoch: epoch, Number: 6}, want: 5},
	} {
		h.stream.Number = step.number - 1
		var costs []store.Cost
		if !step.empty {
			costs = []store.Cost{{Cell: c[0], Epoch: epoch, Add: 1}}
		}
		chunk := h.stream.Chunk(h, costs...)
		chunk.Shard, chunk.After, chunk.Repeats = h.shard(), []store.Mark{step.after}, step.again
		reply, err := raw.Send(h.Context(), chunk)
		var behind []store.Mark
		if step.behind > 0 {
			behind = []store.Mark{{Epoch: epoch, Number: step.behind}}
		}
		if err != nil || !slices.Equal(reply.Behind, behind) {
			h.Errorf("step %d: behind %v, %v; want %v", i, reply.Behind, err, behind)
		}
		for _, total := range reply.Totals {
			if total.Epoch != epoch || (total.Err != nil) != (step.behind > 0) || total.Region != 0 && total.Err != nil {
				h.Errorf("step %d: %+v", i, total)
			}
		}
		h.wantRegions(c, step.want)
	}
}

// wantRepeats sends chunks without costs: the first answer shows which chunks the origin has lost, and they are
// repeated; the next answer shows that there is nothing to repeat.
func (h *originTest) wantRepeats() {
	h.Helper()
	calls := &h.Origin.Origin.(*sender.Keeper).Calls
	for _, want := range []bool{true, false} {
		empty := h.stream.Chunk(h)
		empty.Shard = h.shard()
		before := calls.Load()
		_, err := h.Send(h.Context(), empty)
		if again := calls.Load() - before; err != nil || again > 1 != want {
			h.Errorf("%d calls, %v; want that something is repeated: %v", again, err, want)
		}
	}
}

// keeping returns the origin with each way to it kept by a sender.Keeper.
func keeping(h Origin) Origin {
	client := h.Client
	h.Client = func(t testing.TB) store.Origin { return &sender.Keeper{Origin: client(t)} }
	h.Origin = &sender.Keeper{Origin: h.Origin}
	return h
}
