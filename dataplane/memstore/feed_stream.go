package memstore

import (
	"bytes"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// feedStream holds the rows of a stream, in the order of their numbers, which have no gaps.
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

// find returns the place of a row, or -1.
func (s *feedStream) find(sequence int64) int {
	if len(s.rows) == 0 || sequence < s.rows[0].Sequence || sequence > s.last() {
		return -1
	}
	return int(sequence - s.rows[0].Sequence)
}

// wholeFrom returns the place at which the last whole snapshot begins, or 0 if there is none.
func (s *feedStream) wholeFrom() int {
	for _, row := range slices.Backward(s.rows) {
		if row.Last {
			return max(0, s.find(row.Snapshot))
		}
	}
	return 0
}

// has reports whether a cursor's row is stored. With prove, the writer must match too. Without prove, a cursor beyond
// the last row or directly before the first row also counts as stored.
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

// after returns the rows after a stored cursor, with the payload of snapshots only if parts is set. For any other
// cursor it returns the rows from the last whole snapshot on.
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

// lose drops the rows from a number on, and an uncommitted row.
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
