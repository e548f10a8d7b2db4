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

func acquires(key window.Key, id string, limit int64) store.LeaseWord {
	return store.LeaseWord{Key: key, ID: id, Limit: limit, TTL: slotsTTL}
}

func renews(key window.Key, id string) store.LeaseWord {
	return store.LeaseWord{Key: key, ID: id, Verb: store.LeaseRenew, TTL: slotsTTL}
}

func releases(key window.Key, id string) store.LeaseWord {
	return store.LeaseWord{Key: key, ID: id, Verb: store.LeaseRelease}
}

func (h *originTest) leasesOf(words ...store.LeaseWord) []store.LeaseAnswer {
	h.Helper()
	reply, err := h.Leases(h.Context(), h.shard(), words)
	if err != nil || len(reply.Answers) != len(words) || reply.Now.IsZero() {
		h.Fatalf("leases: %+v: %v", reply, err)
	}
	return reply.Answers
}

// wantLease says one word, and expects whether the lease is held, and how many slots of the key are.
func (h *originTest) wantLease(word store.LeaseWord, held bool, slots int64) store.LeaseAnswer {
	h.Helper()
	a := h.leasesOf(word)[0]
	if a.Held != held || a.Slots != slots || a.Err != nil {
		h.Errorf("%+v: %+v, want held %t and %d slots", word, a, held, slots)
	}
	return a
}

var originLeasesTests = map[string]func(*originTest){
	"are granted while the limit has room": func(h *originTest) {
		k := h.slotKeys(2)
		h.wantLease(acquires(k[0], "a", 2), true, 1)
		h.wantLease(acquires(k[1], "a", 0), false, 0)
		h.wantLease(acquires(k[0], "b", 2), true, 2)
		if a := h.wantLease(acquires(k[0], "c", 2), false, 2); a.RetryIn <= 0 || a.RetryIn > slotsTTL {
			h.Errorf("%+v", a)
		}
		h.wantLease(acquires(k[0], "c", 3), true, 3)
	},
	"are one however often they are acquired": func(h *originTest) {
		for range 3 {
			h.wantLease(acquires(h.key, "a", 2), true, 1)
		}
		second := []store.LeaseWord{acquires(h.key, "b", 2)}
		h.lost("leases", func() error { return errOf(h.Leases(h.Context(), h.shard(), second)) })
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.wantLease(acquires(h.key, "a", 0), true, 2) // a limit that was lowered ends nothing
	},
	"make room when they are released, once": func(h *originTest) {
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.wantLease(releases(h.key, "a"), false, 1)
		h.wantLease(releases(h.key, "a"), false, 1)
		h.wantLease(releases(h.key, "never"), false, 1)
		h.wantLease(acquires(h.key, "c", 2), true, 2)
		h.wantLease(acquires(h.key, "d", 2), false, 2)
	},
	"end with their time, and are not renewed then": func(h *originTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.within("it has ended", func() bool { return h.leasesOf(acquires(h.key, "b", 1))[0].Held })
		h.wantLease(renews(h.key, "a"), false, 1)
	},
	"are kept by renewal": func(h *originTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.wantLease(renews(h.key, "a"), true, 1)
		h.pass(2 * short.TTL)
		h.wantLease(acquires(h.key, "b", 1), false, 1)
	},
	"do not end earlier by a word that is late": func(h *originTest) {
		short := acquires(h.key, "a", 1)
		short.TTL = 50 * time.Millisecond
		h.wantLease(short, true, 1)
		h.wantLease(renews(h.key, "a"), true, 1)
		h.wantLease(short, true, 1)
		short.Verb = store.LeaseRenew
		h.wantLease(short, true, 1)
		h.pass(2 * short.TTL)
		h.wantLease(acquires(h.key, "b", 1), false, 1)
	},
	"and slots of nodes have one limit": func(h *originTest) {
		h.wantSlots(1, 1, wants(h.key, 3, 0, 2), 2, 0)
		h.wantLease(acquires(h.key, "a", 3), true, 3)
		h.wantLease(acquires(h.key, "b", 3), false, 3)
		if a := h.wantSlots(1, 2, wants(h.key, 3, 2, 1), 2, 1); !a.Starved {
			h.Errorf("a lease was refused: %+v", a)
		}
		h.wantLease(releases(h.key, "a"), false, 2)
		h.wantSlots(1, 3, wants(h.key, 3, 2, 1), 3, 0)
		h.wantLease(acquires(h.key, "a", 3), false, 3)
	},
	"that an emptied origin has lost come back by renewal, before others are granted": func(h *originTest) {
		brief := func(word store.LeaseWord) store.LeaseWord { word.TTL = 400 * time.Millisecond; return word }
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(acquires(h.key, "b", 2), true, 2)
		h.Wipe(h)
		a := h.leasesOf(brief(acquires(h.key, "c", 2)))[0]
		if !errors.Is(a.Err, store.ErrRecovering) || a.Held || a.RetryIn <= 0 || a.RetryIn > 400*time.Millisecond {
			h.Errorf("recovering: %+v", a)
		}
		h.wantLease(renews(h.key, "a"), true, 1)
		h.wantLease(acquires(h.key, "a", 2), true, 1)
		h.wantLease(renews(h.key, "b"), true, 2)
		h.within("it has grown old", func() bool { return h.leasesOf(brief(acquires(h.key, "c", 3)))[0].Held })
		h.wantLease(brief(renews(h.key, "d")), false, 3)
	},
	"of many keys come in one call": func(h *originTest) {
		var words []store.LeaseWord
		for i, k := range h.slotKeys(1200) {
			words = append(words, acquires(k, fmt.Sprint(i), 3))
		}
		for i, a := range h.leasesOf(words...) {
			if !a.Held || a.Slots != 1 || a.Err != nil {
				h.Fatalf("%d: %+v", i, a)
			}
		}
	},
	"of many callers at once are no more than the limit": func(h *originTest) {
		h.atOnce(80, 50, func(i int) (int64, error) {
			reply, err := h.Leases(h.Context(), h.shard(), []store.LeaseWord{acquires(h.key, fmt.Sprint(i), 50)})
			return granted(err == nil && reply.Answers[0].Held), err
		})
	},
	"that are out of bounds are refused, and none beside them": func(h *originTest) {
		for name, spoil := range map[string]func(*store.LeaseWord){
			"no id":        func(w *store.LeaseWord) { w.ID = "" },
			"long id":      func(w *store.LeaseWord) { w.ID = strings.Repeat("x", store.LeaseIDBytesMax+1) },
			"verb":         func(w *store.LeaseWord) { w.Verb = store.LeaseRelease + 1 },
			"a duration":   func(w *store.LeaseWord) { w.Key.Duration = time.Second },
			"limit":        func(w *store.LeaseWord) { w.Limit = -1 },
			"time to live": func(w *store.LeaseWord) { w.TTL = 0 },
			"too long":     func(w *store.LeaseWord) { w.TTL = store.SlotsTTLMax + 1 },
		} {
			bad := acquires(h.key, "a", 5)
			if spoil(&bad); h.ShardOf(&bad.Key) != h.shard() {
				continue
			}
			h.Run(name, func(t *testing.T) {
				a := h.leasesOf(bad, acquires(h.key, "b", 5))
				if a[0].Held || !errors.Is(a[0].Err, window.ErrInvalid) || !a[1].Held {
					t.Errorf("%+v", a)
				}
			})
		}
	},
}
