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
	// PatternsAlikeMax bounds the patterns with more than one '*' that may have to be tried for an identifier: all whose
	// text before the first '*' begins the identifier.
	PatternsAlikeMax = 32
)

// ValidatePattern reports a pattern that nodes leave out because it has too many '*', as an error that wraps
// ErrInvalid.
func ValidatePattern(pattern string) error {
	if problem, found := starsProblem(pattern); found {
		return fmt.Errorf("%w: pattern %s", ErrInvalid, problem)
	}
	return nil
}

// PatternProblem returns why no override of a pattern can be set, as text to follow the word "pattern", or an empty
// string. In addition to patterns that nodes leave out, it rejects networks that are not written in their only form,
// and addresses with bits that they do not have. Such texts can be stored by an earlier build, and match only
// identifiers with the same text.
func PatternProblem(pattern string) string {
	if problem, found := starsProblem(pattern); found {
		return problem
	}
	problem, _ := networkProblem(pattern)
	return problem
}

func starsProblem(pattern string) (problem string, found bool) {
	stars := strings.Count(pattern, "*")
	return fmt.Sprintf("has %d '*' (0 to %d)", stars, PatternStarsMax), stars > PatternStarsMax
}

// IsExact reports whether a pattern matches only the identifier with the same text: it has no '*' and is no network.
func IsExact(pattern string) bool { return kindOf(pattern) == exactPattern }

// Matches reports whether a pattern matches an identifier. The first such pattern by ComparePatterns applies.
func Matches(pattern, identifier string) bool {
	network, ok := Network(pattern)
	if !ok {
		return MatchesParts(PatternParts(pattern), identifier)
	}
	within, ok := networkOf(identifier)
	return ok && network.Bits() <= within.Bits() && network.Contains(within.Addr())
}

// ComparePatterns orders patterns by how specific they are: the first matching pattern applies.
//
//   - Exact patterns come first; see IsExact.
//   - Networks follow, the network with more bits first. For example, "10.1.0.0/16" comes before "10.0.0.0/8".
//   - Of patterns with '*', the pattern with more literal bytes comes first, then the pattern with fewer '*'. For
//     example, "abc*" comes before "a*".
//   - Otherwise, the pattern that is smaller as bytes comes first, so that the order is the same everywhere.
func ComparePatterns(a, b string) int {
	kindA, kindB := kindOf(a), kindOf(b)
	if kindA != kindB {
		return cmp.Compare(kindA, kindB)
	}
	if kindA == networkPattern {
		networkA, _ := Network(a)
		networkB, _ := Network(b)
		return cmp.Or(cmp.Compare(networkB.Bits(), networkA.Bits()), cmp.Compare(a, b))
	}
	starsA, starsB := strings.Count(a, "*"), strings.Count(b, "*")
	return cmp.Or(cmp.Compare(len(b)-starsB, len(a)-starsA), cmp.Compare(starsA, starsB), cmp.Compare(a, b))
}

// patternKind is a pattern's kind, the most specific kind first.
type patternKind int

const (
	exactPattern patternKind = iota
	networkPattern
	starPattern
)

func kindOf(pattern string) patternKind {
	if strings.Contains(pattern, "*") {
		return starPattern
	}
	if _, ok := Network(pattern); ok {
		return networkPattern
	}
	return exactPattern
}

// PatternParts splits a pattern at each '*', which stands for any bytes, or none. A pattern without '*' has a single
// part.
func PatternParts(pattern string) []string { return strings.Split(pattern, "*") }

// MatchesParts reports whether s is the parts of a pattern, in order, with anything between them; a single part must
// equal s. It allocates nothing.
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
		// The leftmost place leaves the most room for the parts that follow.
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return true
}
