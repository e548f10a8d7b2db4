package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Set is a set of a plan's steps, by their indexes: "3,7-9".
type Set map[int]bool

// setMax is the largest index of a step.
const setMax = 10_000

// ErrSet is returned for a text that is no Set.
var ErrSet = errors.New("set of steps")

// ParseSet is the inverse of String.
func ParseSet(text string) (Set, error) {
	s := make(Set)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if errors.Join(err, err2) != nil || from > to || to > setMax {
			return nil, fmt.Errorf("%w: %q is not N or N-M, up to %d", ErrSet, part, setMax)
		}
		for i := from; i <= to; i++ {
			s[int(i)] = true
		}
	}
	return s, nil
}

// String lists the indexes, runs of them as N-M.
func (s Set) String() string {
	var parts []string
	for i := 0; i <= setMax; i++ {
		if !s[i] {
			continue
		}
		from := i
		for s[i+1] {
			i++
		}
		if i == from {
			parts = append(parts, strconv.Itoa(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(parts, ",")
}
