package window

import (
	"slices"
	"strings"
)

// PatternsAlike returns the most patterns among others that may have to be tried for an identifier that matches the
// pattern: patterns with several '*' that begin alike. At PatternsAlikeMax or more there is no room for the pattern.
// For a pattern with at most one '*' it returns 0. The pattern can be among the others, and does not count then. For
// example, "a*b*" and "ab*c*" are alike, because "abc" begins with both heads.
func PatternsAlike(pattern string, others []string) (alike int) {
	head, ok := severalHead(pattern)
	if !ok {
		return 0
	}
	var longer []string
	for _, other := range others {
		h, ok := severalHead(other)
		switch {
		case !ok || other == pattern:
		case strings.HasPrefix(head, h):
			alike++
		case strings.HasPrefix(h, head):
			longer = append(longer, h)
		}
	}
	return alike + longestChain(longer)
}

// severalHead returns the text before the first '*' of a pattern with more than one '*'.
func severalHead(pattern string) (head string, ok bool) {
	head, rest, _ := strings.Cut(pattern, "*")
	return head, strings.Contains(rest, "*")
}

// longestChain returns the length of the longest chain of heads, each of which begins with the head before. It sorts
// them.
func longestChain(heads []string) (most int) {
	slices.Sort(heads)
	var open []string // heads that begin the current head
	for _, head := range heads {
		for len(open) > 0 && !strings.HasPrefix(head, open[len(open)-1]) {
			open = open[:len(open)-1]
		}
		open = append(open, head)
		most = max(most, len(open))
	}
	return most
}
