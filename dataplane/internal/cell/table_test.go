package cell

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

func testKey(i int) *window.Key {
	return &window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(i), Duration: time.Minute}
}

// An entry is one cache line, and behind is another.
func TestEntryLayout(t *testing.T) {
	var e Entry
	if size := unsafe.Sizeof(e); size != 64 {
		t.Errorf("an entry is %d bytes", size)
	}
	if size := unsafe.Sizeof(behind{}); size > 64 {
		t.Errorf("what is behind an entry alone is %d bytes", size)
	}
	if size := unsafe.Sizeof(behindOfFleet{}); size > 112 { // the next size that there is has 128
		t.Errorf("what is behind an entry of a fleet is %d bytes", size)
	}
	// The sizes of memory that there are have 64 and 96, and 112 and 144, so histories take 32 bytes.
	if size := unsafe.Sizeof(behindAndPast{}); size > 96 {
		t.Errorf("what is behind an entry alone with histories is %d bytes", size)
	}
	if size := unsafe.Sizeof(behindOfFleetAndPast{}); size > 144 {
		t.Errorf("what is behind an entry of a fleet with histories is %d bytes", size)
	}
	if at := unsafe.Offsetof(behindOfFleet{}.behind); at != 0 {
		t.Errorf("behind lies %d bytes into what a fleet has behind an entry", at)
	}
	if size := unsafe.Sizeof(bucket{}); size != 64 {
		t.Errorf("a bucket is %d bytes", size)
	}
}

// Random insertions and removals agree with a map, through growth, full buckets and
// runs that wrap around the array's end.
func TestTableAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := newArray(4)
		held := map[Identity]*Entry{}
		universe := rapid.IntRange(1, 24).Draw(rt, "universe") // 28 slots
		ids := make([]Identity, universe)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		for i := range ids {
			ids[i] = Identity{rnd.Uint64(), rnd.Uint64() & (3 << 57)} // few homes, few tags
		}
		for range rapid.IntRange(0, 200).Draw(rt, "steps") {
			id := ids[rapid.IntRange(0, universe-1).Draw(rt, "id")]
			if held[id] == nil {
				e := newEntry(&id, Names{}, 1, false, false)
				a.insert(e)
				held[id] = e
			} else {
				at, s := place(a, held[id])
				a.remove(held[id], at, s)
				delete(held, id)
			}
			for _, id := range ids {
				if got := a.get(&id); got != held[id] {
					rt.Fatalf("%x: %p, want %p", id, got, held[id])
				}
			}
		}
		for _, e := range held {
			at, s := place(a, e)
			a.remove(e, at, s)
		}
		for i := range a.buckets {
			if tags := a.buckets[i].tags.Load(); tags != 0 {
				rt.Fatalf("bucket %d of an empty table: %x", i, tags)
			}
		}
	})
}

func place(a *array, e *Entry) (at uint64, s int) {
	for i := range a.buckets {
		for s := range a.buckets[i].slots {
			if a.buckets[i].slots[s].Load() == e {
				return uint64(i), s
			}
		}
	}
	panic("not held")
}

func TestTableGrows(t *testing.T) {
	table := NewTable(1<<30, 0, clock.New(nil), false)
	const keys = 50_000
	for i := range keys {
		k := testKey(i)
		id := table.IdentityOfKey(k, nil)
		if _, met := table.Add(&id, k, nil, false, then, 1, 0); met != Created {
			t.Fatal("not created")
		}
	}
	for i := range keys {
		k := testKey(i)
		id := table.IdentityOfKey(k, nil)
		e := table.Get(&id)
		if e == nil || e.names.Key() != *k {
			t.Fatalf("key %d is lost", i)
		}
	}
	if table.Len() != keys || table.Created.Load() != keys {
		t.Errorf("%d entries, %d created", table.Len(), table.Created.Load())
	}
}

// The sweep looks at a bounded number of entries a tick, whatever the table's size, and reaches all of them in the end.
func TestSweepIsBounded(t *testing.T) {
	table := NewTable(1<<30, 0, clock.New(nil), false)
	const keys = 100_000
	for i := range keys {
		k := testKey(i)
		id := table.IdentityOfKey(k, nil)
		table.Add(&id, k, nil, false, then, ledgerSeq, 0)
	}
	nowMs := window.ExpiresAt(ledgerSeq, 60_000)
	for ticks := 0; table.Len() > 0; ticks++ {
		if looked, _ := table.Sweep(nowMs); looked > sweepBuckets*slots {
			t.Fatalf("one tick looked at %d entries", looked)
		}
		if ticks > table.SweepTicks() {
			t.Fatalf("%d entries left after a whole round", table.Len())
		}
	}
}

// No identifier can make two keys equal by spelling another key's workspace and namespace as they are packed for
// hashing.
func TestIdentitiesDoNotCancelOut(t *testing.T) {
	var h Hasher
	h.Init()
	packed := func(workspace, namespace string) string {
		return string(pack(make([]byte, 1024), workspace, namespace, tag(time.Minute, window.Exact)))
	}
	p := h.IdentityOf("w1", "n1", packed("w2", "n2"), time.Minute, window.Exact)
	q := h.IdentityOf("w2", "n2", packed("w1", "n1"), time.Minute, window.Exact)
	if p == q || p.a == q.a || p.b == q.b {
		t.Errorf("%x and %x meet", p, q)
	}
	if self := h.IdentityOf("w1", "n1", packed("w1", "n1"), time.Minute, window.Exact); self.a == 0 || self.b == 0 {
		t.Errorf("cancels out: %x", self)
	}
}

// A cached prefix equals the prefix that would be computed again.
func TestRememberedPrefixesChangeNothing(t *testing.T) {
	var h, fresh Hasher
	h.Init()
	for i := range 10_000 {
		workspace, namespace := fmt.Sprint("w", i%300), fmt.Sprint("n", i%70)
		fresh.a, fresh.b, fresh.c, fresh.d = h.a, h.b, h.c, h.d
		for j := range fresh.recent {
			fresh.recent[j].Store(nil)
		}
		if h.IdentityOf(workspace, namespace, "i", time.Minute, window.Exact) != fresh.IdentityOf(workspace, namespace, "i", time.Minute, window.Exact) {
			t.Fatalf("%s/%s", workspace, namespace)
		}
	}
}

// Different fields give different bytes, whatever the names contain.
func FuzzIdentity(f *testing.F) {
	f.Add("a", "b", "c", int64(1), "ab", "", "c", int64(1))
	f.Add("a\x00", "b", "c", int64(1), "a", "\x00b", "c", int64(1))
	var h Hasher
	h.Init()
	f.Fuzz(func(t *testing.T, w1, n1, i1 string, d1 int64, w2, n2, i2 string, d2 int64) {
		a := window.Key{Workspace: w1, Namespace: n1, Identifier: i1, Duration: time.Duration(d1)}
		b := window.Key{Workspace: w2, Namespace: n2, Identifier: i2, Duration: time.Duration(d2)}
		for _, k := range []window.Key{a, b} {
			if k.Workspace == "" || k.Namespace == "" || len(k.Workspace) > window.WorkspaceBytesMax || len(k.Namespace) > window.NamespaceBytesMax || len(k.Identifier) > window.IdentifierBytesMax {
				return
			}
		}
		if got, same := h.IdentityOfKey(&a, nil) == h.IdentityOfKey(&b, nil), a == b; got != same {
			t.Errorf("%v and %v: same identity %v", a, b, got)
		}
		if d := a.Duration; d >= window.DurationMin && d <= window.DurationMax && d%time.Millisecond == 0 {
			if n := h.NamesOf(&a, nil); n.Key() != a {
				t.Errorf("%v comes back as %v", a, n.Key())
			}
		}
	})
}

// A flood of keys that are used once leaves a full table as even as it was: look-ups stay short however long the flood
// lasts. The evenness depends on the hashes, so these are the same in every run.
//
//weir:unraced
func TestAFloodDoesNotClusterTheTable(t *testing.T) {
	const capacity = 20_000
	table, hashes := NewTable(capacity, 0, clock.New(nil), false), rand.New(rand.NewPCG(1, 2))
	for i := range 15 * capacity {
		k, id := testKey(i), Identity{hashes.Uint64(), hashes.Uint64()}
		if _, met := table.Add(&id, k, nil, false, then, 1, 0); met != Created {
			t.Fatalf("key %d: no room", i)
		}
	}
	if table.Len() != capacity {
		t.Errorf("%d entries", table.Len())
	}
	for p := range table.parts {
		a := table.parts[p].array.Load()
		var passed uint64
		for i := range a.buckets {
			passed += a.buckets[i].tags.Load() >> 56
		}
		if perBucket := float64(passed) / float64(len(a.buckets)); perBucket > 1.5 {
			t.Errorf("part %d: %.1f keys have gone on from each bucket", p, perBucket)
		}
	}
}

// A look-up of an absent key ends, whatever the overflow counts are.
func TestLookingForAnAbsentKeyEnds(t *testing.T) {
	a := newArray(4)
	for i := range a.buckets {
		a.buckets[i].tags.Store(overflowMax * overflowUnit)
	}
	if a.get(&Identity{1, 2}) != nil {
		t.Error("found")
	}
}
