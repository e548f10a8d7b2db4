package window

import "testing"

func TestMatchesParts(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"user", "user", true}, {"user", "users", false}, {"", "", true}, {"*", "", true}, {"*", "any", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a-b-c", true}, {"a*b*c", "a-c-b", false},
		{"*bb*", "abba", true}, {"*bb*", "abab", false}, {"a**b", "ab", true}, {"x*", "ax", false},
	} {
		if got := MatchesParts(PatternParts(c.pattern), c.s); got != c.want {
			t.Errorf("%q of %q: %v, want %v", c.pattern, c.s, got, c.want)
		}
	}
}
