package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const slotsTTL = time.Minute // longer than a test takes

// slotKeys are n keys of the shard of the other tests' cells.
func (h *originTest) slotKeys(n int) (keys []window.Key) {
	for i := 0; len(keys) < n; i++ {
		if key := store.SlotsKey("w", "n", fmt.Sprint("id-", i)); h.ShardOf(&key) == h.shard() {
			keys = append(keys, key)
		}
	}
	return keys
}

// wants asks for slots of a key.
func wants(key window.Key, limit, have, want int64) store.SlotsAsk {
	return store.SlotsAsk{Key: key, Limit: limit, Have: have, Want: want, TTL: slotsTTL}
}

// slotsOf calls as a node, and expects an answer to each ask.
func (h *originTest) slotsOf(node uint64, number int64, asks ...store.SlotsAsk) []store.SlotsAnswer {
	h.Helper()
	reply, err := h.Slots(h.Context(), h.shard(), store.SlotsCall{Node: node, Number: number, Asks: asks})
	if err != nil || len(reply.Answers) != len(asks) || reply.Now.IsZero() {
		h.Fatalf("slots: %+v: %v", reply, err)
	}
	return reply.Answers
}

// wantSlots calls about one key, and expects what is held by the node and by all others.
func (h *originTest) wantSlots(node uint64, number int64, ask store.SlotsAsk, held, others int64) store.SlotsAnswer {
	h.Helper()
	a := h.slotsOf(node, number, ask)[0]
	if a.Held != held || a.Others != others || a.Err != nil {
		h.Errorf("node %d, call %d, %+v: %+v, want %d held and %d by others", node, number, ask, a, held, others)
	}
	return a
}

// within waits for a condition that takes some 50 ms, and not for as long as await: a subject with a fault fails it.
func (h *originTest) within(what string, holds func() bool) {
	h.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); !holds(); <-tick.C {
		if time.Since(start) > 5*time.Second {
			h.Fatalf("%s: not within 5 s", what)
		}
	}
}

// pass waits until more than d has passed by the servers' clock, or sets it forward.
func (h *originTest) pass(d time.Duration) {
	h.Helper()
	if h.Pass != nil {
		h.Pass(h, d+time.Millisecond)
		return
	}
	start := h.Clock(h)
	h.within("some time has passed", func() bool { return h.Clock(h).Sub(start) > d })
}

var originSlotsTests = map[string]func(*originTest){
	"are granted while the limit has room": func(h *originTest) {
		k := h.slotKeys(2)
		a := h.slotsOf(1, 1, wants(k[0], 5, 0, 3), wants(k[1], 1, 0, 1))
		if a[0].Held != 3 || a[1].Held != 1 || a[0].Others != 0 {
			h.Errorf("%+v", a)
		}
		h.wantSlots(2, 1, wants(k[0], 5, 0, 3), 2, 3)
		h.wantSlots(3, 1, wants(k[0], 5, 0, 1), 0, 5)
		h.wantSlots(3, 2, wants(k[1], 1, 0, 1), 0, 1)
		h.wantSlots(1, 2, wants(k[0], 5, 3, 1), 3, 2)
	},
	"are what the node says last": func(h *originTest) {
		h.wantSlots(1, 1, wants(h.key, 5, 0, 5), 5, 0)
		h.wantSlots(1, 2, wants(h.key, 5, 2, 0), 2, 0)
		h.wantSlots(2, 1, wants(h.key, 5, 0, 5), 3, 2)
		h.wantSlots(1, 3, wants(h.key, 5, 0, 0), 0, 3)
		h.wantSlots(2, 2, wants(h.key, 5, 3, 2), 5, 0)
	},
	"that are held stay when the limit is lowered": func(h *originTest) {
		h.wantSlots(1, 1, wants(h.key, 5, 0, 5), 5, 0)
		h.wantSlots(1, 2, wants(h.key, 2, 4, 1), 4, 0)
		h.wantSlots(2, 1, wants(h.key, 2, 0, 1), 0, 4)
		h.wantSlots(1, 3, wants(h.key, 2, 1, 0), 1, 0)
		h.wantSlots(2, 2, wants(h.key, 2, 0, 2), 1, 1)
	},
	"that the origin does not know of count as wanted": func(h *originTest) {
		h.wantSlots(1, 1, wants(h.key, 5, 0, 4), 4, 0)
		h.wantSlots(2, 1, wants(h.key, 5, 4, 0), 1, 4)
		h.wantSlots(1, 2, wants(h.key, 5, 5, 0), 4, 1)
	},
	"are granted once however often a call comes": func(h *originTest) {
		for range 3 {
			h.wantSlots(1, 1, wants(h.key, 5, 0, 2), 2, 0)
		}
		call := store.SlotsCall{Node: 1, Number: 2, Asks: []store.SlotsAsk{wants(h.key, 5, 2, 2)}}
		h.lost("slots", func() error { return errOf(h.Slots(h.Context(), h.shard(), call)) })
		h.wantSlots(2, 1, wants(h.key, 5, 0, 5), 1, 4)
		h.wantSlots(1, 3, wants(h.key, 5, 2, 1), 3, 1) // it does not know of the two
		h.wantSlots(2, 2, wants(h.key, 5, 1, 5), 2, 3)
		h.wantSlots(1, 4, wants(h.key, 5, 0, 0), 0, 2)
		h.wantSlots(2, 2, wants(h.key, 5, 1, 5), 2, 0) // now there would be room
	},
	"stay as they are after a late call": func(h *originTest) {
		h.wantSlots(1, 5, wants(h.key, 5, 0, 2), 2, 0)
		h.wantSlots(1, 6, wants(h.key, 5, 0, 0), 0, 0)
		a := h.slotsOf(1, 5, wants(h.key, 5, 2, 3))[0]
		if !errors.Is(a.Err, store.ErrSlotsLate) || a.Held != 0 {
			h.Errorf("late: %+v", a)
		}
		h.wantSlots(2, 1, wants(h.key, 5, 0, 5), 5, 0)
	},
	"end with their time": func(h *originTest) {
		short := wants(h.key, 5, 0, 4)
		short.TTL = 50 * time.Millisecond
		h.wantSlots(1, 1, short, 4, 0)
		a := h.slotsOf(2, 1, wants(h.key, 5, 0, 1))[0]
		if a.Held != 1 || a.Others == 4 && (a.RetryIn <= 0 || a.RetryIn > short.TTL) {
			h.Errorf("%+v", a)
		}
		number := int64(1)
		h.within("they have ended", func() bool {
			number++
			return h.slotsOf(2, number, wants(h.key, 5, 1, 4))[0].Held == 5
		})
		h.wantSlots(1, 2, wants(h.key, 5, 4, 0), 0, 5) // they are another's now
	},
	"are kept by renewal": func(h *originTest) {
		short := wants(h.key, 1, 0, 1)
		short.TTL = 50 * time.Millisecond
		h.wantSlots(1, 1, short, 1, 0)
		h.wantSlots(1, 2, wants(h.key, 1, 1, 0), 1, 0)
		h.pass(2 * short.TTL)
		h.wantSlots(2, 1, wants(h.key, 1, 0, 1), 0, 1)
	},
	"are spare while much is left, and no node is refused": func(h *originTest) {
		ask := wants(h.key, 20, 0, 2)
		ask.Spare = 4
		h.wantSlots(1, 1, ask, 6, 0)
		ask.Spare = 100
		h.wantSlots(2, 1, ask, 8, 6) // 2, and half of 12
		if a := h.wantSlots(3, 1, wants(h.key, 20, 0, 7), 6, 14); a.Starved {
			h.Errorf("starved by itself: %+v", a)
		}
		if a := h.wantSlots(1, 2, wants(h.key, 20, 2, 0), 2, 14); !a.Starved {
			h.Errorf("another node was refused: %+v", a)
		}
		ask = wants(h.key, 20, 8, 0)
		ask.Spare = 2
		h.wantSlots(2, 2, ask, 8, 8)
		h.wantSlots(3, 2, wants(h.key, 20, 6, 1), 7, 10)
		h.wantSlots(2, 3, ask, 9, 9) // 3 were left, of which half
	},
	"are as many as limits may be": func(h *originTest) {
		h.wantSlots(1, store.CountMax-1, wants(h.key, store.CountMax, 0, store.CountMax-1), store.CountMax-1, 0)
		h.wantSlots(2, 1, wants(h.key, store.CountMax, 0, store.CountMax), 1, store.CountMax-1)
		a := h.slotsOf(1, store.CountMax, wants(h.key, store.CountMax, 1, 0))[0]
		if a.Held != 1 {
			h.Errorf("%+v", a)
		}
	},
	"of many keys come in one call": func(h *originTest) {
		var asks []store.SlotsAsk
		for _, k := range h.slotKeys(1200) {
			asks = append(asks, wants(k, 3, 0, 2))
		}
		for i, a := range h.slotsOf(1, 1, asks...) {
			if a.Held != 2 || a.Err != nil {
				h.Fatalf("%d: %+v", i, a)
			}
		}
	},
	"of many nodes at once are no more than the limit": func(h *originTest) {
		h.atOnce(30, 50, func(i int) (int64, error) {
			call := store.SlotsCall{Node: uint64(i) + 1, Number: 1, Asks: []store.SlotsAsk{wants(h.key, 50, 0, 3)}}
			reply, err := h.Slots(h.Context(), h.shard(), call)
			if err != nil {
				return 0, err
			}
			return reply.Answers[0].Held, nil
		})
	},
	"of names that look alike are apart": func(h *originTest) {
		for i, name := range [][3]string{{"a", "b", "c"}, {"a:b", "", "c"}, {"a", "b:c", "x"}, {"a", "b", "c:x"},
			{"a", "b", "C"}, {"a", "b", "c "}, {"a", "b", "{c}"}, {"a", "b", "%7Bc%7D"}, {"a", "b", "\x00"}} {
			k := store.SlotsKey(name[0], name[1]+"n", name[2])
			if h.ShardOf(&k) == h.shard() {
				h.wantSlots(uint64(i)+1, 1, wants(k, 1, 0, 1), 1, 0)
			}
		}
	},
	"and cells of the same names are apart": func(h *originTest) {
		c := h.cells(1)[0]
		h.send(store.Cost{Cell: c, Add: 3})
		k := store.SlotsKey(c.Workspace, c.Namespace, c.Identifier)
		if h.ShardOf(&k) == h.shard() {
			h.wantSlots(1, 1, wants(k, 1, 0, 1), 1, 0)
		}
		h.wantRegions([]window.Cell{c}, 3)
	},
	"that are out of bounds are refused, and none beside them": func(h *originTest) {
		for name, spoil := range map[string]func(*store.SlotsAsk){
			"no name":      func(a *store.SlotsAsk) { a.Key.Identifier = "" },
			"long name":    func(a *store.SlotsAsk) { a.Key.Identifier = strings.Repeat("x", window.IdentifierBytesMax+1) },
			"a duration":   func(a *store.SlotsAsk) { a.Key.Duration = time.Second },
			"limit":        func(a *store.SlotsAsk) { a.Limit = -1 },
			"have":         func(a *store.SlotsAsk) { a.Have = -1 },
			"want":         func(a *store.SlotsAsk) { a.Want = store.CountMax + 1 },
			"spare":        func(a *store.SlotsAsk) { a.Spare = -1 },
			"time to live": func(a *store.SlotsAsk) { a.TTL = 0 },
			"too long":     func(a *store.SlotsAsk) { a.TTL = store.SlotsTTLMax + 1 },
		} {
			bad := wants(h.key, 5, 0, 5)
			if spoil(&bad); h.ShardOf(&bad.Key) != h.shard() {
				continue
			}
			h.Run(name, func(t *testing.T) {
				a := h.slotsOf(1, 1, bad, wants(h.key, 5, 0, 2))
				if a[0].Held != 0 || !errors.Is(a[0].Err, window.ErrInvalid) || a[1].Held != 2 {
					t.Errorf("%+v", a)
				}
			})
		}
		for _, call := range []store.SlotsCall{{Node: 0, Number: 1}, {Node: 1, Number: 0}, {Node: 1, Number: -1}} {
			call.Asks = []store.SlotsAsk{wants(h.key, 5, 0, 1)}
			if _, err := h.Slots(h.Context(), h.shard(), call); !errors.Is(err, window.ErrInvalid) {
				h.Errorf("%+v: %v", call, err)
			}
		}
		none := store.SlotsCall{Node: 1, Number: 1}
		if reply, err := h.Slots(h.Context(), h.shard(), none); err != nil || len(reply.Answers) > 0 {
			h.Errorf("no asks: %+v: %v", reply, err)
		}
	},
	"that an emptied origin has lost are said again before others are granted": func(h *originTest) {
		brief := func(have, want int64) store.SlotsAsk {
			ask := wants(h.key, 5, have, want)
			ask.TTL = 400 * time.Millisecond
			return ask
		}
		h.wantSlots(1, 1, brief(0, 4), 4, 0)
		h.Wipe(h)
		start := h.Clock(h)
		a := h.slotsOf(2, 1, brief(0, 3))[0]
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held != 0 || a.RetryIn <= 0 || a.RetryIn > brief(0, 0).TTL {
			h.Errorf("a wish, just after: %+v", a)
		}
		a = h.slotsOf(1, 2, brief(4, 2))[0] // 6 would be above the limit
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held != 4 {
			h.Errorf("what is held, and a wish: %+v", a)
		}
		h.wantSlots(3, 1, brief(3, 0), 3, 4) // whatever the limit is
		number := int64(2)
		h.within("it has grown old", func() bool {
			number++
			return h.slotsOf(2, number, brief(0, 3))[0].Held > 0
		})
		if took := h.Clock(h).Sub(start); took < brief(0, 0).TTL-10*time.Millisecond {
			h.Errorf("granted after %v", took)
		}
	},
}
