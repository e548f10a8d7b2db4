package memstore

import (
	"bytes"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// feedStream has the rows of one stream, in the order of their numbers, which have no gaps.
type feedStream struct {
	rows []store.FeedRow
	held *heldRow // nil if none
}

// heldRow is the next row of a stream, written and not committed.
type heldRow struct {
	row  store.FeedRow
	over chan struct{} // closed when it is committed or rolled back
}

func (s *feedStream) last() int64 {
	if len(s.rows) == 0 {
		return 0
	}
	return s.rows[len(s.rows)-1].Sequence
}

// find is where a row is, -1 if it is not there.
func (s *feedStream) find(sequence int64) int {
	if len(s.rows) == 0 || sequence < s.rows[0].Sequence || sequence > s.last() {
		return -1
	}
	return int(sequence - s.rows[0].Sequence)
}

// wholeFrom is where the last whole snapshot begins, 0 if there is none.
func (s *feedStream) wholeFrom() int {
	for _, row := range slices.Backward(s.rows) {
		if row.Last {
			return max(0, s.find(row.Snapshot))
		}
	}
	return 0
}

// has tells whether a cursor is stored, as far as it is looked at without proof.
func (s *feedStream) has(c store.FeedCursor, prove bool) bool {
	at := s.find(c.Sequence)
	switch {
	case c == store.FeedCursor{}:
		return false
	case at >= 0 && (!prove || s.rows[at].Writer == c.Writer):
		return true
	}
	return !prove && (c.Sequence > s.last() || len(s.rows) > 0 && c.Sequence+1 == s.rows[0].Sequence)
}

// after are the rows after a cursor that is stored, without the payload of snapshots unless parts are asked for, or
// those from the last one on.
func (s *feedStream) after(c store.FeedCursor, prove, parts bool) []store.FeedRow {
	if !s.has(c, prove) {
		return s.rows[s.wholeFrom():]
	}
	later := slices.IndexFunc(s.rows, func(r store.FeedRow) bool { return r.Sequence > c.Sequence })
	if later < 0 {
		return nil
	}
	return withoutSnapshots(s.rows[later:], parts)
}

func withoutSnapshots(rows []store.FeedRow, parts bool) []store.FeedRow {
	rows = slices.Clone(rows)
	for i := range rows {
		if rows[i].Snapshot != 0 && !parts {
			rows[i].Payload = nil
		}
	}
	return rows
}

// lose forgets the rows from a number on, and one that is not committed.
func (s *feedStream) lose(from int64) {
	s.rows = slices.DeleteFunc(s.rows, func(r store.FeedRow) bool { return r.Sequence >= from })
	if s.held != nil && s.held.row.Sequence >= from {
		close(s.held.over)
		s.held = nil
	}
}

func sameRow(a, b store.FeedRow) bool {
	return a.Writer == b.Writer && a.Snapshot == b.Snapshot && a.Last == b.Last && bytes.Equal(a.Payload, b.Payload)
}

func copyRows(rows []store.FeedRow) []store.FeedRow {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Payload = bytes.Clone(rows[i].Payload)
	}
	return rows
}
