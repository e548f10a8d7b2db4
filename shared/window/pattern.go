package window

import "strings"

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
