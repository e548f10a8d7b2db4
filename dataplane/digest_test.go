package dataplane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func keyNamed(identifier string) window.Key {
	return window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}
}

// "18 to 23 bits a key, one in 65,000 others taken for one": every key is found, and few others.
func TestFiltersHoldTheirKeys(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 10, 1000, 20_000} {
		keys := make([]window.Key, n)
		for i := range keys {
			keys[i] = keyNamed(fmt.Sprint("in", i))
		}
		payload := dataplane.FilterOf(keys)
		holds := func(k window.Key) bool {
			t.Helper()
			ok, err := dataplane.FilterHolds(payload, k)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		for _, k := range keys[:min(n, 500)] {
			if !holds(k) {
				t.Fatalf("a filter of %d keys misses %v", n, k)
			}
		}
		wrong := 0
		for i := range 500 {
			if holds(keyNamed(fmt.Sprint("out", i))) {
				wrong++
			}
		}
		if wrong > 2 {
			t.Errorf("a filter of %d keys holds %d of 500 others", n, wrong)
		}
		if n >= 1000 && float64(len(payload)) > 3*float64(n) {
			t.Errorf("%d bytes for %d keys", len(payload), n)
		}
	}
}

// What a false positive costs is a key that is told of although nobody else uses it: of
// 24,000 keys, one in three intervals.
func TestFiltersTakeFewOthersForTheirOwn(t *testing.T) {
	const held, others = 24_000, 4_000_000
	keys := make([]window.Key, held)
	for i := range keys {
		keys[i] = keyNamed(fmt.Sprint("in", i))
	}
	payload := dataplane.FilterOf(keys)
	taken := dataplane.FilterTakes(payload, others)
	t.Logf("%d keys in %d bytes, %.1f bits each; %d of %d others are taken for one", held, len(payload), float64(8*len(payload))/held, taken, others)
	if taken > others/30_000 {
		t.Errorf("%d of %d others are taken for one", taken, others)
	}
}

// As many keys as a filter may hold fit into a digest.
func TestTheLargestFilterFits(t *testing.T) {
	keys := make([]window.Key, dataplane.FilterKeysMax)
	for i := range keys {
		keys[i] = keyNamed(fmt.Sprint("k", i))
	}
	if n := len(dataplane.FilterOf(keys)); n > store.DigestBytesMax {
		t.Errorf("%d bytes", n)
	}
}

// A hash of a key is made of all its fields, whatever they hold.
func TestFiltersTellFieldsApart(t *testing.T) {
	a := window.Key{Workspace: "ab", Namespace: "c", Identifier: "d", Duration: time.Minute}
	for _, b := range []window.Key{
		{Workspace: "a", Namespace: "bc", Identifier: "d", Duration: time.Minute},
		{Workspace: "ab", Namespace: "cd", Identifier: "d", Duration: time.Minute},
		{Workspace: "ab", Namespace: "c", Identifier: "d", Duration: time.Hour},
		{Workspace: "ab", Namespace: "c", Identifier: "d", Duration: time.Minute, Mode: window.Estimate},
	} {
		if ok, err := dataplane.FilterHolds(dataplane.FilterOf([]window.Key{a}), b); ok || err != nil {
			t.Errorf("%+v is taken for %+v: %v", b, a, err)
		}
	}
}

// What another node sends is never trusted to be whole.
func FuzzDigestPayloads(f *testing.F) {
	f.Add([]byte{})
	f.Add(dataplane.FilterOf([]window.Key{keyNamed("a"), keyNamed("b")}))
	payload, _ := dataplane.EncodeBulletin([]store.Count{{Cell: window.Cell{Key: keyNamed("a"), Sequence: 7}, Count: 3, CountedAtMs: 5}}, 9)
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 0 {
			_, _ = dataplane.FilterHolds(payload, keyNamed("a")) // must not run off the end
		}
		d := store.Digest{Node: "n", Filter: payload, MadeAtMs: 1_700_000_000_000}
		counts, err := dataplane.DigestCounts(&d)
		if err != nil && counts != nil {
			t.Errorf("%d counts beside %v", len(counts), err)
		}
		for _, c := range counts {
			if c.Cell.Validate() != nil || c.Count < 0 || c.CountedAtMs < 0 || c.CountedAtMs > d.MadeAtMs {
				t.Errorf("%+v", c)
			}
		}
	})
}

// A bulletin says what was put into it.
func TestBulletinsRoundTrip(t *testing.T) {
	const madeAtMs = 1_700_000_000_000
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-c:/ ]{1,4}`)
		drawn := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) store.Count {
			return store.Count{
				Cell: window.Cell{
					Key: window.Key{Workspace: name.Draw(rt, "workspace"), Namespace: name.Draw(rt, "namespace"), Identifier: name.Draw(rt, "identifier"),
						Duration: rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(rt, "duration"),
						Mode:     rapid.SampledFrom([]window.Mode{window.Exact, window.Estimate}).Draw(rt, "mode")},
					Sequence: rapid.Int64Range(0, 1<<40).Draw(rt, "sequence"),
				},
				Count:       rapid.Int64Range(0, window.LimitMax).Draw(rt, "count"),
				CountedAtMs: rapid.SampledFrom([]int64{0, 1, madeAtMs - 1, madeAtMs}).Draw(rt, "counted at"),
				Shared:      true,
			}
		}), 0, 30).Draw(rt, "counts")
		want := slices.CompactFunc(slices.SortedFunc(slices.Values(drawn), func(a, b store.Count) int { return a.Cell.Compare(b.Cell) }),
			func(a, b store.Count) bool { return a.Cell == b.Cell })
		payload, told := dataplane.EncodeBulletin(slices.Clone(want), madeAtMs)
		d := store.Digest{Filter: payload, MadeAtMs: madeAtMs}
		got, err := dataplane.DigestCounts(&d)
		if err != nil || told != len(want) || !slices.Equal(got, want) && len(want) > 0 {
			rt.Fatalf("%d told, %v, %+v of %+v", told, err, got, want)
		}
		if len(payload) > 1 {
			cut := store.Digest{Filter: payload[:rapid.IntRange(2, len(payload)).Draw(rt, "cut")-1], MadeAtMs: madeAtMs}
			if part, err := dataplane.DigestCounts(&cut); err == nil && len(part) >= len(want) {
				rt.Fatalf("cut to %d of %d bytes, and nothing is missing", len(cut.Filter), len(payload))
			}
		}
	})
}

// A digest is bounded: what does not fit is left out.
func TestABulletinIsBounded(t *testing.T) {
	long := make([]byte, window.IdentifierBytesMax-8)
	for i := range long {
		long[i] = 'x'
	}
	counts := make([]store.Count, 10_000)
	for i := range counts {
		counts[i] = store.Count{Cell: window.Cell{Key: keyNamed(fmt.Sprintf("%s%08d", long, i)), Sequence: 1}, Count: 1}
	}
	payload, told := dataplane.EncodeBulletin(counts, 1)
	if len(payload) > store.DigestBytesMax || told == len(counts) || told < 1000 {
		t.Errorf("%d bytes hold %d counts", len(payload), told)
	}
	d := store.Digest{Filter: payload}
	if got, err := dataplane.DigestCounts(&d); err != nil || len(got) != told {
		t.Errorf("%d counts of %d: %v", len(got), told, err)
	}
}
