package window

import (
	"slices"
	"strings"
)

// PatternsAlike is how many of the others an identifier that matches the pattern may have to be tried against at most:
// those with several '*' that begin alike. From PatternsAlikeMax on there is no room for the pattern. It is 0 for a
// pattern with at most one '*'. The pattern may be among the others, and does not count then.
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

// severalHead is the text before the first '*' of a pattern with more than one.
func severalHead(pattern string) (head string, ok bool) {
	head, rest, _ := strings.Cut(pattern, "*")
	return head, strings.Contains(rest, "*")
}

// longestChain is the length of the longest chain of heads, each of which begins with the one before. It sorts them.
func longestChain(heads []string) (most int) {
	slices.Sort(heads)
	var open []string // heads that the current one begins with
	for _, head := range heads {
		for len(open) > 0 && !strings.HasPrefix(head, open[len(open)-1]) {
			open = open[:len(open)-1]
		}
		open = append(open, head)
		most = max(most, len(open))
	}
	return most
}
