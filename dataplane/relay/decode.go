package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var errPayload = errors.New("relay: malformed payload")

// decode calls hash and count for each entry of a payload. After an error those called before it are still true.
// What it allocates is bounded by store.NewsBytesMax, whatever the payload says.
func decode(payload []byte, hash func(hashed), count func(counted)) error {
	_, err := decodeAged(payload, hash, count)
	return err
}

// decodeAged is decode, and returns how old the oldest count was when the row was made; 0 is unknown.
func decodeAged(payload []byte, hash func(hashed), count func(counted)) (age time.Duration, err error) {
	if len(payload) > store.NewsBytesMax {
		return 0, fmt.Errorf("%w: %d bytes (1 to %d)", errPayload, len(payload), store.NewsBytesMax)
	}
	body, err := bodyOf(payload)
	if err != nil {
		return 0, err
	}
	d := newDecoder(body)
	for range d.heads.length(&d.heads, 2) {
		d.hashGroup(hash)
	}
	for range d.heads.length(&d.heads, 6) {
		d.countGroup(count)
	}
	if len(d.heads.rest) > 0 {
		age = d.age()
	}
	d.end()
	return age, d.err
}

// ageMax is the longest age that is told.
const ageMax = 366 * 24 * time.Hour

func bodyOf(payload []byte) ([]byte, error) {
	switch {
	case len(payload) > 0 && payload[0] == versionPlain:
		return payload[1:], nil
	case len(payload) > 0 && payload[0] == versionDeflated:
		return inflate(payload[1:])
	}
	return nil, fmt.Errorf("%w: of no version that is known", errPayload)
}

// decoder reads a body until its first error; from then on it reads zeros.
type decoder struct {
	heads, hashes, marks, texts, gaps column
	err                               error
}

func newDecoder(body []byte) *decoder {
	d := &decoder{}
	whole := column{d, body}
	for _, c := range []*column{&d.heads, &d.hashes, &d.marks, &d.texts} {
		*c = column{d, whole.bytes()}
	}
	d.gaps = column{d, whole.rest}
	return d
}

func (d *decoder) age() time.Duration {
	ms := d.heads.number(ageMax.Milliseconds())
	if ms == 0 {
		d.fail("an age of 0")
	}
	return time.Duration(ms) * time.Millisecond
}

// end refuses what is left behind the last entry.
func (d *decoder) end() {
	for _, c := range []*column{&d.heads, &d.hashes, &d.marks, &d.texts, &d.gaps} {
		if len(c.rest) > 0 {
			d.fail(fmt.Sprint(len(c.rest), " bytes too many"))
		}
	}
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errPayload, what)
	}
	for _, c := range []*column{&d.heads, &d.hashes, &d.marks, &d.texts, &d.gaps} {
		c.rest = nil
	}
}

func (d *decoder) hashGroup(yield func(hashed)) {
	expiresMs := d.heads.number(math.MaxInt64)
	hash := int64(0)
	for range d.heads.length(&d.hashes, 1) {
		hash += d.hashes.number(1<<hashBits - 1 - hash)
		if d.err != nil {
			return
		}
		yield(hashed{expiresMs, uint32(hash)})
	}
}

func (d *decoder) countGroup(yield func(counted)) {
	c := window.Cell{}
	c.Workspace, c.Namespace = string(d.heads.bytes()), string(d.heads.bytes())
	if !window.ReadStoredDuration(int64(d.heads.uvarint()), &c.Key) {
		d.fail("duration out of range")
	}
	c.Sequence = d.heads.varint()
	d.check(c)
	repeated, named := d.heads.length(&d.gaps, 1), d.heads.length(&d.marks, 4)
	d.repeated(c, repeated, yield)
	d.named(c, named, yield)
}

func (d *decoder) repeated(c window.Cell, n int, yield func(counted)) {
	number := int64(0)
	for range n {
		number += d.gaps.number(math.MaxUint32 - number)
		total := d.marks.number(store.CountMax)
		if number == 0 {
			d.fail("a count with neither name nor number")
		}
		if d.err != nil {
			return
		}
		yield(counted{c, uint32(number), total})
	}
}

func (d *decoder) named(c window.Cell, n int, yield func(counted)) {
	numbers, shared, lengths := d.marks.varints(n), d.marks.varints(n), d.marks.varints(n)
	var identifier []byte
	next := int64(1)
	for range n {
		number := next + numbers.varint()
		identifier = append(identifier[:shared.number(int64(len(identifier)))], d.texts.take(lengths.uvarint())...)
		total := d.marks.number(store.CountMax)
		if number < 0 || number > math.MaxUint32 {
			d.fail("number out of range")
		}
		if len(identifier) < 1 || len(identifier) > window.IdentifierBytesMax {
			d.fail("identifier out of range")
		}
		if d.err != nil {
			return
		}
		c.Identifier, next = string(identifier), number+1
		yield(counted{c, uint32(number), total})
	}
}

// check refuses groups of cells that no data plane can have counted in.
func (d *decoder) check(c window.Cell) {
	if d.err != nil {
		return
	}
	c.Identifier = "any"
	if err := c.Validate(); err != nil {
		d.fail(err.Error())
		return
	}
	if most := math.MaxInt64/c.DurationMs() - 2; c.Sequence < -most || c.Sequence > most {
		d.fail("sequence out of range")
	}
}

// column is what is left of a section, or of a part of one.
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

// number is a uvarint of at most most.
func (c *column) number(most int64) int64 {
	v := c.uvarint()
	if v > uint64(most) {
		c.fail("number out of range")
		return 0
	}
	return int64(v)
}

// length is a number of entries, of which each takes at least bytesMin of in, which has room for them.
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

// varints is a column of the next n varints.
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
