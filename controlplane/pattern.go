package controlplane

import (
	"cmp"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// Which override applies is what nodes decide; the same rule is here in the few lines
// that a look-up needs.

// matches tells whether a pattern, in which each '*' is any text, is of an identifier.
func matches(pattern, identifier string) bool {
	return window.MatchesParts(window.PatternParts(pattern), identifier)
}

// moreSpecific tells whether of two patterns that match the first one applies: one
// without a star, then the one with more letters, with fewer stars, and the smaller one.
func moreSpecific(a, b string) bool {
	stars := func(p string) int { return strings.Count(p, "*") }
	exact := func(p string) int { return min(1, stars(p)) }
	literal := func(p string) int { return len(p) - stars(p) }
	return cmp.Or(cmp.Compare(exact(a), exact(b)), cmp.Compare(literal(b), literal(a)), cmp.Compare(stars(a), stars(b)), cmp.Compare(a, b)) < 0
}
