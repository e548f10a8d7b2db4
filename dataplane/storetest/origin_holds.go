package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// before is the cell before, where no reset has renamed it.
func before(c window.Cell) window.Cell { return later(c, -1) }

// later is the cell of a key n windows later. In a window that has not begun the one before counts whole.
func later(c window.Cell, n int64) window.Cell {
	c.Sequence += n
	return c
}

// first is a reservation's first word about a cell.
func first(id string, c window.Cell, cost, limit int64) store.Hold {
	return store.Hold{ID: id, Cell: c, Before: before(c), Attempt: 1, Cost: cost, Limit: limit, TTL: time.Hour}
}

// next is a later word.
func next(id string, c window.Cell, step, cost, after int64) store.Hold {
	return store.Hold{ID: id, Cell: c, Before: before(c), Step: step, Cost: cost, After: after, TTL: time.Hour}
}

// said is what is wanted of an answer.
type said struct {
	granted      bool
	used, region int64
}

func (h *originTest) hold(holds []store.Hold, want ...said) []store.HoldAnswer {
	h.Helper()
	reply, err := h.Hold(h.Context(), h.ShardOf(&holds[0].Cell.Key), holds)
	if err != nil || len(reply.Answers) != len(holds) || reply.Now.IsZero() {
		h.Fatalf("hold: %+v: %v", reply, err)
	}
	for i, a := range reply.Answers {
		if got := (said{a.Granted, a.Used, a.Total.Region}); i < len(want) && (got != want[i] || a.Total.Err != nil) {
			h.Errorf("hold %d, %+v: %+v (%v), want %+v", i, holds[i], got, a.Total.Err, want[i])
		}
	}
	return reply.Answers
}

// originHoldForeignTests are for origins that are Relayed.
var originHoldForeignTests = map[string]func(*originTest){
	"fits beside what was sent and what other regions have accepted": func(h *originTest) {
		c := h.cells(1)
		h.send(store.Cost{Cell: c[0], Add: 30})
		h.apply(store.Foreign{Cell: c[0], Count: 20})
		h.hold([]store.Hold{first("a", c[0], 51, 100), first("a", c[0], 50, 100)}, said{false, 50, 30}, said{true, 100, 80})
	},
	"counts are at most CountMax": func(h *originTest) {
		at := later(h.cell, 1)
		forced := func(id string) store.Hold {
			w := first(id, at, store.CountMax, 100)
			w.Force = true
			return w
		}
		h.hold([]store.Hold{forced("a"), forced("b")}, said{true, store.CountMax, store.CountMax},
			said{true, store.CountMax, store.CountMax})
		h.apply(store.Foreign{Cell: at, Count: store.CountMax})
		h.hold([]store.Hold{first("c", at, 1, store.CountMax)}, said{false, store.CountMax, store.CountMax})
		after := later(at, 1)
		a := h.hold([]store.Hold{first("d", after, 1, store.CountMax-1), first("e", after, 1, 1000)})
		if a[0].Granted || a[1].Granted || a[0].UsedBefore != store.CountMax {
			h.Errorf("%+v", a)
		}
	},
}

var originHoldTests = map[string]func(*originTest){
	"is granted while it fits, and is in the totals": func(h *originTest) {
		c := h.cells(2)
		h.hold([]store.Hold{first("a", c[0], 60, 100), first("b", c[0], 50, 100), first("c", c[0], 40, 100),
			first("a", c[1], 7, 100)},
			said{true, 60, 60}, said{false, 60, 60}, said{true, 100, 100}, said{true, 7, 7})
		h.wantRegions(c, 100, 7)
		h.hold([]store.Hold{first("d", c[0], 1, 100)}, said{false, 100, 100})
		wantChanges(h, store.Change{Cell: c[0], Total: 100, Limit: 100}, store.Change{Cell: c[1], Total: 7, Limit: 100})
	},
	"fits beside what the cell before has carried over": func(h *originTest) {
		after := later(h.cell, 1)
		h.send(store.Cost{Cell: h.cell, Add: 1_000_000})
		a := h.hold([]store.Hold{first("a", after, 1, 10), first("b", after, 1, 2_000_000)})
		if a[0].Granted || !a[1].Granted || a[1].UsedBefore != 1_000_000 {
			h.Errorf("%+v", a)
		}
	},
	"the same again is granted once": func(h *originTest) {
		for range 3 {
			h.hold([]store.Hold{first("a", h.cell, 60, 100)}, said{true, 60, 60})
		}
		second := []store.Hold{first("b", h.cell, 40, 100)}
		h.lost("hold", func() error { return errOf(h.Hold(h.Context(), h.shard(), second)) })
		h.hold(second, said{true, 100, 100})
	},
	"the same hold with another cost is another one": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 10, 100)}, said{true, 10, 10})
		for _, cost := range []int64{9, 11, 1000} {
			a := h.hold([]store.Hold{first("a", h.cell, cost, 100)})[0]
			if a.Granted || !errors.Is(a.Total.Err, store.ErrHoldUsed) {
				h.Errorf("%d: %+v", cost, a)
			}
		}
		h.hold([]store.Hold{first("a", h.cell, 10, 100)}, said{true, 10, 10})
	},
	"what is returned is room for holds, and leaves totals as they are": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 100, 100), next("a", h.cell, 1, 10, 10), first("b", h.cell, 90, 100),
			first("c", h.cell, 1, 100)},
			said{true, 100, 100}, said{true, 10, 100}, said{true, 100, 100}, said{false, 100, 100})
		h.hold([]store.Hold{next("b", h.cell, 1, 95, 95)}, said{true, 105, 105})
		h.wantRegions([]window.Cell{h.cell}, 105)
	},
	"words count once, the largest step's last": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 50, 100)}, said{true, 50, 50})
		a := h.hold([]store.Hold{next("a", h.cell, 3, 70, 70), next("a", h.cell, 2, 5, 5), next("a", h.cell, 3, 1, 1),
			first("a", h.cell, 50, 100)},
			said{true, 70, 70}, said{true, 70, 70}, said{true, 70, 70}, said{true, 70, 70})
		if a[0].Late || !a[1].Late || !a[2].Late || !a[3].Late {
			h.Errorf("late: %+v", a)
		}
	},
	"ends with its time, and leaves what it says": func(h *originTest) {
		short := []store.Hold{first("a", h.cell, 60, 100), first("b", h.cell, 40, 100)}
		short[0].TTL, short[1].TTL = 20*time.Millisecond, 20*time.Millisecond
		short[0].After, short[1].After = 0, 40
		h.hold(short)
		probe := first("c", h.cell, 60, 100)
		h.within("it has ended", func() bool { return h.hold([]store.Hold{probe})[0].Granted })
		h.hold([]store.Hold{first("d", h.cell, 1, 100)}, said{false, 100, 100})
		h.hold([]store.Hold{next("a", h.cell, 1, 9, 9)}, said{true, 109, 109}) // spent all the same
	},
	"another time to live takes the place of the first": func(h *originTest) {
		short := first("a", h.cell, 100, 100)
		short.TTL = 30 * time.Millisecond
		h.hold([]store.Hold{short, next("a", h.cell, 1, 100, 0)}, said{true, 100, 100}, said{true, 100, 100})
		h.pass(60 * time.Millisecond)
		h.hold([]store.Hold{first("b", h.cell, 1, 100)}, said{false, 100, 100})
	},
	"one of nothing lowers no limit": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 0, 5), first("b", h.cell, 10, 100)}, said{true, 0, 0}, said{true, 10, 10})
		wantChanges(h, store.Change{Cell: h.cell, Total: 10, Limit: 100})
	},
	"Undo ends what no other attempt has asked for": func(h *originTest) {
		c := h.cells(1)
		undo := func(id string, attempt uint64) store.Hold {
			return store.Hold{ID: id, Cell: c[0], Before: before(c[0]), Attempt: attempt, Undo: true}
		}
		second := first("a", c[0], 60, 100)
		second.Attempt = 2
		h.hold([]store.Hold{first("a", c[0], 60, 100), undo("a", 2)}, said{true, 60, 60}, said{true, 60, 60})
		h.hold([]store.Hold{undo("a", 1), undo("a", 1), second, first("a", c[0], 60, 100), undo("a", 1), undo("a", 1)},
			said{true, 0, 60}, said{true, 0, 60}, said{true, 60, 60}, said{true, 60, 60}, said{true, 60, 60}, said{true, 60, 60})
		h.hold([]store.Hold{undo("a", 2), second, next("a", c[0], 1, 7, 7), undo("a", 2)},
			said{true, 0, 60}, said{true, 60, 60}, said{true, 7, 60}, said{true, 7, 60})
	},
	"Undo ends nothing of a hold that was asked for too often": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 60, 100)}, said{true, 60, 60})
		for attempt := range uint64(store.HoldAttemptsMax) {
			again := first("a", h.cell, 60, 100)
			again.Attempt = attempt + 2
			if a := h.hold([]store.Hold{again}, said{true, 60, 60}); !a[0].Late {
				h.Errorf("attempt %d: %+v", attempt, a)
			}
		}
		for attempt := range uint64(store.HoldAttemptsMax + 1) {
			undo := store.Hold{ID: "a", Cell: h.cell, Before: before(h.cell), Attempt: attempt + 1, Undo: true}
			h.hold([]store.Hold{undo}, said{true, 60, 60})
		}
	},
	"a later word about a hold that is not known changes nothing": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 60, 100)}, said{true, 60, 60})
		if a := h.hold([]store.Hold{next("b", h.cell, 1, 9, 9)}, said{true, 60, 60}); !a[0].Late {
			h.Errorf("%+v", a)
		}
	},
	"Undo ends holds of nothing, and those beside them": func(h *originTest) {
		c := h.cells(2)
		words := []store.Hold{first("a", c[0], 0, 100), first("a", c[1], 60, 100)}
		h.hold(words, said{true, 0, 0}, said{true, 60, 60})
		words[0].Undo, words[1].Undo = true, true
		h.hold(words, said{true, 0, 0}, said{true, 0, 60})
		h.hold([]store.Hold{first("a", c[0], 5, 100)}, said{true, 5, 5}) // of another cost: none is left
	},
	"what has ended at nothing is asked for anew": func(h *originTest) {
		short := first("a", h.cell, 60, 100)
		short.TTL = 20 * time.Millisecond
		h.hold([]store.Hold{short}, said{true, 60, 60})
		probe := first("b", h.cell, 100, 100)
		h.within("it has ended", func() bool { return h.hold([]store.Hold{probe})[0].Granted })
		second := first("a", h.cell, 60, 100)
		second.Attempt = 2
		h.hold([]store.Hold{second}, said{false, 100, 100})
		h.hold([]store.Hold{next("b", h.cell, 1, 40, 40), second, first("c", h.cell, 1, 100)},
			said{true, 40, 100}, said{true, 100, 100}, said{false, 100, 100})
		second.Undo = true
		h.hold([]store.Hold{second}, said{true, 40, 100})
		again := first("b", h.cell, 100, 100)
		again.Attempt, again.Again, again.Force = 2, true, true
		settled := next("b", h.cell, 2, 0, 0)
		settled.TTL = 0
		asked := again
		asked.Again, asked.Force = false, false
		h.hold([]store.Hold{settled, again, asked}, said{true, 0, 100}, said{true, 0, 100}, said{true, 0, 100})
		last := first("d", h.cell, 7, 100)
		last.TTL = time.Millisecond
		h.hold([]store.Hold{last})
		h.within("it has ended", func() bool { return h.hold([]store.Hold{first("e", h.cell, 100, 100)})[0].Granted })
		lost := first("d", h.cell, 7, 100)
		lost.Attempt, lost.Again, lost.Force = 2, true, true
		h.hold([]store.Hold{lost}, said{true, 100, 100}) // it is known
	},
	"another attempt is told that it is not the first": func(h *originTest) {
		c := h.cells(1)
		second := first("a", c[0], 60, 100)
		second.Attempt = 2
		a := h.hold([]store.Hold{first("a", c[0], 60, 100), first("a", c[0], 60, 100), second, first("a", c[0], 60, 100)},
			said{true, 60, 60}, said{true, 60, 60}, said{true, 60, 60}, said{true, 60, 60})
		if a[0].Late || a[1].Late || !a[2].Late || !a[3].Late {
			h.Errorf("late: %+v", a)
		}
	},
	"Force is granted whatever the limit is": func(h *originTest) {
		forced := first("a", h.cell, 500, 100)
		forced.Force = true
		h.hold([]store.Hold{forced}, said{true, 500, 500})
	},
	"a cell that has expired takes no words": func(h *originTest) {
		c := h.cells(1)[0]
		c.Duration = window.DurationMin
		c.Sequence = window.Sequence(h.Clock(h).UnixMilli(), 1000) - 1000
		if h.ShardOf(&c.Key) != h.shard() {
			return
		}
		for _, word := range []store.Hold{first("a", c, 1, 100), next("a", c, 1, 1, 1)} {
			if a := h.hold([]store.Hold{word})[0]; !a.Late || a.Total.Region != 0 || a.Granted && word.Step == 0 {
				h.Errorf("%+v", a)
			}
		}
	},
	"a cell has HoldsMax of them": func(h *originTest) {
		holds := make([]store.Hold, store.HoldsMax)
		for i := range holds {
			holds[i] = first(fmt.Sprint("id-", i), h.cell, 1, 1_000_000)
		}
		for at := 0; at < len(holds); at += 250 {
			h.hold(holds[at : at+250])
		}
		a := h.hold([]store.Hold{first("more", h.cell, 1, 1_000_000)})[0]
		if a.Granted || !errors.Is(a.Total.Err, store.ErrHolds) {
			h.Errorf("one more: %+v", a)
		}
		h.hold([]store.Hold{next("id-7", h.cell, 1, 3, 3)}, said{true, store.HoldsMax + 2, store.HoldsMax + 2})
	},
	"Look changes nothing": func(h *originTest) {
		look := func(id string, cost int64) store.Hold {
			w := first(id, h.cell, cost, 100)
			w.Attempt, w.Look = 2, true
			return w
		}
		h.hold([]store.Hold{look("a", 100), look("a", 101), first("a", h.cell, 60, 100), look("b", 41), look("b", 40)},
			said{true, 0, 0}, said{false, 0, 0}, said{true, 60, 60}, said{false, 60, 60}, said{true, 60, 60})
		if a := h.hold([]store.Hold{look("a", 60)}, said{true, 60, 60})[0]; !a.Late {
			h.Errorf("of another attempt: %+v", a)
		}
		undo := first("a", h.cell, 60, 100)
		undo.Undo = true
		h.hold([]store.Hold{undo}, said{true, 0, 60}) // the other attempt has not asked for it
	},
	"one that was lost comes again beside what nodes restore": func(h *originTest) {
		h.hold([]store.Hold{first("a", h.cell, 60, 100)}, said{true, 60, 60})
		h.Wipe(h)
		again := first("a", h.cell, 60, 100)
		again.Again, again.Force = true, true
		h.hold([]store.Hold{again, again})
		h.send(store.Cost{Cell: h.cell, Epoch: h.epoch(h.cell), Known: 60})
		h.hold([]store.Hold{next("a", h.cell, 1, 10, 10), first("b", h.cell, 91, 100), first("b", h.cell, 90, 100)},
			said{true, 10, 60}, said{false, 10, 60}, said{true, 100, 100})
	},
	"what is out of bounds is refused, and nothing beside it": func(h *originTest) {
		for name, spoil := range map[string]func(*store.Hold){
			"no id":      func(w *store.Hold) { w.ID = "" },
			"a long id":  func(w *store.Hold) { w.ID = strings.Repeat("x", store.ReservationIDBytesMax+1) },
			"cost":       func(w *store.Hold) { w.Cost = -1 },
			"after":      func(w *store.Hold) { w.After = w.Cost + 1 },
			"step":       func(w *store.Hold) { w.Step = -1 },
			"large step": func(w *store.Hold) { w.Step = store.CountMax + 1 },
			"large cost": func(w *store.Hold) { w.Cost = store.CountMax + 1 },
			"long":       func(w *store.Hold) { w.TTL = store.HoldTTLMax + 1 },
			"no attempt": func(w *store.Hold) { w.Attempt = 0 },
		} {
			bad := first("bad", h.cell, 1, 100)
			spoil(&bad)
			a := h.hold([]store.Hold{bad, first("good", h.cell, 5, 100)})
			if a[0].Granted || !errors.Is(a[0].Total.Err, window.ErrInvalid) || a[1].Used != 5 {
				h.Errorf("%s: %+v", name, a)
			}
		}
	},
	"any id is one id": func(h *originTest) {
		for i, id := range []string{"a", "a ", "A", "=a", "c", "m", "a:b{c}%", "\x00\xff\n"} {
			h.hold([]store.Hold{first(id, h.cell, 1, 100), first(id, h.cell, 1, 100)},
				said{true, int64(i + 1), int64(i + 1)}, said{true, int64(i + 1), int64(i + 1)})
			if n, stored, err := h.Note(h.Context(), note(id, 1, id)); !stored || err != nil || n.Text != id {
				h.Errorf("note %q: %+v, %v", id, n, err)
			}
		}
	},
	"of many at once no more are granted than fit": func(h *originTest) {
		h.atOnce(40, 16, func(i int) (int64, error) { // of 3 each, and a limit of 50
			r, err := h.Hold(h.Context(), h.shard(), []store.Hold{first(fmt.Sprint("id-", i), h.cell, 3, 50)})
			return granted(err == nil && r.Answers[0].Granted), err
		})
	},
}

func note(id string, version int64, text string) store.Note {
	return store.Note{ID: id, Version: version, Text: text, TTL: time.Hour}
}

var originNoteTests = map[string]func(*originTest){
	"is stored after the version before it alone": func(h *originTest) {
		for i, try := range []struct {
			note   store.Note
			stored bool
			now    string
		}{
			{note("a", 0, ""), false, ""},
			{note("a", 2, "two"), false, ""},
			{note("a", 1, "one"), true, "one"},
			{note("a", 1, "one"), true, "one"},
			{note("a", 1, "other"), false, "one"},
			{note("a", 2, "two"), true, "two"},
			{note("a", 1, "one"), false, "two"},
			{note("b", 1, "another"), true, "another"},
			{note("a", 0, ""), false, "two"},
		} {
			now, stored, err := h.Note(h.Context(), try.note)
			if err != nil || stored != try.stored || now.Text != try.now || now.Epoch == 0 || now.Now.IsZero() {
				h.Errorf("%d: %+v: %v %+v: %v", i, try.note, stored, now, err)
			}
		}
	},
	"one that was lost is stored again, unless a later one is": func(h *originTest) {
		late, early := note("a", 3, "three"), note("a", 1, "one")
		late.Again, early.Again = true, true
		for _, n := range []store.Note{late, late, early} {
			if now, ok, err := h.Note(h.Context(), n); err != nil || ok != (n == late) || now.Text != "three" {
				h.Errorf("%+v: %v %+v: %v", n, ok, now, err)
			}
		}
	},
	"of several at once one is stored": func(h *originTest) {
		h.atOnce(20, 1, func(i int) (int64, error) {
			_, stored, err := h.Note(h.Context(), note("a", 1, fmt.Sprint(i)))
			return granted(stored), err
		})
	},
	"is forgotten after its time to live": func(h *originTest) {
		n := note("a", 1, "one")
		n.TTL = 20 * time.Millisecond
		if _, stored, err := h.Note(h.Context(), n); !stored || err != nil {
			h.Fatal(stored, err)
		}
		h.within("it is forgotten", func() bool {
			now, _, err := h.Note(h.Context(), note("a", 0, ""))
			return err == nil && now.Version == 0 && now.Text == ""
		})
	},
	"what is out of bounds is refused": func(h *originTest) {
		forever := note("a", 1, "")
		forever.TTL = 0
		long := note("a", 1, "")
		long.TTL = store.NoteTTLMax + 1
		for _, n := range []store.Note{note("", 1, ""), note(strings.Repeat("x", store.ReservationIDBytesMax+1), 1, ""),
			note("a", -1, ""), long, note("a", store.CountMax+1, ""),
			note("a", 1, strings.Repeat("x", store.NoteBytesMax+1)), forever} {
			if _, stored, err := h.Note(h.Context(), n); stored || !errors.Is(err, window.ErrInvalid) {
				h.Errorf("%.50v: %v", n, err)
			}
		}
	},
}
