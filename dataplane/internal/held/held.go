// Package held keeps reservations by id.
//
//	held.go    a reservation: its text as a note, what settling makes of it, and the words about its holds that follow
//	change.go  calls about reservations, as changes
//	there.go   reservations at a region's origin, where any node settles them
//	here.go    reservations of one process
//	heard.go   what a refusal refuses by itself
//
// At an origin a reservation is a note and a hold for each of its items (see store.Reservations). A node that
// changes it stores the note's next version, and then says what that means for the holds. The words of a version are
// the same whichever node says them, and an origin takes those of the latest, so they may be repeated and come in
// any order; and a hold ends by the origin's clock, also when its node has died.
package held

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Record is a reservation.
type Record struct {
	Items    []Item `json:"items"`
	Returned bool   `json:"returned,omitempty"` // when it ends, what is not spent of it is given back
	Holder   string `json:"holder,omitempty"`
	MadeMs   int64  `json:"made_ms"` // Unix ms, by the origin's clock
	EndsMs   int64  `json:"ends_ms"` // Unix ms
	Settled  bool   `json:"settled,omitempty"`
	MadeBy   uint64 `json:"made_by"` // the attempt
	New      bool   `json:"-"`       // its id was drawn: nothing is reserved under it yet
}

// Item is its part of one key.
type Item struct {
	Workspace        string `json:"w"`
	Namespace        string `json:"n"`
	Identifier       string `json:"i"`
	DurationMs       int64  `json:"d"`
	Sequence         int64  `json:"s"`
	Generation       uint16 `json:"g,omitempty"`
	GenerationBefore uint16 `json:"b,omitempty"`
	Limit            int64  `json:"l"`
	Held             int64  `json:"h"`                  // reserved
	Spent            int64  `json:"p"`                  // as last said
	Shadowed         bool   `json:"shadowed,omitempty"` // passed over its limit, and counts nothing
}

func (it *Item) names() []*string { return []*string{&it.Workspace, &it.Namespace, &it.Identifier} }

// Cell is where the item counts.
func (it *Item) Cell() window.Cell { return it.cell(it.Sequence, it.Generation) }

// Before is the cell before.
func (it *Item) Before() window.Cell { return it.cell(it.Sequence-1, it.GenerationBefore) }

func (it *Item) cell(sequence int64, generation uint16) window.Cell {
	return window.Cell{Sequence: sequence, Key: window.Key{Workspace: it.Workspace, Namespace: it.Namespace,
		Identifier: it.Identifier, Duration: time.Duration(it.DurationMs) * time.Millisecond,
		Generation: window.Generation(generation)}}
}

// Text is a record as a note has it, its names in base64: they are any bytes, and JSON would replace some of them, and
// write others as six.
func (r *Record) Text() string {
	written := *r
	written.Items = slices.Clone(r.Items)
	for i := range written.Items {
		for _, name := range written.Items[i].names() {
			*name = base64.StdEncoding.EncodeToString([]byte(*name))
		}
	}
	text, err := json.Marshal(&written)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return string(text)
}

// Parse reads what Text has written.
func Parse(text string) (*Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("a reservation's note: %w", err)
	}
	for i := range r.Items {
		it := &r.Items[i]
		for _, name := range it.names() {
			bytes, err := base64.StdEncoding.DecodeString(*name)
			if err != nil {
				return nil, fmt.Errorf("a reservation's note: item %d: %w", i, err)
			}
			*name = string(bytes)
		}
		cell := it.Cell()
		if err := cell.Validate(); err != nil {
			return nil, fmt.Errorf("a reservation's note: item %d: %w", i, err)
		}
		if bad := min(it.Limit, it.Held, it.Spent) < 0 || max(it.Limit, it.Held, it.Spent) > window.LimitMax; bad {
			return nil, fmt.Errorf("a reservation's note: item %d has limit %d, held %d and spent %d", i, it.Limit, it.Held,
				it.Spent)
		}
	}
	return &r, nil
}

// bytes is what a node keeps of a reservation, about: the record, its text, what it has counted and its answer. No
// change of it changes that.
func (r *Record) bytes() (n int) {
	n = 512 + len(r.Holder)
	for i := range r.Items {
		n += 384
		for _, name := range r.Items[i].names() {
			n += 3 * len(*name)
		}
	}
	return n
}

// room is what reservations take of a node's.
type room struct {
	bytes   int
	sweptMs int64
}

// full is true where there are as many as there may be.
func (m *room) full(n int) bool { return n >= Max || m.bytes >= BytesMax }

// sweeps is true each second: to look through all of them whenever one is refused would hold up everybody.
func (m *room) sweeps(nowMs int64) bool {
	if nowMs-m.sweptMs < time.Second.Milliseconds() && nowMs >= m.sweptMs {
		return false
	}
	m.sweptMs = nowMs
	return true
}

// Same is true of a record that asks for the same: a request that was made again.
func (r *Record) Same(other *Record) bool {
	if len(r.Items) != len(other.Items) || r.Returned != other.Returned {
		return false
	}
	for i := range r.Items {
		a, b := &r.Items[i], &other.Items[i]
		if a.Workspace != b.Workspace || a.Namespace != b.Namespace || a.Identifier != b.Identifier ||
			a.DurationMs != b.DurationMs || a.Held != b.Held {
			return false
		}
	}
	return true
}

// unlike are those of words, one for each item of a request that was made again, which ask for holds that the
// reservation does not have: it was made in another cell, or passes over a limit.
func (r *Record) unlike(words []store.Hold) (some []store.Hold) {
	for i := range words {
		if it := &r.Items[i]; it.Shadowed || it.Cell() != words[i].Cell {
			some = append(some, words[i])
		}
	}
	return some
}

// Open is true while it can be settled, extended and told of.
func (r *Record) Open(nowMs int64) bool { return !r.Settled && nowMs < r.EndsMs }

// left is how many milliseconds are left of it, 0 to leftMax.
func (r *Record) left(nowMs int64) int64 {
	if r.EndsMs <= nowMs {
		return 0
	}
	return int64(min(uint64(r.EndsMs)-uint64(nowMs), leftMax))
}

// leftMax is more than any reservation lasts.
const leftMax = 366 * 24 * 3600 * 1000

// Spend takes what was spent so far, an amount for each item; with last set there is no more to come. What was said to
// be spent is never less than what was said before. It returns what differs, nil if that is nothing.
func (r *Record) Spend(costs []int64, last bool) *Record {
	next := *r
	next.Items = append([]Item(nil), r.Items...)
	next.Settled = last
	changed := last
	for i := range next.Items {
		it := &next.Items[i]
		if it.Spent < costs[i] {
			it.Spent, changed = costs[i], true
		}
	}
	if !changed {
		return nil
	}
	return &next
}

// holdID names an item's hold: a reservation may have several of one key.
func holdID(id string, item int) string { return id + "/" + strconv.Itoa(item) }

// HoldIDBytes is how much longer than a reservation's the ids of its holds are.
const HoldIDBytes = 4

// Words are what a version of its note says of its holds, all of it: any node may say them, as
// often as it takes. Those of version 1 ask for the holds.
func (r *Record) Words(id string, version, nowMs int64) []store.Hold {
	words := make([]store.Hold, 0, len(r.Items))
	for i := range r.Items {
		it := &r.Items[i]
		if it.Shadowed {
			continue
		}
		w := store.Hold{ID: holdID(id, i), Cell: it.Cell(), Before: it.Before(), Step: version - 1, Attempt: r.MadeBy,
			Limit: it.Limit, Cost: max(it.Held, it.Spent)}
		switch {
		case r.Settled:
			w.Cost, w.After = it.Spent, it.Spent
		case r.Returned:
			w.After = it.Spent
		default:
			w.After = w.Cost
		}
		if !r.Settled {
			w.TTL = time.Duration(r.left(nowMs)) * time.Millisecond
		}
		words = append(words, w)
	}
	return words
}
