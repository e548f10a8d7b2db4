// Package held keeps reservations by ID.
//
//	held.go          a reservation: its record as text, and its holds
//	change.go        changes of reservations
//	reservations.go  the reservations at an origin
//	book.go          the node's copies, and which of them must be stated again
//	numbers.go       the numbers of the origin's answers, which show what it has lost
//	restate.go       states reservations again that the origin has lost or not acknowledged
//	group.go         calls to a group of an origin
//	heard.go         refusals by an earlier answer of the origin
//	crowd.go         callers' shares of the holds of a key
//	stats.go         counts for metrics
//
// The origin is either the region's, where any node can settle a reservation, or an origin in this process. At an
// origin a reservation is a record, and a hold for each of its items: see store.Reservations. A node that changes a
// reservation must change the record first, and then state in each cell what follows from the record. Any node may make
// these statements, in any order and several times. A hold ends by the origin's clock, even if its node has died.
package held

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Record is a reservation. Settled, EndsMs and the spent costs can change; Text has the rest.
type Record struct {
	Items    []Item
	Returned bool // at its end, cost that was not spent is given back
	Holder   string
	MadeMs   int64  // Unix ms, by the origin's clock
	MadeBy   uint64 // a random number, which identifies its holds

	EndsMs  int64 // Unix ms
	Settled bool

	By  fair.Caller // the caller who has made or changed it at this node
	New bool        // its ID was just drawn, so no reservation has it yet
}

// Item is the part of a reservation for a key.
type Item struct {
	Workspace, Namespace, Identifier string
	DurationMs                       int64
	Sequence                         int64
	Generation, GenerationBefore     uint16
	Limit                            int64
	Held                             int64       // reserved
	Epoch                            store.Epoch // of its group, when it was reserved
	Shadow                           bool        // it may pass over its limit, and holds nothing then
	Precise                          bool        // its namespace has a precise window; set only at the node that made it

	Spent    int64 // as last stated
	Shadowed bool  // it holds nothing, according to this node
}

// Cell returns the cell that the item counts in.
func (it *Item) Cell() window.Cell { return it.cell(it.Sequence, it.Generation) }

// Before returns the cell before Cell.
func (it *Item) Before() window.Cell { return it.cell(it.Sequence-1, it.GenerationBefore) }

func (it *Item) cell(sequence int64, generation uint16) window.Cell {
	return window.Cell{Sequence: sequence, Key: window.Key{Workspace: it.Workspace, Namespace: it.Namespace,
		Identifier: it.Identifier, Duration: time.Duration(it.DurationMs) * time.Millisecond,
		Generation: window.Generation(generation)}}
}

// textVersion is the first byte of a record's text.
const textVersion = 2

// Text returns the part of a record that does not change, as an origin stores it.
func (r *Record) Text() string { return string(r.appendTo(make([]byte, 0, textUsual))) }

// textUsual is the size of most texts, so that a buffer for them needs no heap memory.
const textUsual = 256

// appendTo appends the text to b.
func (r *Record) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, textVersion), r.MadeBy)
	b = append(b, bit(r.Returned))
	b = binary.AppendUvarint(b, uint64(r.MadeMs))
	b = appendText(b, r.Holder)
	for i := range r.Items {
		it := &r.Items[i]
		b = append(b, bit(it.Shadow))
		b = appendText(appendText(appendText(b, it.Workspace), it.Namespace), it.Identifier)
		for _, n := range []int64{it.DurationMs, it.Sequence, int64(it.Generation), int64(it.GenerationBefore), it.Limit,
			it.Held, int64(it.Epoch)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return b
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// errText is returned for a text that is not a record.
var errText = errors.New("dataplane: the origin's record under this ID is not a reservation")

// Parse reads the record of an answer. Its result can be stated, whatever the text is.
func Parse(a *store.RecordAnswer) (*Record, error) {
	t := text{rest: a.Text}
	if t.byte() != textVersion {
		return nil, errText
	}
	r := &Record{MadeBy: t.fixed(), Returned: t.byte() == 1, MadeMs: t.number(leftMax << 16), Holder: t.text(),
		EndsMs: a.EndsMs, Settled: a.Settled}
	for t.rest != "" && !t.bad && len(r.Items) < store.RecordItemsMax {
		it := Item{Shadow: t.byte() == 1, Workspace: t.text(), Namespace: t.text(), Identifier: t.text(),
			DurationMs: t.number(window.DurationMax.Milliseconds()), Sequence: t.number(leftMax << 16),
			Generation: uint16(t.number(1<<16 - 1)), GenerationBefore: uint16(t.number(1<<16 - 1)),
			Limit: t.number(window.LimitMax), Held: t.number(window.LimitMax),
			Epoch: store.Epoch(t.number(math.MaxUint32))}
		if n := len(r.Items); n < len(a.Spent) {
			it.Spent = min(max(0, a.Spent[n]), window.LimitMax)
		}
		it.Shadowed = it.Shadow // an assumption, unless this node has made the reservation
		r.Items = append(r.Items, it)
	}
	if t.bad || t.rest != "" || len(r.Items) == 0 {
		return nil, errText
	}
	if string(r.appendTo(make([]byte, 0, textUsual))) != a.Text {
		return nil, errText // a number has more bytes than it needs
	}
	for i := range r.Items {
		c := r.Items[i].Cell()
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("%w: item %d: %w", errText, i, err)
		}
	}
	return r, nil
}

// text is the rest of a record's text while it is parsed. After an unexpected part it is bad, and returns zeros.
type text struct {
	rest string
	bad  bool
}

func (t *text) take(n uint64) string {
	if n > uint64(len(t.rest)) {
		t.bad, t.rest = true, ""
		return ""
	}
	some := t.rest[:n]
	t.rest = t.rest[n:]
	return some
}

func (t *text) byte() byte {
	if b := t.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (t *text) fixed() uint64 {
	if b := t.take(8); b != "" {
		return binary.BigEndian.Uint64([]byte(b))
	}
	return 0
}

func (t *text) number(most int64) int64 {
	n, size := binary.Uvarint([]byte(t.rest[:min(len(t.rest), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(most) {
		t.bad, t.rest = true, ""
		return 0
	}
	t.rest = t.rest[size:]
	return int64(n)
}

func (t *text) text() string { return t.take(uint64(t.number(1 << 16))) }

// bytes returns about how many bytes of memory a reservation takes: its record, its text, and its holds in this
// process. Changes of the reservation do not change it.
func (r *Record) bytes() (n int) {
	n = 512 + len(r.Holder)
	for i := range r.Items {
		it := &r.Items[i]
		n += 384 + 3*(len(it.Workspace)+len(it.Namespace)+len(it.Identifier))
	}
	return n
}

// of returns the caller and namespace whose share of the node's room the reservation takes.
func (r *Record) of() fair.Of {
	first := &r.Items[0]
	return fair.Of{Caller: r.By, Space: fair.Space{Workspace: first.Workspace, Namespace: first.Namespace}}
}

// room is the memory that a node's reservations take. Its user's mutex must be held.
type room struct {
	bytes   fair.Places // each reservation takes at least bytesMin, so that there are at most Max reservations
	sweptMs int64
}

const bytesMin = BytesMax / Max

func (r *Record) size() int64 { return int64(max(r.bytes(), bytesMin)) }

func (m *room) hasRoom(of fair.Of) bool {
	m.bytes.Most = Max * bytesMin
	return m.bytes.HasRoom(of)
}

func (m *room) take(of fair.Of, size int64) bool {
	m.bytes.Most = Max * bytesMin
	return m.bytes.Take(of, size)
}

// sweeps reports whether a second has passed since it last returned true. Sweeping at each refusal would delay all
// calls.
func (m *room) sweeps(nowMs int64) bool {
	if nowMs-m.sweptMs < time.Second.Milliseconds() && nowMs >= m.sweptMs {
		return false
	}
	m.sweptMs = nowMs
	return true
}

// Same reports whether another record is for the same request, for example a retry. The durations of its keys may
// differ, because an override may have changed them.
func (r *Record) Same(other *Record) bool {
	if len(r.Items) != len(other.Items) || r.Returned != other.Returned {
		return false
	}
	for i := range r.Items {
		a, b := &r.Items[i], &other.Items[i]
		if a.Workspace != b.Workspace || a.Namespace != b.Namespace || a.Identifier != b.Identifier || a.Held != b.Held {
			return false
		}
	}
	return true
}

// merged merges two answers about a reservation, in any order. Shadowed and New are as in r.
func (r *Record) merged(other *Record) *Record {
	spent := other.spent()
	by := Change{Spent: spent[:min(len(spent), len(r.Items))], Settled: r.Settled || other.Settled}
	next := by.apply(r, 0)
	next.EndsMs = max(r.EndsMs, other.EndsMs)
	return next
}

// undone returns a copy of the reservation without any cost.
func (r *Record) undone() *Record {
	settled := Change{Settled: true}
	gone := settled.apply(r, 0)
	for i := range gone.Items {
		gone.Items[i].Spent = 0
	}
	return gone
}

// Turned reports whether the window of an item has ended in whose cell it was to be reserved.
func (r *Record) Turned(nowMs int64) bool {
	return slices.ContainsFunc(r.Items, func(it Item) bool { return window.Sequence(nowMs, it.DurationMs) > it.Sequence })
}

// Open reports whether the reservation can be settled, changed and extended.
func (r *Record) Open(nowMs int64) bool { return !r.Settled && nowMs < r.EndsMs }

// left returns the time until the reservation ends, 0 to leftMax.
func (r *Record) left(nowMs int64) time.Duration {
	if r.EndsMs <= nowMs {
		return 0
	}
	return time.Duration(min(uint64(r.EndsMs)-uint64(nowMs), leftMax)) * time.Millisecond
}

// leftMax is longer than any reservation, in milliseconds.
const leftMax = 366 * 24 * 3600 * 1000

// spent returns the spent cost of each item.
func (r *Record) spent() []int64 {
	all := make([]int64, len(r.Items))
	for i := range r.Items {
		all[i] = r.Items[i].Spent
	}
	return all
}

// owner returns the owner of an item's hold.
func (r *Record) owner(item int) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 9), r.MadeBy), byte(item)))
}

// holds returns the reservation's holds as statements of the given kind. Any node may make them, several times. The
// statements never make an item hold cost that holds none.
func (r *Record) holds(as store.HoldAs, nowMs int64) []store.Hold {
	holds := make([]store.Hold, 0, len(r.Items))
	for i := range r.Items {
		it := &r.Items[i]
		h := store.Hold{Owner: r.owner(i), Cell: it.Cell(), As: as, Limit: it.Limit, Amount: max(it.Held, it.Spent),
			After: max(it.Held, it.Spent), Epoch: it.Epoch}
		if r.Settled || r.Returned {
			h.After = it.Spent
		}
		if it.Shadowed && as > store.HoldNew {
			h.As = store.HoldState
		}
		if as == store.HoldNew {
			h.Before, h.Optional, h.Precise = it.Before(), it.Shadow, it.Precise
		}
		if !r.Settled {
			h.TTL = r.left(nowMs)
		}
		if h.TTL == 0 {
			h.Amount = h.After // totals that are restored do not need the rest
		}
		holds = append(holds, h)
	}
	return holds
}
