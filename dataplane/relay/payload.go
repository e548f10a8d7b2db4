package relay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// A row's payload is a version byte and four sections. Each section but the last has its length before it. In
// versionDeflated the sections are deflated, each with its own Huffman codes. All integers are varints:
//
//	heads   n, then n groups of counts: workspace, namespace, duration with mode and generation
//	        (window.StoredDuration), sequence, k repeated, m named
//	        age of the oldest count in ms when the row was made, >= 1, or nothing
//	marks   for each group the totals of its k repeated counts; then columns for its m named counts: the number
//	        less the number before it and 1; the bytes shared with the identifier before it; the length of the
//	        rest; the total
//	texts   the rests of the identifiers
//	gaps    for each group the differences between the numbers of its k repeated counts
//
// A group has the part of the name that its counts share. Identifiers and numbers are sorted. A writer numbers the
// cells of a group from 1 on when it first names them, and later counts of a cell have only its number: see names.go.
// For a region with 200,000 keys a minute, a deflated name takes 2 bytes and a repeated count 1.6. If every count had
// its name, and entries were not split into columns, they would take 2.8 and 3.2 bytes.
const (
	versionPlain    = 3
	versionDeflated = 4
)

// counted is a region's total of a cell. The cell has its name, or, if Identifier is empty, the number identifies the
// cell in its group.
type counted struct {
	cell   window.Cell
	number uint32 // 0 if the cell has no number
	total  int64
}

// isNamed reports whether the count has the cell's name.
func (c *counted) isNamed() bool { return c.cell.Identifier != "" }

// appendNames appends the part of the name that all counts of a group share.
func appendNames(b []byte, c *window.Cell) []byte {
	b = appendString(b, c.Workspace)
	b = appendString(b, c.Namespace)
	b = binary.AppendUvarint(b, uint64(window.StoredDuration(&c.Key)))
	return binary.AppendVarint(b, c.Sequence)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// encode sorts counts and encodes them as a payload. It omits an age below 1 ms.
func encode(counts []counted, age time.Duration) []byte {
	s := sectionsOf(counts)
	if ms := min(age, ageMax).Milliseconds(); ms > 0 {
		s.heads = binary.AppendUvarint(s.heads, uint64(ms))
	}
	return s.payload()
}

func sectionsOf(counts []counted) (s sections) {
	slices.SortFunc(counts, compareCounts)
	groups, heads := 0, []byte(nil)
	for len(counts) > 0 {
		n := slices.IndexFunc(counts, func(c counted) bool { return compareGroups(&c.cell, &counts[0].cell) != 0 })
		if n < 0 {
			n = len(counts)
		}
		heads = s.addCounts(heads, counts[:n])
		groups, counts = groups+1, counts[n:]
	}
	s.heads = append(binary.AppendUvarint(nil, uint64(groups)), heads...)
	return s
}

// compareCounts orders counts by group. Within a group, repeated counts come first.
func compareCounts(a, b counted) int {
	return cmp.Or(compareGroups(&a.cell, &b.cell), strings.Compare(a.cell.Identifier, b.cell.Identifier),
		cmp.Compare(a.number, b.number))
}

func compareGroups(a, b *window.Cell) int {
	return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Namespace, b.Namespace),
		cmp.Compare(window.StoredDuration(&a.Key), window.StoredDuration(&b.Key)), cmp.Compare(a.Sequence, b.Sequence))
}

// sections are the four sections of a payload.
type sections struct{ heads, marks, texts, gaps []byte }

// parts returns the payload's body: each section after its length, except the last, which has none.
func (s *sections) parts() (parts [][]byte) {
	for _, section := range [][]byte{s.heads, s.marks, s.texts} {
		parts = append(parts, append(binary.AppendUvarint(nil, uint64(len(section))), section...))
	}
	return append(parts, s.gaps)
}

func (s *sections) addCounts(head []byte, group []counted) []byte {
	head = appendNames(head, &group[0].cell)
	k := 0
	for k < len(group) && !group[k].isNamed() {
		k++
	}
	s.addRepeated(group[:k])
	s.addNamed(group[k:])
	head = binary.AppendUvarint(head, uint64(k))
	return binary.AppendUvarint(head, uint64(len(group)-k))
}

func (s *sections) addRepeated(group []counted) {
	before := uint32(0)
	for i := range group {
		s.gaps = binary.AppendUvarint(s.gaps, uint64(group[i].number-before))
		before = group[i].number
	}
	s.addTotals(group)
}

func (s *sections) addNamed(group []counted) {
	next := int64(1)
	for i := range group {
		s.marks = binary.AppendVarint(s.marks, int64(group[i].number)-next)
		next = int64(group[i].number) + 1
	}
	before, lengths := "", []byte(nil)
	for i := range group {
		id := group[i].cell.Identifier
		shared := sharedPrefix(before, id)
		s.marks = binary.AppendUvarint(s.marks, uint64(shared))
		lengths = binary.AppendUvarint(lengths, uint64(len(id)-shared))
		s.texts = append(s.texts, id[shared:]...)
		before = id
	}
	s.marks = append(s.marks, lengths...)
	s.addTotals(group)
}

func (s *sections) addTotals(group []counted) {
	for i := range group {
		s.marks = binary.AppendUvarint(s.marks, uint64(group[i].total))
	}
}

func sharedPrefix(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// payload returns the shorter of the two versions.
func (s *sections) payload() []byte {
	plain := s.plain()
	if len(plain) < deflateMin {
		return plain
	}
	if packed := deflate(s.parts()...); len(packed) < len(plain) {
		return packed
	}
	return plain
}

func (s *sections) plain() []byte {
	return append([]byte{versionPlain}, bytes.Join(s.parts(), nil)...)
}
