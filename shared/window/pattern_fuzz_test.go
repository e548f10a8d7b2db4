package window

import (
	"regexp"
	"strings"
	"testing"
)

// The matcher agrees with a regular expression, and no pattern or name panics.
func FuzzMatchesParts(f *testing.F) {
	for _, s := range [][2]string{{"a*b", "axb"}, {"*", ""}, {"**", "x"}, {"a*a", "a"}, {"*aba*aba*", "abababa"}, {"\x00*\xff", "\x00\xff"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !strings.Contains(pattern, "*") || len(pattern) > 100 || strings.ToValidUTF8(pattern+name, "") != pattern+name {
			return // an expression reads runes; bytes are compared the same way
		}
		parts := PatternParts(pattern)
		quoted := make([]string, len(parts))
		for i, p := range parts {
			quoted[i] = regexp.QuoteMeta(p)
		}
		want := regexp.MustCompile(`(?s)\A` + strings.Join(quoted, ".*") + `\z`).MatchString(name)
		if got := MatchesParts(parts, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}
