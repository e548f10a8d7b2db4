package window

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// linearFind is the simple version of the index: it tries every pattern, the most specific first.
func linearFind(patterns []string, s string) string {
	best := ""
	for _, pattern := range patterns {
		if Matches(pattern, s) && (best == "" || ComparePatterns(pattern, best) < 0) {
			best = pattern
		}
	}
	return best
}

// randomPattern draws letters of a small alphabet, so that patterns are often equal or overlap.
func randomPattern(r *rand.Rand, starsMax int) string {
	text := []byte(randomText(r, r.IntN(7)))
	for range 1 + r.IntN(starsMax) {
		text = slices.Insert(text, r.IntN(len(text)+1), '*')
	}
	return string(text)
}

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte("ab"[r.IntN(2)])
	}
	return b.String()
}

// The index finds the same pattern as a trial of every pattern: with any number of '*', with a '*' at an end, with
// heads and tails that overlap, and with patterns given twice.
func TestPatternsAgreeWithTryingAll(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		var patterns []string
		for range 1 + r.IntN(60) {
			stars := 1
			if r.IntN(4) == 0 && len(patterns) < PatternsAlikeMax {
				stars = 3
			}
			patterns = append(patterns, randomPattern(r, stars))
		}
		slices.SortFunc(patterns, ComparePatterns)
		index, leftOut := NewPatterns(patterns)
		if len(leftOut) != 0 {
			t.Fatalf("seed %d: %v are crowded out", seed, leftOut)
		}
		for range 200 {
			s := randomText(r, r.IntN(12))
			want, got := linearFind(patterns, s), ""
			if at := index.Find(s); at >= 0 {
				got = patterns[at]
			}
			if got != want {
				t.Fatalf("seed %d, %q: found %q, want %q of %q", seed, s, got, want, patterns)
			}
		}
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("a*,*a,a*a,*", "aa")
	f.Add("*b*,a*b*c,**", "abc")
	f.Add("\x00*\xff,*\xff", "\x00\xff")
	f.Fuzz(func(t *testing.T, text, s string) {
		patterns := strings.Split(text, ",")
		patterns = slices.DeleteFunc(patterns, func(p string) bool { return !strings.Contains(p, "*") })
		slices.SortFunc(patterns, ComparePatterns)
		index, leftOut := NewPatterns(patterns)
		kept := slices.Clone(patterns)
		for _, at := range leftOut {
			kept[at] = patterns[at] + "\x00crowded out"
		}
		got := ""
		if at := index.Find(s); at >= 0 {
			got = patterns[at]
		}
		if want := linearFind(kept, s); got != want && !strings.HasSuffix(want, "\x00crowded out") {
			t.Errorf("%q of %q: %q, want %q", s, patterns, got, want)
		}
	})
}

// "at most PatternsAlikeMax for an identifier": further patterns are left out, the least specific first; heads that no
// identifier has together do not count together.
func TestPatternsWithSeveralStarsAreBounded(t *testing.T) {
	leftOut := func(patterns ...string) (out []string) {
		slices.SortFunc(patterns, ComparePatterns)
		index, leftOut := NewPatterns(patterns)
		for _, at := range leftOut {
			out = append(out, patterns[at])
		}
		for at, pattern := range patterns {
			if got := index.Find(strings.ReplaceAll(pattern, "*", "7")); got != at && !slices.Contains(leftOut, at) {
				t.Errorf("%q: found %d, want %d", pattern, got, at)
			}
		}
		return out
	}
	var alike, apart []string
	for i := range PatternsAlikeMax + 2 {
		alike = append(alike, fmt.Sprintf("u*%c%s*", 'A'+i, strings.Repeat("x", i)))
		apart = append(apart, fmt.Sprintf("org_%03d_*_x_*", i))
	}
	if got, want := leftOut(slices.Concat(alike, apart)...), []string{alike[1], alike[0]}; !slices.Equal(got, want) {
		t.Errorf("left out %q, want %q", got, want)
	}
	if got := leftOut(append(apart, "*a*")...); len(got) != 0 {
		t.Errorf("one that each identifier meets beside one other is left out: %q", got)
	}
	if got := leftOut(append(alike[2:], "*#*")...); !slices.Equal(got, []string{"*#*"}) {
		t.Errorf("one that an identifier meets behind %d others is not left out: %q", PatternsAlikeMax, got)
	}
}

// PatternsAlike counts the most patterns that an identifier can match together with a pattern: another pattern fits
// exactly if the index then leaves out no pattern that it took before.
//
//weir:unraced
func TestPatternsAlikeAgreesWithTheIndex(t *testing.T) {
	fit, headCounts := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var patterns []string
		add := func(pattern string) (leftOut bool) {
			sorted := slices.Sorted(slices.Values(append(slices.Clone(patterns), pattern)))
			slices.SortFunc(sorted, ComparePatterns)
			_, out := NewPatterns(sorted)
			return len(out) > 0
		}
		for range 90 {
			pattern := randomPattern(r, 3) + fmt.Sprint(len(patterns))
			alike, leftOut := PatternsAlike(pattern, patterns), add(pattern)
			if (alike >= PatternsAlikeMax) != leftOut {
				t.Fatalf("seed %d: %q meets %d of %q; crowded: %t", seed, pattern, alike, patterns, leftOut)
			}
			if leftOut {
				headCounts++
				break
			}
			fit++
			patterns = append(patterns, pattern)
		}
	}
	if fit == 0 || headCounts == 0 {
		t.Errorf("%d fit, %d do not", fit, headCounts)
	}
}

// A pattern does not count against itself, and a pattern with a single '*' counts none.
func TestPatternsAlikeLeavesOut(t *testing.T) {
	others := []string{"a*b*", "a*c*", "ab*c*", "b*c*", "a*", "*z", "aa*"}
	for pattern, want := range map[string]int{"a*b*": 2, "ab*d*": 3, "x*y*": 0, "*y*": 3, "b*d*": 1, "a*z": 0, "a": 0} {
		if got := PatternsAlike(pattern, others); got != want {
			t.Errorf("%q: %d, want %d", pattern, got, want)
		}
	}
}

func TestValidatePattern(t *testing.T) {
	if err := ValidatePattern(strings.Repeat("a*", PatternStarsMax)); err != nil {
		t.Error(err)
	}
	err := ValidatePattern(strings.Repeat("a*", PatternStarsMax+1))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "pattern has 9 '*' (0 to 8)") {
		t.Error(err)
	}
}

// "Exact patterns come first", then "the network with more bits", then of patterns with '*' "the pattern with more
// literal bytes", "the pattern with fewer '*'" and "the pattern that is smaller as bytes".
func TestComparePatterns(t *testing.T) {
	want := []string{"10.0.0.1/16", "a", "10.1.0.0/16", "10.0.0.0/8", "11.0.0.0/8", "::/0", "10.0.0.0/8*", "abc*", "*ab", "a*b", "ab*", "*a", "a*", "**a", "a**", "*", "**"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, ComparePatterns)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A look-up among many patterns, by the text that they share with the identifier.
func BenchmarkPatterns(b *testing.B) {
	const many = 100_000
	long := strings.Repeat("a", IdentifierBytesMax)
	for _, c := range []struct {
		name, identifier string
		pattern          func(i int) string
	}{
		{"heads", "user_54321_7", func(i int) string { return fmt.Sprintf("user_%d_*", i) }},
		{"tails", "7@host54321.example", func(i int) string { return fmt.Sprintf("*@host%d.example", i) }},
		{"both", "user_321_7@host42.example", func(i int) string { return fmt.Sprintf("user_%d_*@host%d.example", i%1000, i/1000) }},
		{"networks", "10.7.9.1", func(i int) string { return fmt.Sprintf("%d.%d.%d.0/24", 10+i>>16, i>>8&255, i&255) }},
		{"networks, one in the other", "ffff::", nestedNetwork},
		{"networks, no address", "nothing like it", func(i int) string { return fmt.Sprintf("%d.%d.%d.0/24", 10+i>>16, i>>8&255, i&255) }},
		{"none", "nothing like it", func(i int) string { return fmt.Sprintf("user_%d_*", i) }},
		{"worst", long, func(i int) string { return long[:i%200] + "*b" + long[:i/200%200] }},
		{"worst of several", long, func(i int) string { return long[:i%PatternsAlikeMax] + "*a*a*b*" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			patterns := make([]string, many)
			for i := range patterns {
				patterns[i] = c.pattern(i)
			}
			slices.SortFunc(patterns, ComparePatterns)
			p, _ := NewPatterns(patterns)
			b.ReportAllocs()
			for b.Loop() {
				p.Find(c.identifier)
			}
		})
	}
}

// nestedNetwork returns one of 127 networks around an address, to be searched for an address behind all of them that is
// only in the largest, or another network.
func nestedNetwork(i int) string {
	if i >= 127 {
		return fmt.Sprintf("2001:db9:%x:%x::/64", i>>16, i&0xffff)
	}
	network, _ := netip.MustParseAddr("8000::").Prefix(i + 1)
	return network.String()
}

func BenchmarkNewPatterns(b *testing.B) {
	patterns := make([]string, 100_000)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("user_%d_*", i)
	}
	slices.SortFunc(patterns, ComparePatterns)
	for b.Loop() {
		NewPatterns(patterns)
	}
}
