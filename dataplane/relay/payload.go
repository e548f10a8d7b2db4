package relay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A row's payload is its version, one byte, and a body, which is deflated in versionDeflated. In the body all integers
// are varints:
//
//	n, then n groups of hashes: expiry, m, m hashes, each as what
//	  it is more than the one before   3 bytes a hash, where there are some hundred
//	n, then n groups of counts: workspace, namespace, duration
//	  with mode and generation (window.StoredDuration),
//	  sequence, m, m counts: bytes shared with the identifier
//	  before, the rest of the identifier, total                  4 bytes a count and the rest of its identifier
//	how many ms the oldest count was due when the row was made, >= 1, or nothing
//
// Groups carry what their entries have in common, and identifiers are sorted. With random identifiers in base 16 a
// count takes some 11 bytes, deflated 7: a third less to store and to send to all other regions, for a tenth more work.
const (
	versionPlain    = 1
	versionDeflated = 2
)

var errPayload = errors.New("relay: malformed payload")

// hashed announces that a region uses the cell with this hash, which expires then.
type hashed struct {
	expiresMs int64
	hash      uint32 // < 1<<hashBits
}

// counted is a region's total of a cell.
type counted struct {
	cell  window.Cell
	total int64
}

// hashBits is how long a hash is. One key in 100 shares its own with one of 10 million, and one more bit would make the
// hashes of a row an eighth of a byte longer, each.
const hashBits = 30

// hashOf is the same in all regions. Two cells that share a hash cost a count that could have waited; no decision
// depends on it.
func hashOf(c *window.Cell) uint32 {
	var buf [800]byte
	b := appendNames(buf[:0], c)
	b = appendString(b, c.Identifier)
	return uint32(xxhash.Sum64(b) >> (64 - hashBits))
}

// appendNames appends what a group of counts has in common.
func appendNames(b []byte, c *window.Cell) []byte {
	b = appendString(b, c.Workspace)
	b = appendString(b, c.Namespace)
	b = binary.AppendUvarint(b, uint64(window.StoredDuration(&c.Key)))
	return binary.AppendVarint(b, c.Sequence)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// encode sorts its arguments, and makes a payload of them. An age below a millisecond is left out.
func encode(hashes []hashed, counts []counted, age time.Duration) []byte {
	b := encodePlain(hashes, counts)
	if ms := min(age, ageMax).Milliseconds(); ms > 0 {
		b = binary.AppendUvarint(b, uint64(ms))
	}
	return shorter(b)
}

func encodePlain(hashes []hashed, counts []counted) []byte {
	b := []byte{versionPlain}
	slices.SortFunc(hashes, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(a.expiresMs, b.expiresMs), cmp.Compare(a.hash, b.hash))
	})
	slices.SortFunc(counts, func(a, b counted) int {
		return cmp.Or(compareGroups(&a.cell, &b.cell), strings.Compare(a.cell.Identifier, b.cell.Identifier))
	})
	b = appendGroups(b, hashes, func(a, b *hashed) bool { return a.expiresMs == b.expiresMs }, appendHashes)
	return appendGroups(b, counts, func(a, b *counted) bool { return compareGroups(&a.cell, &b.cell) == 0 }, appendCounts)
}

func compareGroups(a, b *window.Cell) int {
	return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Namespace, b.Namespace),
		cmp.Compare(window.StoredDuration(&a.Key), window.StoredDuration(&b.Key)), cmp.Compare(a.Sequence, b.Sequence))
}

// appendGroups appends how many groups there are, then each.
func appendGroups[T any](b []byte, sorted []T, same func(a, b *T) bool, group func([]byte, []T) []byte) []byte {
	var ends []int
	for i := range sorted {
		if i+1 == len(sorted) || !same(&sorted[i], &sorted[i+1]) {
			ends = append(ends, i+1)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(ends)))
	from := 0
	for _, end := range ends {
		b = group(b, sorted[from:end])
		from = end
	}
	return b
}

func appendHashes(b []byte, group []hashed) []byte {
	b = binary.AppendUvarint(b, uint64(group[0].expiresMs))
	b = binary.AppendUvarint(b, uint64(len(group)))
	before := uint32(0)
	for _, h := range group {
		b = binary.AppendUvarint(b, uint64(h.hash-before))
		before = h.hash
	}
	return b
}

func appendCounts(b []byte, group []counted) []byte {
	b = appendNames(b, &group[0].cell)
	b = binary.AppendUvarint(b, uint64(len(group)))
	before := ""
	for i := range group {
		id := group[i].cell.Identifier
		shared := sharedPrefix(before, id)
		b = binary.AppendUvarint(b, uint64(shared))
		b = appendString(b, id[shared:])
		b = binary.AppendUvarint(b, uint64(group[i].total))
		before = id
	}
	return b
}

func sharedPrefix(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

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
	d := decoder{rest: body}
	for range d.length(3) {
		d.hashes(hash)
	}
	for range d.length(6) {
		d.counts(count)
	}
	if d.err == nil && len(d.rest) > 0 {
		age = d.age()
	}
	if d.err == nil && len(d.rest) > 0 {
		d.fail("bytes behind its end")
	}
	return age, d.err
}

// ageMax is the longest age that is told.
const ageMax = 366 * 24 * time.Hour

func (d *decoder) age() time.Duration {
	ms := d.number(ageMax.Milliseconds())
	if ms == 0 {
		d.fail("an age of 0")
	}
	return time.Duration(ms) * time.Millisecond
}

func bodyOf(payload []byte) ([]byte, error) {
	switch {
	case len(payload) > 0 && payload[0] == versionPlain:
		return payload[1:], nil
	case len(payload) > 0 && payload[0] == versionDeflated:
		return inflate(payload[1:])
	}
	return nil, fmt.Errorf("%w: of no version that is known", errPayload)
}

// decoder reads from a payload until its first error; from then on it reads zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s, %d bytes before its end", errPayload, what, len(d.rest))
	}
	d.rest = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("no varint")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// number is a uvarint of at most most.
func (d *decoder) number(most int64) int64 {
	v := d.uvarint()
	if v > uint64(most) {
		d.fail("number out of range")
		return 0
	}
	return int64(v)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail("no varint")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// length is a number of entries, of which each takes at least bytesMin: what is left has room for them.
func (d *decoder) length(bytesMin int) int {
	v := d.uvarint()
	if v > uint64(len(d.rest)/bytesMin) {
		d.fail("more entries than bytes")
		return 0
	}
	return int(v)
}

func (d *decoder) bytes() []byte {
	n := d.length(1)
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) hashes(yield func(hashed)) {
	expiresMs := d.number(math.MaxInt64)
	hash := int64(0)
	for range d.length(1) {
		hash += d.number(1<<hashBits - 1 - hash)
		if d.err != nil {
			return
		}
		yield(hashed{expiresMs, uint32(hash)})
	}
}

func (d *decoder) counts(yield func(counted)) {
	c := counted{}
	c.cell.Workspace, c.cell.Namespace = string(d.bytes()), string(d.bytes())
	if !window.ReadStoredDuration(int64(d.uvarint()), &c.cell.Key) {
		d.fail("duration out of range")
	}
	c.cell.Sequence = d.varint()
	var identifier []byte
	for range d.length(3) {
		shared := d.number(int64(len(identifier)))
		identifier = append(identifier[:shared], d.bytes()...)
		c.total = d.number(store.CountMax)
		c.cell.Identifier = string(identifier)
		if d.err == nil {
			d.check(&c.cell)
		}
		if d.err != nil {
			return
		}
		yield(c)
	}
}

// check refuses cells that no data plane can have counted in.
func (d *decoder) check(c *window.Cell) {
	if err := c.Validate(); err != nil {
		d.fail(err.Error())
		return
	}
	if most := math.MaxInt64/c.DurationMs() - 2; c.Sequence < -most || c.Sequence > most {
		d.fail("sequence out of range")
	}
}

// room adds entries to a payload as long as they fit.
type room struct {
	left   int
	groups map[window.Cell]struct{} // with no identifier
	times  map[int64]struct{}       // of hashes
}

const varintMax = binary.MaxVarintLen64

func newRoom(bytesMax int) *room {
	return &room{
		left:   bytesMax - 1 - 3*varintMax,
		groups: make(map[window.Cell]struct{}),
		times:  make(map[int64]struct{}),
	}
}

func (r *room) hash(expiresMs int64) bool {
	need := 5 // of a varint of hashBits
	if _, ok := r.times[expiresMs]; !ok {
		need += 2 * varintMax
	}
	if need > r.left {
		return false
	}
	r.left -= need
	r.times[expiresMs] = struct{}{}
	return true
}

func (r *room) count(c *window.Cell) bool {
	group := *c
	group.Identifier = ""
	need := len(c.Identifier) + 4 + varintMax // what is shared and what is not take two bytes each
	if _, ok := r.groups[group]; !ok {
		need += len(c.Workspace) + len(c.Namespace) + 5*varintMax
	}
	if need > r.left {
		return false
	}
	r.left -= need
	r.groups[group] = struct{}{}
	return true
}
