// Package held keeps reservations by ID.
//
//	held.go          a reservation: its record as text, and its holds
//	change.go        calls about reservations, as changes
//	reservations.go  the reservations at an origin
//	kept.go          the copies that a node keeps, to state them again where the origin has lost them
//	group.go         calls to one group of an origin, and the numbers of their answers
//	heard.go         denials by an earlier answer of the origin
//	crowd.go         callers' shares of the holds of a key
//	stats.go         what is counted for metrics
//
// The origin is the region's, where any node settles a reservation, or one in this process. At an origin a reservation
// is a record, and a hold for each of its items: see store.Reservations. A node that changes a reservation changes the
// record first, and then states in each cell what follows from the record. Any node may state that, in any order and as
// often as it takes. A hold ends by the origin's clock, also if its node has died.
package held

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Record is a reservation. Settled, EndsMs and the spent costs may change; Text has the rest.
type Record struct {
	Items    []Item
	Returned bool // at its end, cost that is not spent is given back
	Holder   string
	MadeMs   int64  // Unix ms, by the origin's clock
	MadeBy   uint64 // drawn for it: names its holds

	EndsMs  int64 // Unix ms
	Settled bool

	By  fair.Caller // who has made it, or changed it, at this node
	New bool        // its ID was drawn: nothing is reserved under it yet
}

// Item is the part of a reservation that is of one key.
type Item struct {
	Workspace, Namespace, Identifier string
	DurationMs                       int64
	Sequence                         int64
	Generation, GenerationBefore     uint16
	Limit                            int64
	Held                             int64 // reserved
	Shadow                           bool  // it passes over its limit, and holds nothing then

	Spent    int64 // as last stated
	Shadowed bool  // it holds nothing, as far as this node knows
}

// Cell is where the item counts.
func (it *Item) Cell() window.Cell { return it.cell(it.Sequence, it.Generation) }

// Before is the cell before.
func (it *Item) Before() window.Cell { return it.cell(it.Sequence-1, it.GenerationBefore) }

func (it *Item) cell(sequence int64, generation uint16) window.Cell {
	return window.Cell{Sequence: sequence, Key: window.Key{Workspace: it.Workspace, Namespace: it.Namespace,
		Identifier: it.Identifier, Duration: time.Duration(it.DurationMs) * time.Millisecond,
		Generation: window.Generation(generation)}}
}

// textVersion begins a record's text.
const textVersion = 1

// Text returns the part of a record that does not change, as an origin stores it.
func (r *Record) Text() string {
	b := binary.BigEndian.AppendUint64([]byte{textVersion}, r.MadeBy)
	b = append(b, bit(r.Returned))
	b = binary.AppendUvarint(b, uint64(r.MadeMs))
	b = appendText(b, r.Holder)
	for i := range r.Items {
		it := &r.Items[i]
		b = append(b, bit(it.Shadow))
		b = appendText(appendText(appendText(b, it.Workspace), it.Namespace), it.Identifier)
		for _, n := range []int64{it.DurationMs, it.Sequence, int64(it.Generation), int64(it.GenerationBefore), it.Limit,
			it.Held} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return string(b)
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
var errText = errors.New("dataplane: the origin has something else than a reservation under this ID")

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
			Limit: t.number(window.LimitMax), Held: t.number(window.LimitMax)}
		if n := len(r.Items); n < len(a.Spent) {
			it.Spent = min(max(0, a.Spent[n]), window.LimitMax)
		}
		it.Shadowed = it.Shadow // this node does not know, unless it has made the reservation
		r.Items = append(r.Items, it)
	}
	if t.bad || t.rest != "" || len(r.Items) == 0 {
		return nil, errText
	}
	if r.Text() != a.Text {
		return nil, errText // numbers of more bytes than they need
	}
	for i := range r.Items {
		c := r.Items[i].Cell()
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("%w: item %d: %w", errText, i, err)
		}
	}
	return r, nil
}

// text is the rest of a record's text while it is read. After an unexpected part it is bad, and has zeros.
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

// bytes is about how much memory a reservation takes: the record, its text, and holds in this process. No change of it
// changes that.
func (r *Record) bytes() (n int) {
	n = 512 + len(r.Holder)
	for i := range r.Items {
		it := &r.Items[i]
		n += 384 + 3*(len(it.Workspace)+len(it.Namespace)+len(it.Identifier))
	}
	return n
}

// of returns whose share of the node's room the reservation takes.
func (r *Record) of() fair.Of {
	first := &r.Items[0]
	return fair.Of{Caller: r.By, Space: fair.Space{Workspace: first.Workspace, Namespace: first.Namespace}}
}

// room is the memory that a node's reservations take. The mutex of its user is held.
type room struct {
	bytes   fair.Places // each reservation takes at least bytesMin, so that there are at most Max
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

// sweeps reports whether a second has passed since it last returned true. To sweep at each refusal would delay all
// calls.
func (m *room) sweeps(nowMs int64) bool {
	if nowMs-m.sweptMs < time.Second.Milliseconds() && nowMs >= m.sweptMs {
		return false
	}
	m.sweptMs = nowMs
	return true
}

// Same is true of a record that asks for the same: a request that was made again. The durations of its keys may
// differ, since an override may have changed them.
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

// Turned reports whether the window of an item is over, in whose cell it was to be reserved.
func (r *Record) Turned(nowMs int64) bool {
	return slices.ContainsFunc(r.Items, func(it Item) bool { return window.Sequence(nowMs, it.DurationMs) > it.Sequence })
}

// Open reports whether the reservation can be settled, changed and extended.
func (r *Record) Open(nowMs int64) bool { return !r.Settled && nowMs < r.EndsMs }

// left is how long it is until it ends, 0 to leftMax.
func (r *Record) left(nowMs int64) time.Duration {
	if r.EndsMs <= nowMs {
		return 0
	}
	return time.Duration(min(uint64(r.EndsMs)-uint64(nowMs), leftMax)) * time.Millisecond
}

// leftMax is more than any reservation lasts, in milliseconds.
const leftMax = 366 * 24 * 3600 * 1000

// spent returns the spent cost of each item.
func (r *Record) spent() []int64 {
	all := make([]int64, len(r.Items))
	for i := range r.Items {
		all[i] = r.Items[i].Spent
	}
	return all
}

// owner names an item's hold.
func (r *Record) owner(item int) string {
	return string(append(binary.BigEndian.AppendUint64(nil, r.MadeBy), byte(item)))
}

// holds returns the reservation's holds as statements of one kind. Any node may make them, as often as it takes. Items
// that hold nothing are not made to hold something.
func (r *Record) holds(as store.HoldAs, nowMs int64) []store.Hold {
	holds := make([]store.Hold, 0, len(r.Items))
	for i := range r.Items {
		it := &r.Items[i]
		h := store.Hold{Owner: r.owner(i), Cell: it.Cell(), As: as, Limit: it.Limit, Amount: max(it.Held, it.Spent),
			After: max(it.Held, it.Spent)}
		if r.Settled || r.Returned {
			h.After = it.Spent
		}
		if it.Shadowed && as > store.HoldNew {
			h.As = store.HoldState
		}
		if as == store.HoldNew {
			h.Before, h.Optional = it.Before(), it.Shadow
		}
		if !r.Settled {
			h.TTL = r.left(nowMs)
		}
		if h.TTL == 0 {
			h.Amount = h.After // totals that are restored need not have the rest
		}
		holds = append(holds, h)
	}
	return holds
}
