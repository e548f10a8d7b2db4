package window

import (
	"cmp"
	"fmt"
	"strings"
)

// Bounds of patterns. They keep a look-up's cost the same however many patterns there are;
// see Patterns.
const (
	// PatternStarsMax is how many '*' a pattern may have.
	PatternStarsMax = 8
	// PatternsAlikeMax bounds the patterns with more than one '*' that have to be tried for one
	// identifier: those whose text before the first '*' the identifier begins with.
	PatternsAlikeMax = 32
)

// ValidatePattern reports a pattern that has too many '*', as an error that wraps ErrInvalid.
func ValidatePattern(pattern string) error {
	if stars := strings.Count(pattern, "*"); stars > PatternStarsMax {
		return fmt.Errorf("%w: pattern has %d '*' (0 to %d)", ErrInvalid, stars, PatternStarsMax)
	}
	return nil
}

// ComparePatterns orders patterns by how specific they are: of those that match, the first one
// applies. A pattern without '*' comes first, then the one with more literal bytes, then the one
// with fewer '*', then the one that is smaller as bytes, so that the order is the same everywhere.
func ComparePatterns(a, b string) int {
	starsA, starsB := strings.Count(a, "*"), strings.Count(b, "*")
	literalA, literalB := len(a)-starsA, len(b)-starsB
	return cmp.Or(cmp.Compare(min(1, starsA), min(1, starsB)), cmp.Compare(literalB, literalA),
		cmp.Compare(starsA, starsB), cmp.Compare(a, b))
}

// PatternParts splits a pattern at each '*', which stands for any bytes, also none. A
// pattern without one has a single part.
func PatternParts(pattern string) []string { return strings.Split(pattern, "*") }

// MatchesParts tells whether s is the parts of a pattern, in order, with anything between
// them; a single part has to be s itself. It allocates nothing.
func MatchesParts(parts []string, s string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		// The leftmost place leaves the most for those that follow.
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return true
}
