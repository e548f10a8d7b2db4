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

const grantTTL = time.Minute // longer than a test takes

// grantTest is a subtest about grants.
type grantTest struct {
	*originTest
	key window.Key // the first of slotKeys
}

func newGrantTest(h *originTest) *grantTest {
	g := &grantTest{originTest: h}
	g.key = g.slotKeys(1)[0]
	return g
}

// slotKeys returns n keys of the shard of the other tests' cells.
func (h *grantTest) slotKeys(n int) (keys []window.Key) {
	for i := 0; len(keys) < n; i++ {
		if key := store.SlotsKey("w", "n", fmt.Sprint("id-", i)); h.ShardOf(&key) == h.shard() {
			keys = append(keys, key)
		}
	}
	return keys
}

// wants returns a request for slots of a key.
func wants(key window.Key, limit, have, want int64) store.GrantAsk {
	return store.GrantAsk{Key: key, Limit: limit, Have: have, Want: want, TTL: grantTTL}
}

// acquires returns a request for a lease.
func acquires(key window.Key, id string, limit int64) store.GrantAsk {
	return store.GrantAsk{Key: key, Lease: id, Limit: limit, Want: 1, TTL: grantTTL}
}

func renews(key window.Key, id string) store.GrantAsk {
	return store.GrantAsk{Key: key, Lease: id, Have: 1, TTL: grantTTL}
}

func releases(key window.Key, id string) store.GrantAsk { return store.GrantAsk{Key: key, Lease: id} }

// grantsOf calls as a node, and expects an answer to each request.
func (h *grantTest) grantsOf(node uint64, number int64, asks ...store.GrantAsk) []store.GrantAnswer {
	h.Helper()
	reply, err := h.Grants(h.Context(), h.shard(), store.GrantCall{Node: node, Number: number, Asks: asks})
	if err != nil || len(reply.Answers) != len(asks) || reply.Now.IsZero() {
		h.Fatalf("grants: %+v: %v", reply, err)
	}
	return reply.Answers
}

// leasesOf calls about leases alone.
func (h *grantTest) leasesOf(asks ...store.GrantAsk) []store.GrantAnswer {
	h.Helper()
	return h.grantsOf(0, 0, asks...)
}

// wantGrant calls about one key, and expects how many slots the node and all others hold.
func (h *grantTest) wantGrant(node uint64, number int64, ask store.GrantAsk, held, others int64) store.GrantAnswer {
	h.Helper()
	a := h.grantsOf(node, number, ask)[0]
	if a.Held != held || a.Others != others || a.Err != nil {
		h.Errorf("node %d, call %d, %+v: %+v, want %d held and %d by others", node, number, ask, a, held, others)
	}
	return a
}

// wantLease makes one request, and expects whether the lease is held, and how many slots of the key are held.
func (h *grantTest) wantLease(ask store.GrantAsk, held bool, slots int64) store.GrantAnswer {
	h.Helper()
	a := h.leasesOf(ask)[0]
	if a.Held != granted(held) || a.Held+a.Others != slots || a.Err != nil {
		h.Errorf("%+v: %+v, want held %t and %d slots", ask, a, held, slots)
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

var originGrantsTests = map[string]func(*grantTest){
	"are those of the example": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 5, 0, 3), 3, 0)
		h.wantGrant(0, 0, acquires(h.key, "a", 5), 1, 3)
		h.wantGrant(2, 1, wants(h.key, 5, 0, 3), 1, 4)
		h.wantGrant(1, 2, wants(h.key, 5, 2, 0), 2, 2)
		h.wantGrant(2, 2, wants(h.key, 5, 1, 2), 2, 3)
		h.wantGrant(0, 0, renews(h.key, "a"), 1, 4)
		h.wantGrant(0, 0, releases(h.key, "a"), 0, 4)
		h.wantGrant(2, 3, wants(h.key, 5, 2, 1), 3, 2)
	},
	"are granted while the limit has room": func(h *grantTest) {
		k := h.slotKeys(2)
		a := h.grantsOf(1, 1, wants(k[0], 5, 0, 3), wants(k[1], 1, 0, 1))
		if a[0].Held != 3 || a[1].Held != 1 || a[0].Others != 0 {
			h.Errorf("%+v", a)
		}
		h.wantGrant(2, 1, wants(k[0], 5, 0, 3), 2, 3)
		h.wantGrant(3, 1, wants(k[0], 5, 0, 1), 0, 5)
		h.wantGrant(3, 2, wants(k[1], 1, 0, 1), 0, 1)
		h.wantGrant(1, 2, wants(k[0], 5, 3, 1), 3, 2)
	},
	"are what the node says last": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 5, 0, 5), 5, 0)
		h.wantGrant(1, 2, wants(h.key, 5, 2, 0), 2, 0)
		h.wantGrant(2, 1, wants(h.key, 5, 0, 5), 3, 2)
		h.wantGrant(1, 3, wants(h.key, 5, 0, 0), 0, 3)
		h.wantGrant(2, 2, wants(h.key, 5, 3, 2), 5, 0)
	},
	"that are held stay when the limit is lowered": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 5, 0, 5), 5, 0)
		h.wantGrant(1, 2, wants(h.key, 2, 4, 1), 4, 0)
		h.wantGrant(2, 1, wants(h.key, 2, 0, 1), 0, 4)
		h.wantGrant(1, 3, wants(h.key, 2, 1, 0), 1, 0)
		h.wantGrant(2, 2, wants(h.key, 2, 0, 2), 1, 1)
	},
	"that the origin does not know of count as wanted": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 5, 0, 4), 4, 0)
		h.wantGrant(2, 1, wants(h.key, 5, 4, 0), 1, 4)
		h.wantGrant(1, 2, wants(h.key, 5, 5, 0), 4, 1)
	},
	"are granted once however often a call comes": func(h *grantTest) {
		for range 3 {
			h.wantGrant(1, 1, wants(h.key, 5, 0, 2), 2, 0)
		}
		call := store.GrantCall{Node: 1, Number: 2, Asks: []store.GrantAsk{wants(h.key, 5, 2, 2)}}
		h.lost("grants", func() error { return errOf(h.Grants(h.Context(), h.shard(), call)) })
		h.wantGrant(2, 1, wants(h.key, 5, 0, 5), 1, 4)
		h.wantGrant(1, 3, wants(h.key, 5, 2, 1), 3, 1) // the node has not received the two
		h.wantGrant(2, 2, wants(h.key, 5, 1, 5), 2, 3)
		h.wantGrant(1, 4, wants(h.key, 5, 0, 0), 0, 2)
		h.wantGrant(2, 2, wants(h.key, 5, 1, 5), 2, 0) // now there would be room
	},
	"stay as they are after a late call": func(h *grantTest) {
		h.wantGrant(1, 5, wants(h.key, 5, 0, 2), 2, 0)
		h.wantGrant(1, 6, wants(h.key, 5, 0, 0), 0, 0)
		a := h.grantsOf(1, 5, wants(h.key, 5, 2, 3))[0]
		if !errors.Is(a.Err, store.ErrGrantLate) || a.Held != 0 {
			h.Errorf("late: %+v", a)
		}
		h.wantGrant(2, 1, wants(h.key, 5, 0, 5), 5, 0)
	},
	"end with their time": func(h *grantTest) {
		short := wants(h.key, 5, 0, 4)
		short.TTL = 50 * time.Millisecond
		h.wantGrant(1, 1, short, 4, 0)
		a := h.grantsOf(2, 1, wants(h.key, 5, 0, 1))[0]
		if a.Held != 1 || a.Others == 4 && (a.RetryIn <= 0 || a.RetryIn > short.TTL) {
			h.Errorf("%+v", a)
		}
		number := int64(1)
		h.within("they have ended", func() bool {
			number++
			return h.grantsOf(2, number, wants(h.key, 5, 1, 4))[0].Held == 5
		})
		h.wantGrant(1, 2, wants(h.key, 5, 4, 0), 0, 5) // they are another's now
	},
	"are kept by renewal": func(h *grantTest) {
		short := wants(h.key, 1, 0, 1)
		short.TTL = 50 * time.Millisecond
		h.wantGrant(1, 1, short, 1, 0)
		h.wantGrant(1, 2, wants(h.key, 1, 1, 0), 1, 0)
		h.pass(2 * short.TTL)
		h.wantGrant(2, 1, wants(h.key, 1, 0, 1), 0, 1)
	},
	"are spare while much is left, and no node is refused": func(h *grantTest) {
		ask := wants(h.key, 20, 0, 2)
		ask.Spare = 4
		h.wantGrant(1, 1, ask, 6, 0)
		ask.Spare = 100
		h.wantGrant(2, 1, ask, 8, 6) // 2, and half of 12
		if a := h.wantGrant(3, 1, wants(h.key, 20, 0, 7), 6, 14); a.Starved {
			h.Errorf("starved by itself: %+v", a)
		}
		if a := h.wantGrant(1, 2, wants(h.key, 20, 2, 0), 2, 14); !a.Starved {
			h.Errorf("another node was refused: %+v", a)
		}
		ask = wants(h.key, 20, 8, 0)
		ask.Spare = 2
		h.wantGrant(2, 2, ask, 8, 8)
		h.wantGrant(3, 2, wants(h.key, 20, 6, 1), 7, 10)
		h.wantGrant(2, 3, ask, 9, 9) // 3 were left, of which half
	},
	"are as many as limits may be": func(h *grantTest) {
		h.wantGrant(1, store.CountMax-1, wants(h.key, store.CountMax, 0, store.CountMax-1), store.CountMax-1, 0)
		h.wantGrant(2, 1, wants(h.key, store.CountMax, 0, store.CountMax), 1, store.CountMax-1)
		a := h.grantsOf(1, store.CountMax, wants(h.key, store.CountMax, 1, 0))[0]
		if a.Held != 1 {
			h.Errorf("%+v", a)
		}
	},
	"of many keys come in one call": func(h *grantTest) {
		var asks []store.GrantAsk
		for _, k := range h.slotKeys(1200) {
			asks = append(asks, wants(k, 3, 0, 2))
		}
		for i, a := range h.grantsOf(1, 1, asks...) {
			if a.Held != 2 || a.Err != nil {
				h.Fatalf("%d: %+v", i, a)
			}
		}
	},
	"of many nodes at once are no more than the limit": func(h *grantTest) {
		h.atOnce(30, 50, func(i int) (int64, error) {
			call := store.GrantCall{Node: uint64(i) + 1, Number: 1, Asks: []store.GrantAsk{wants(h.key, 50, 0, 3)}}
			reply, err := h.Grants(h.Context(), h.shard(), call)
			if err != nil {
				return 0, err
			}
			return reply.Answers[0].Held, nil
		})
	},
	"of names that look alike are apart": func(h *grantTest) {
		for i, name := range [][3]string{{"a", "b", "c"}, {"a:b", "", "c"}, {"a", "b:c", "x"}, {"a", "b", "c:x"},
			{"a", "b", "C"}, {"a", "b", "c "}, {"a", "b", "{c}"}, {"a", "b", "%7Bc%7D"}, {"a", "b", "\x00"}} {
			k := store.SlotsKey(name[0], name[1]+"n", name[2])
			if h.ShardOf(&k) == h.shard() {
				h.wantGrant(uint64(i)+1, 1, wants(k, 1, 0, 1), 1, 0)
			}
		}
	},
	"and cells of the same names are apart": func(h *grantTest) {
		c := h.cells(1)[0]
		h.send(store.Cost{Cell: c, Add: 3})
		k := store.SlotsKey(c.Workspace, c.Namespace, c.Identifier)
		if h.ShardOf(&k) == h.shard() {
			h.wantGrant(1, 1, wants(k, 1, 0, 1), 1, 0)
		}
		h.wantRegions([]window.Cell{c}, 3)
	},
	"that are out of bounds are refused, and none beside them": func(h *grantTest) {
		for name, spoil := range map[string]func(*store.GrantAsk){
			"no name":      func(a *store.GrantAsk) { a.Key.Identifier = "" },
			"long name":    func(a *store.GrantAsk) { a.Key.Identifier = strings.Repeat("x", window.IdentifierBytesMax+1) },
			"a duration":   func(a *store.GrantAsk) { a.Key.Duration = time.Second },
			"limit":        func(a *store.GrantAsk) { a.Limit = -1 },
			"have":         func(a *store.GrantAsk) { a.Have = -1 },
			"want":         func(a *store.GrantAsk) { a.Want = store.CountMax + 1 },
			"spare":        func(a *store.GrantAsk) { a.Spare = -1 },
			"time to live": func(a *store.GrantAsk) { a.TTL = 0 },
			"too long":     func(a *store.GrantAsk) { a.TTL = store.GrantTTLMax + 1 },
		} {
			bad := wants(h.key, 5, 0, 5)
			if spoil(&bad); h.ShardOf(&bad.Key) != h.shard() {
				continue
			}
			h.Run(name, func(t *testing.T) {
				a := h.grantsOf(1, 1, bad, wants(h.key, 5, 0, 2))
				if a[0].Held != 0 || !errors.Is(a[0].Err, window.ErrInvalid) || a[1].Held != 2 {
					t.Errorf("%+v", a)
				}
			})
		}
		for _, call := range []store.GrantCall{{Node: 0, Number: 1}, {Node: 1, Number: 0}, {Node: 1, Number: -1}} {
			call.Asks = []store.GrantAsk{wants(h.key, 5, 0, 1)}
			if _, err := h.Grants(h.Context(), h.shard(), call); !errors.Is(err, window.ErrInvalid) {
				h.Errorf("%+v: %v", call, err)
			}
		}
		none := store.GrantCall{Node: 1, Number: 1}
		if reply, err := h.Grants(h.Context(), h.shard(), none); err != nil || len(reply.Answers) > 0 {
			h.Errorf("no asks: %+v: %v", reply, err)
		}
	},
	"that an emptied origin has lost are said again before others are granted": func(h *grantTest) {
		brief := func(have, want int64) store.GrantAsk {
			ask := wants(h.key, 5, have, want)
			ask.TTL = 400 * time.Millisecond
			return ask
		}
		h.wantGrant(1, 1, brief(0, 4), 4, 0)
		h.Wipe(h)
		start := h.Clock(h)
		a := h.grantsOf(2, 1, brief(0, 3))[0]
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held != 0 || a.RetryIn <= 0 || a.RetryIn > brief(0, 0).TTL {
			h.Errorf("a wish, just after: %+v", a)
		}
		a = h.grantsOf(1, 2, brief(4, 2))[0] // 6 would be above the limit
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held != 4 {
			h.Errorf("what is held, and a wish: %+v", a)
		}
		h.wantGrant(3, 1, brief(3, 0), 3, 4) // whatever the limit
		number := int64(2)
		h.within("it has grown old", func() bool {
			number++
			return h.grantsOf(2, number, brief(0, 3))[0].Held > 0
		})
		if took := h.Clock(h).Sub(start); took < brief(0, 0).TTL-10*time.Millisecond {
			h.Errorf("granted after %v", took)
		}
	},
}

// originGrantsTimeTests need a clock that can be set.
var originGrantsTimeTests = map[string]func(*grantTest){
	"that were handed back stay so for some time": func(h *grantTest) {
		brief, long := wants(h.key, 5, 0, 5), wants(h.key, 5, 5, 0)
		brief.TTL, long.TTL = 2*store.GrantKeptFor, store.GrantTTLMax
		h.wantGrant(1, 1, brief, 5, 0)
		brief.Want = 0
		h.wantGrant(1, 3, brief, 0, 0)
		h.pass(store.GrantKeptFor / 2)
		if a := h.grantsOf(1, 2, long)[0]; !errors.Is(a.Err, store.ErrGrantLate) {
			h.Errorf("late: %+v", a)
		}
		h.wantGrant(2, 1, wants(h.key, 5, 0, 5), 5, 0)
	},
}

var originLeasesTests = map[string]func(*grantTest){
	"are granted while the limit has room": func(h *grantTest) {
		k := h.slotKeys(2)
		h.wantLease(acquires(k[0], "a", 2), true, 1)
		h.wantLease(acquires(k[1], "a", 0), false, 0)
		h.wantLease(acquires(k[0], "b", 2), true, 2)
		if a := h.wantLease(acquires(k[0], "c", 2), false, 2); a.RetryIn <= 0 || a.RetryIn > grantTTL {
			h.Errorf("%+v", a)
		}
		h.wantLease(acquires(k[0], "c", 3), true, 3)
	},
	"are one however often they are acquired": func(h *grantTest) {
		for range 3 {
			h.wantLease(acquires(h.key, "a", 2), true, 1)
		}
		second := store.GrantCall{Asks: []store.GrantAsk{acquires(h.key, "b", 2)}}
		h.lost("grants", func() error { return errOf(h.Grants(h.Context(), h.shard(), second)) })
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.wantLease(acquires(h.key, "a", 0), true, 2) // a limit that was lowered ends nothing
	},
	"make room when they are released, once": func(h *grantTest) {
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.wantLease(releases(h.key, "a"), false, 1)
		h.wantLease(releases(h.key, "a"), false, 1)
		h.wantLease(releases(h.key, "never"), false, 1)
		h.wantLease(acquires(h.key, "c", 2), true, 2)
		h.wantLease(acquires(h.key, "d", 2), false, 2)
	},
	"end with their time, and are not renewed then": func(h *grantTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.within("it has ended", func() bool { return h.leasesOf(acquires(h.key, "b", 1))[0].Held == 1 })
		h.wantLease(renews(h.key, "a"), false, 1)
	},
	"are kept by renewal": func(h *grantTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.wantLease(renews(h.key, "a"), true, 1)
		h.pass(2 * short.TTL)
		h.wantLease(acquires(h.key, "b", 1), false, 1)
	},
	"do not end earlier by a word that is late": func(h *grantTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.wantLease(renews(h.key, "a"), true, 1)
		h.wantLease(short, true, 1)
		short.Have, short.Want, short.Limit = 1, 0, 0
		h.wantLease(short, true, 1)
		h.pass(2 * short.TTL)
		h.wantLease(acquires(h.key, "b", 1), false, 1)
	},
	"and slots of nodes have one limit": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 3, 0, 2), 2, 0)
		h.wantLease(acquires(h.key, "a", 3), true, 3)
		h.wantLease(acquires(h.key, "b", 3), false, 3)
		if a := h.wantGrant(1, 2, wants(h.key, 3, 2, 1), 2, 1); !a.Starved {
			h.Errorf("a lease was refused: %+v", a)
		}
		h.wantLease(releases(h.key, "a"), false, 2)
		h.wantGrant(1, 3, wants(h.key, 3, 2, 1), 3, 0)
		h.wantLease(acquires(h.key, "a", 3), false, 3)
	},
	"are told when the first of the others ends": func(h *grantTest) {
		for i, id := range []string{"a", "b", "c"} {
			ask := acquires(h.key, id, 3)
			ask.TTL -= time.Duration(i) * 10 * time.Second
			h.wantLease(ask, true, int64(i)+1)
		}
		for _, c := range []struct {
			id      string
			seconds int
		}{{"d", 40}, {"a", 40}, {"c", 50}, {"b", 60}} {
			most := time.Duration(c.seconds) * time.Second
			if in := h.leasesOf(renews(h.key, c.id))[0].RetryIn; in <= most-9*time.Second || in > most {
				h.Errorf("%s: %v, want %v", c.id, in, most)
			}
		}
	},
	"that were not granted starve nobody by their renewal": func(h *grantTest) {
		h.wantGrant(1, 1, wants(h.key, 1, 0, 1), 1, 0)
		h.wantLease(renews(h.key, "a"), false, 1)
		if a := h.wantGrant(1, 2, wants(h.key, 1, 1, 0), 1, 0); a.Starved {
			h.Errorf("%+v", a)
		}
		h.wantLease(acquires(h.key, "a", 1), false, 1)
		if a := h.wantGrant(1, 3, wants(h.key, 1, 1, 0), 1, 0); !a.Starved {
			h.Errorf("%+v", a)
		}
	},
	"come in one call with what a node holds": func(h *grantTest) {
		a := h.grantsOf(1, 1, acquires(h.key, "a", 3), wants(h.key, 3, 0, 3), releases(h.key, "a"))
		if a[0].Held != 1 || a[1].Held != 2 || a[1].Others != 1 || a[2].Held != 0 || a[2].Others != 2 {
			h.Errorf("%+v", a)
		}
	},
	"that an emptied origin has lost come back by renewal, before others are granted": func(h *grantTest) {
		brief := func(ask store.GrantAsk) store.GrantAsk { ask.TTL = 400 * time.Millisecond; return ask }
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.Wipe(h)
		a := h.leasesOf(brief(acquires(h.key, "c", 2)))[0]
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held > 0 || a.RetryIn <= 0 || a.RetryIn > 400*time.Millisecond {
			h.Errorf("recovering: %+v", a)
		}
		h.wantLease(renews(h.key, "a"), true, 1)
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(renews(h.key, "b"), true, 2)
		h.within("it has grown old", func() bool { return h.leasesOf(brief(acquires(h.key, "c", 3)))[0].Held == 1 })
		h.wantLease(brief(renews(h.key, "d")), false, 3)
	},
	"of many keys come in one call": func(h *grantTest) {
		var asks []store.GrantAsk
		for i, k := range h.slotKeys(1200) {
			asks = append(asks, acquires(k, fmt.Sprint(i), 3))
		}
		for i, a := range h.leasesOf(asks...) {
			if a.Held != 1 || a.Others != 0 || a.Err != nil {
				h.Fatalf("%d: %+v", i, a)
			}
		}
	},
	"of many callers at once are no more than the limit": func(h *grantTest) {
		h.atOnce(80, 50, func(i int) (int64, error) {
			call := store.GrantCall{Asks: []store.GrantAsk{acquires(h.key, fmt.Sprint(i), 50)}}
			reply, err := h.Grants(h.Context(), h.shard(), call)
			return granted(err == nil && reply.Answers[0].Held == 1), err
		})
	},
	"that are out of bounds are refused, and none beside them": func(h *grantTest) {
		for name, spoil := range map[string]func(*store.GrantAsk){
			"long id":               func(a *store.GrantAsk) { a.Lease = strings.Repeat("x", store.LeaseIDBytesMax+1) },
			"two slots":             func(a *store.GrantAsk) { a.Have = 1 },
			"a spare slot":          func(a *store.GrantAsk) { a.Spare = 1 },
			"a duration":            func(a *store.GrantAsk) { a.Key.Duration = time.Second },
			"limit":                 func(a *store.GrantAsk) { a.Limit = -1 },
			"time to live":          func(a *store.GrantAsk) { a.TTL = 0 },
			"too long":              func(a *store.GrantAsk) { a.TTL = store.GrantTTLMax + 1 },
			"a release in the past": func(a *store.GrantAsk) { a.Want, a.TTL = 0, -1 },
		} {
			bad := acquires(h.key, "a", 5)
			if spoil(&bad); h.ShardOf(&bad.Key) != h.shard() {
				continue
			}
			h.Run(name, func(t *testing.T) {
				a := h.leasesOf(bad, acquires(h.key, "b", 5))
				if a[0].Held > 0 || !errors.Is(a[0].Err, window.ErrInvalid) || a[1].Held != 1 {
					t.Errorf("%+v", a)
				}
			})
		}
	},
}
