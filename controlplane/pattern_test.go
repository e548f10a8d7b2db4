package controlplane

import (
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, identifier string
		want                bool
	}{
		{"user", "user", true}, {"user", "users", false}, {"*", "", true}, {"*", "x", true},
		{"user_*", "user_1", true}, {"user_*", "user", false}, {"*_eu", "a_eu", true}, {"a*a", "a", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"**", "x", true}, {"a*b*b", "ab", false},
	} {
		if got := matches(tc.pattern, tc.identifier); got != tc.want {
			t.Errorf("%q of %q: %v", tc.pattern, tc.identifier, got)
		}
	}
}

func TestMoreSpecific(t *testing.T) {
	order := []string{"user_42", "user_*", "*user", "us*", "u*r", "*", "**"}
	order[3], order[4] = "u*er", "us*"
	for i, a := range order {
		for j, b := range order {
			if i < j && len(a) != len(b) && !moreSpecific(a, b) {
				t.Errorf("%q does not come before %q", a, b)
			}
			if moreSpecific(a, b) && moreSpecific(b, a) {
				t.Errorf("%q and %q before each other", a, b)
			}
		}
	}
}

// A star is any text: a pattern matches what it is filled in to.
func FuzzMatches(f *testing.F) {
	f.Add("a*b", "x")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if !matches(pattern, strings.ReplaceAll(pattern, "*", text)) {
			t.Errorf("%q does not match itself with %q", pattern, text)
		}
	})
}
