package controlplane

import (
	"cmp"
	"strings"
)

// Which override applies is what nodes decide; the same rule is here in the few lines
// that a look-up needs.

// matches tells whether a pattern, in which each '*' is any text, is of an identifier.
func matches(pattern, identifier string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == identifier
	}
	if len(identifier) < len(first)+len(last) || !strings.HasPrefix(identifier, first) || !strings.HasSuffix(identifier, last) {
		return false
	}
	rest := identifier[len(first) : len(identifier)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// moreSpecific tells whether of two patterns that match the first one applies: one
// without a star, then the one with more letters, with fewer stars, and the smaller one.
func moreSpecific(a, b string) bool {
	stars := func(p string) int { return strings.Count(p, "*") }
	exact := func(p string) int { return min(1, stars(p)) }
	literal := func(p string) int { return len(p) - stars(p) }
	return cmp.Or(cmp.Compare(exact(a), exact(b)), cmp.Compare(literal(b), literal(a)), cmp.Compare(stars(a), stars(b)), cmp.Compare(a, b)) < 0
}
