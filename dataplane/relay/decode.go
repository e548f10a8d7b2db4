package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var errPayload = errors.New("relay: malformed payload")

// blockMax is the most entries that decodeBlocks passes in one call. A block and the memory that decoding it needs fit
// into a processor's cache.
const blockMax = 512

// entry is a count of a group, without the group's cell: see counted.
type entry struct {
	identifier   string
	number, hash uint32 // hash of the identifier, set by table.findAll
	total        int64
}

// decodeBlocks calls counts with up to blockMax entries of a group at a time. In a call either all entries have names,
// or none has. The callee may change the entries, and must not keep them after it returns. The memory that decodeBlocks
// allocates is bounded by store.FeedBytesMax, whatever the payload contains.
//
// age is how old the oldest count was when the row was made; 0 means unknown. decodeBlocks leaves out malformed counts
// and goes on with the next. For example, a count is malformed if no node can count in its cell, if no origin can have
// its total, or if it has neither a name nor a number. An error means that the rest of the payload cannot be decoded;
// the entries passed before it are valid.
func decodeBlocks(payload []byte, counts func(of *window.Cell, entries []entry)) (age time.Duration, malformed int,
	err error) {
	if len(payload) > store.FeedBytesMax {
		return 0, 0, fmt.Errorf("%w: %d bytes (1 to %d)", errPayload, len(payload), store.FeedBytesMax)
	}
	d := decoders.Get().(*decoder)
	defer d.free()
	body, err := d.bodyOf(payload)
	if err != nil {
		return 0, 0, err
	}
	d.begin(body)
	for range d.heads.length(&d.heads, 6) {
		d.countGroup(counts)
	}
	if len(d.heads.rest) > 0 {
		age = d.age()
	}
	d.end()
	return age, d.malformed, d.err
}

// ageMax is the longest age that a payload can have.
const ageMax = 366 * 24 * time.Hour

func (d *decoder) bodyOf(payload []byte) ([]byte, error) {
	switch {
	case len(payload) > 0 && payload[0] == versionPlain:
		return payload[1:], nil
	case len(payload) > 0 && payload[0] == versionDeflated:
		return inflate(&d.inflated, payload[1:])
	}
	return nil, fmt.Errorf("%w: unknown version", errPayload)
}

// decoder reads a body until its first error. After an error all reads return zeros.
type decoder struct {
	heads, marks, texts, gaps column
	err                       error
	malformed                 int // counts that were left out

	// Memory that is reused for the next payload.
	inflated bytes.Buffer
	cell     window.Cell // of the group being read
	entries  [blockMax]entry
	names    []byte // identifiers of a block, back to back
	ends     [blockMax]int
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// begin reads the lengths of the sections, and sets the columns.
func (d *decoder) begin(body []byte) {
	d.err, d.malformed = nil, 0
	whole := column{d, body}
	for _, c := range []*column{&d.heads, &d.marks, &d.texts} {
		*c = column{d, whole.bytes()}
	}
	d.gaps = column{d, whole.rest}
}

// free returns the decoder to the pool, without references to its payload.
func (d *decoder) free() {
	for _, c := range []*column{&d.heads, &d.marks, &d.texts, &d.gaps} {
		c.rest = nil
	}
	clear(d.entries[:])
	d.cell = window.Cell{}
	decoders.Put(d)
}

func (d *decoder) age() time.Duration {
	ms := d.heads.number(ageMax.Milliseconds())
	if ms == 0 {
		d.fail("an age of 0")
	}
	return time.Duration(ms) * time.Millisecond
}

// end fails if bytes are left after the last entry.
func (d *decoder) end() {
	for _, c := range []*column{&d.heads, &d.marks, &d.texts, &d.gaps} {
		if len(c.rest) > 0 {
			d.fail(fmt.Sprint(len(c.rest), " bytes too many"))
		}
	}
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errPayload, what)
	}
	for _, c := range []*column{&d.heads, &d.marks, &d.texts, &d.gaps} {
		c.rest = nil
	}
}

func (d *decoder) countGroup(yield func(*window.Cell, []entry)) {
	c := &d.cell
	*c = window.Cell{}
	c.Workspace, c.Namespace = string(d.heads.bytes()), string(d.heads.bytes())
	whole := window.ReadStoredDuration(int64(d.heads.uvarint()), &c.Key)
	c.Sequence = d.heads.varint()
	if c.Identifier = "any"; !whole || c.Validate() != nil {
		yield = func(_ *window.Cell, entries []entry) { d.malformed += len(entries) }
	}
	c.Identifier = ""
	repeated, named := d.heads.length(&d.gaps, 1), d.heads.length(&d.marks, 4)
	d.repeated(repeated, yield)
	d.named(named, yield)
}

func (d *decoder) repeated(left int, yield func(*window.Cell, []entry)) {
	for number := int64(0); left > 0 && d.err == nil; left -= blockMax {
		n := 0
		for range min(left, blockMax) {
			number += d.gaps.number(math.MaxUint32 - number)
			total := d.marks.uvarint()
			if d.err != nil {
				break
			}
			if number == 0 || total > store.CountMax {
				d.malformed++
				continue
			}
			d.entries[n] = entry{number: uint32(number), total: int64(total)}
			n++
		}
		yield(&d.cell, d.entries[:n])
	}
}

func (d *decoder) named(left int, yield func(*window.Cell, []entry)) {
	of := namedColumns{next: 1}
	of.numbers, of.shared, of.lengths = d.marks.varints(left), d.marks.varints(left), d.marks.varints(left)
	for ; left > 0 && d.err == nil; left -= blockMax {
		n := 0
		d.names = d.names[:0]
		for range min(left, blockMax) {
			whole := d.name(&of, &d.entries[n])
			if d.err != nil {
				break
			}
			if !whole {
				d.malformed++
				continue
			}
			d.names = append(d.names, of.identifier...)
			d.ends[n] = len(d.names)
			n++
		}
		names, from := string(d.names), 0
		for i := range n {
			d.entries[i].identifier = names[from:d.ends[i]]
			from = d.ends[i]
		}
		yield(&d.cell, d.entries[:n])
	}
}

// namedColumns are the columns of a group's named counts, with the state that the last count left.
type namedColumns struct {
	numbers, shared, lengths column
	next                     int64
	identifier               []byte
}

// name reads a named count, except for the identifier, which stays in of. It reports whether the count is well formed.
func (d *decoder) name(of *namedColumns, e *entry) bool {
	number := of.next + of.numbers.varint()
	shared := of.shared.number(int64(len(of.identifier)))
	of.identifier = append(of.identifier[:shared], d.texts.take(of.lengths.uvarint())...)
	total := d.marks.uvarint()
	*e, of.next = entry{number: uint32(number), total: int64(total)}, number+1
	return number >= 0 && number <= math.MaxUint32 && total <= store.CountMax && len(of.identifier) > 0 &&
		len(of.identifier) <= window.IdentifierBytesMax
}

// column is the unread rest of a section, or of a part of a section.
type column struct {
	of   *decoder
	rest []byte
}

func (c *column) fail(what string) {
	c.of.fail(what)
	c.rest = nil
}

func (c *column) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.fail("no varint")
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *column) varint() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.fail("no varint")
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// number reads a uvarint of at most most.
func (c *column) number(most int64) int64 {
	v := c.uvarint()
	if v > uint64(most) {
		c.fail("number out of range")
		return 0
	}
	return int64(v)
}

// length reads a number of entries. It fails if in has fewer than bytesMin bytes left for each entry.
func (c *column) length(in *column, bytesMin int) int {
	v := c.uvarint()
	if v > uint64(len(in.rest)/bytesMin) {
		c.fail("more entries than bytes")
		return 0
	}
	return int(v)
}

func (c *column) bytes() []byte { return c.take(c.uvarint()) }

func (c *column) take(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.fail("more bytes than there are")
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// varints returns a column of the next n varints.
func (c *column) varints(n int) column {
	end := 0
	for ; n > 0 && end < len(c.rest); end++ {
		if c.rest[end] < 0x80 {
			n--
		}
	}
	if n > 0 {
		c.fail("fewer varints than entries")
		return column{c.of, nil}
	}
	return column{c.of, c.take(uint64(end))}
}
