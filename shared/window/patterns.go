package window

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Patterns is an index of networks, and of patterns that have at least one '*'. It finds the most specific pattern that
// matches, as ComparePatterns orders them, and allocates nothing. A look-up takes a binary search among the networks;
// the number of the other patterns does not matter. Patterns is immutable; its zero value matches nothing.
//
// The text before a pattern's first '*' is its head, and the text behind its last '*' is its tail. For example,
// "user-*-eu" has the head "user-" and the tail "-eu". All heads are in a radix tree, and the tails of patterns with a
// single '*' in another, from their last byte to their first. In sorted order, the heads that begin with a head follow
// it: it covers a span of them. So a look-up walks to the identifier's longest head, and then along its tails; each
// tail has, by spans of heads, its pattern with the longest head. That is at most IdentifierBytesMax steps in each
// tree, and a binary search for each tail.
//
// Patterns with more '*' are stored with their heads and are tried in turn, at most PatternsAlikeMax for an identifier.
type Patterns struct {
	networks networks

	heads   *radix // its values are places in head
	head    []patternHead
	tails   *radix // its values are places in tail
	tail    []patternTail
	spans   []patternSpan  // by tail, then head
	several []severalStars // by head, then place
}

// patternHead is a head in the sorted list.
type patternHead struct {
	length  int
	longer  int32 // first head behind it that does not begin with it
	shorter int32 // longest other head that it begins with; -1: none
	several int32 // itself, or the next shorter head that has patterns with several '*'; -1: none
	from    int32 // its part of Patterns.several
	until   int32
	open    int32 // place of the pattern with no tail and this head, or the next shorter head; noPlace: none
}

// patternTail is a part of Patterns.spans. The empty tail is in the heads.
type patternTail struct{ from, until int32 }

// patternSpan is the place of the pattern for a tail and a span of heads, which ends where the next span begins.
type patternSpan struct{ head, place int32 }

type severalStars struct {
	place int32
	parts []string
}

const noPlace = math.MaxInt32

// NewPatterns makes an index of patterns, which must be sorted by ComparePatterns and of which none may be exact.
// leftOut lists, by their places, the patterns that are left out because PatternsAlikeMax patterns before them may have
// to be tried first.
func NewPatterns(patterns []string) (p *Patterns, leftOut []int) {
	var list []netip.Prefix
	for _, pattern := range patterns {
		network, ok := Network(pattern)
		if !ok {
			break
		}
		list = append(list, network)
	}
	p = &Patterns{networks: newNetworks(list)}
	headOf := p.setHeads(patterns[len(list):])
	var tails []tailed
	several := make(map[int32][]severalStars)
	room := newHeadCounts(p.head)
	for i, pattern := range patterns[len(list):] {
		head, place := headOf[i], int32(len(list)+i)
		switch last := strings.LastIndexByte(pattern, '*'); {
		case last == p.head[head].length && last == len(pattern)-1:
			p.head[head].open = min(p.head[head].open, place)
		case last == p.head[head].length:
			tails = append(tails, tailed{reversed(pattern[last+1:]), patternSpan{head, place}})
		case room.take(head):
			several[head] = append(several[head], severalStars{place, PatternParts(pattern)})
		default:
			leftOut = append(leftOut, int(place))
		}
	}
	p.inherit(several)
	p.setTails(tails)
	return p, leftOut
}

// setHeads returns each pattern's head.
func (p *Patterns) setHeads(patterns []string) (headOf []int32) {
	texts := make([]string, len(patterns))
	for i, pattern := range patterns {
		texts[i], _, _ = strings.Cut(pattern, "*")
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(texts)))
	p.heads, p.head = newRadix(sorted), make([]patternHead, len(sorted))
	var open []int32 // heads that begin the current head
	closeTo := func(text string, at int32) {
		for len(open) > 0 && !strings.HasPrefix(text, sorted[open[len(open)-1]]) {
			p.head[open[len(open)-1]].longer = at
			open = open[:len(open)-1]
		}
	}
	for i, text := range sorted {
		closeTo(text, int32(i))
		p.head[i] = patternHead{length: len(text), shorter: -1, longer: int32(len(sorted)), open: noPlace}
		if len(open) > 0 {
			p.head[i].shorter = open[len(open)-1]
		}
		open = append(open, int32(i))
	}
	headOf = make([]int32, len(patterns))
	for i, text := range texts {
		at, _ := slices.BinarySearch(sorted, text)
		headOf[i] = int32(at)
	}
	return headOf
}

// inherit stores patterns with several '*' with their heads, and gives each head the patterns of shorter heads.
func (p *Patterns) inherit(several map[int32][]severalStars) {
	for i := range p.head { // a shorter head comes before the heads that begin with it
		h := &p.head[i]
		h.from = int32(len(p.several))
		p.several = append(p.several, several[int32(i)]...)
		h.until, h.several = int32(len(p.several)), -1
		if h.shorter >= 0 {
			h.open, h.several = min(h.open, p.head[h.shorter].open), p.head[h.shorter].several
		}
		if h.from < h.until {
			h.several = int32(i)
		}
	}
}

// tailed is a pattern with a single '*' that does not end with it; its tail is reversed.
type tailed struct {
	tail string
	patternSpan
}

func (p *Patterns) setTails(all []tailed) {
	slices.SortStableFunc(all, func(a, b tailed) int {
		return cmp.Or(strings.Compare(a.tail, b.tail), cmp.Compare(a.head, b.head))
	})
	var texts []string
	for i := 0; i < len(all); {
		tail, same := all[i].tail, []patternSpan(nil)
		for ; i < len(all) && all[i].tail == tail; i++ {
			same = append(same, all[i].patternSpan)
		}
		texts = append(texts, tail)
		from := len(p.spans)
		p.spans = append(p.spans, p.spansOf(same)...)
		p.tail = append(p.tail, patternTail{int32(from), int32(len(p.spans))})
	}
	p.tails = newRadix(texts)
}

// spansOf turns a tail's patterns, by head, into spans: each has the pattern with the longest of
// the heads that cover it.
func (p *Patterns) spansOf(same []patternSpan) (spans []patternSpan) {
	begin := func(head, place int32) {
		if n := len(spans); n > 0 && spans[n-1].head == head {
			spans[n-1].place = place
			return
		}
		spans = append(spans, patternSpan{head, place})
	}
	var open []patternSpan
	closeTo := func(head int32) {
		for len(open) > 0 && p.head[open[len(open)-1].head].longer <= head {
			end := p.head[open[len(open)-1].head].longer
			open = open[:len(open)-1]
			place := int32(noPlace)
			if len(open) > 0 {
				place = open[len(open)-1].place
			}
			begin(end, place)
		}
	}
	for _, s := range same {
		closeTo(s.head)
		if len(open) > 0 && open[len(open)-1].head == s.head {
			continue // the same pattern again
		}
		begin(s.head, s.place)
		open = append(open, s)
	}
	closeTo(math.MaxInt32)
	return spans
}

// Find returns the place of the most specific pattern that matches s, -1 for none. It may be called
// on nil.
func (p *Patterns) Find(s string) int {
	if p == nil {
		return -1
	}
	if place := p.networks.find(s); place >= 0 || len(p.head) == 0 {
		return place
	}
	var buf [IdentifierBytesMax]byte
	text := append(buf[:0], s...)
	head := int32(-1)
	for node, depth := int32(0), 0; node >= 0; node, depth = p.heads.step(node, depth, text) {
		if v := p.heads.nodes[node].value; v >= 0 {
			head = v
		}
	}
	if head < 0 {
		return -1
	}
	place := p.findSeveral(s, head, p.head[head].open)
	if len(p.tail) > 0 {
		place = p.findTail(text, head, place)
	}
	if place == noPlace {
		return -1
	}
	return int(place)
}

// findSeveral returns the place of the first pattern with several '*' that matches s, whose longest head is given, or
// found if that comes earlier.
func (p *Patterns) findSeveral(s string, head, found int32) int32 {
	for head = p.head[head].several; head >= 0; {
		h := &p.head[head]
		for i := h.from; i < h.until && p.several[i].place < found; i++ {
			if MatchesParts(p.several[i].parts, s) {
				found = p.several[i].place
			}
		}
		if h.shorter < 0 {
			break
		}
		head = p.head[h.shorter].several
	}
	return found
}

// findTail is findSeveral for the patterns with a single '*' and a tail. It reverses text.
func (p *Patterns) findTail(text []byte, head, found int32) int32 {
	slices.Reverse(text)
	for node, depth := int32(0), 0; node >= 0; node, depth = p.tails.step(node, depth, text) {
		v := p.tails.nodes[node].value
		if v < 0 {
			continue
		}
		for p.head[head].length > len(text)-depth { // head and tail may not overlap
			if head = p.head[head].shorter; head < 0 {
				return found
			}
		}
		found = min(found, placeAt(p.spans[p.tail[v].from:p.tail[v].until], head))
	}
	return found
}

// placeAt returns the place in the span that a head lies in.
func placeAt(spans []patternSpan, head int32) int32 {
	low, high := 0, len(spans) // spans before low begin at head or before, spans from high on begin behind it
	for low < high {
		if middle := int(uint(low+high) >> 1); spans[middle].head <= head {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return noPlace
	}
	return spans[low-1].place
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// headCounts counts the patterns with several '*' by their heads.
type headCounts struct {
	head []patternHead
	own  []int // by head
	most []int // by head: the most patterns of longer heads that an identifier can begin with
}

func newHeadCounts(head []patternHead) *headCounts {
	return &headCounts{head, make([]int, len(head)), make([]int, len(head))}
}

// take counts another pattern, unless more than PatternsAlikeMax patterns would then have to be tried for some
// identifier.
func (c *headCounts) take(head int32) bool {
	met := c.most[head]
	for at := head; at >= 0; at = c.head[at].shorter {
		met += c.own[at]
	}
	if met >= PatternsAlikeMax {
		return false
	}
	c.own[head]++
	for at := head; c.head[at].shorter >= 0; at = c.head[at].shorter {
		up := c.head[at].shorter
		c.most[up] = max(c.most[up], c.own[at]+c.most[at])
	}
	return true
}
