package heartbeat

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func setOf(hashes ...uint64) (c Callers) {
	for _, h := range hashes {
		c, _ = c.With(h)
	}
	return c
}

// Sets can be united in any order, and repeatedly: the union is the set of all callers.
func TestUnitedCallersAreASet(t *testing.T) {
	hash := rapid.SliceOfN(rapid.Uint64Range(0, 400), 0, 300)
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := hash.Draw(t, "x"), hash.Draw(t, "y"), hash.Draw(t, "z")
		a, b, c := setOf(x...), setOf(y...), setOf(z...)
		want := slices.Concat(x, y, z)
		slices.Sort(want)
		want = slices.Compact(want)
		want = want[:min(len(want), CallersKept)]
		for name, got := range map[string]Callers{
			"one after another": setOf(slices.Concat(z, y, x)...),
			"in groups":         a.Union(b.Union(c)),
			"in another order":  c.Union(a).Union(b),
			"twice":             a.Union(b).Union(c).Union(b).Union(a),
			"unordered":         Callers(x).Union(Callers(y)).Union(Callers(z)),
		} {
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", name, got, want)
			}
		}
		if n := a.Union(b).Union(c).Count(); len(want) < CallersKept && n != int64(len(want)) {
			t.Fatalf("%d callers, want %d", n, len(want))
		}
	})
}

// A set stays as it is when a caller is added to a copy of it.
func TestASetOfCallersIsNotChanged(t *testing.T) {
	a := setOf(1, 3, 5)
	if b, changed := a.With(2); !changed || !slices.Equal(a, Callers{1, 3, 5}) || !slices.Equal(b, Callers{1, 2, 3, 5}) {
		t.Error(a, b)
	}
	if b, changed := a.With(3); changed || &b[0] != &a[0] {
		t.Error(a, b)
	}
	if b := a.Union(Callers{2}); !slices.Equal(a, Callers{1, 3, 5}) || b.Count() != 4 {
		t.Error(a, b)
	}
}

// The estimate is within four standard errors, and exact for few callers. Names that differ little do not matter.
func TestCallersAreCounted(t *testing.T) {
	var c Callers
	for i := range 100_000 {
		c, _ = c.With(CallerHash("acme", "api", fmt.Sprint("user_", i)))
		switch n := float64(i + 1); {
		case n < CallersKept && c.Count() != int64(n):
			t.Fatalf("%d of %v callers", c.Count(), n)
		case math.Abs(float64(c.Count())-n) > 4*n/math.Sqrt(CallersKept-2):
			t.Fatalf("%d of %v callers", c.Count(), n)
		}
	}
}

func TestCallersAreNotMixedUp(t *testing.T) {
	names := [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"}, {"", "", "abc"}, {"c", "b", "a"}}
	seen := map[uint64]bool{}
	for _, n := range names {
		seen[CallerHash(n[0], n[1], n[2])] = true
	}
	if len(seen) != len(names) {
		t.Errorf("%d hashes, want %d", len(seen), len(names))
	}
}
