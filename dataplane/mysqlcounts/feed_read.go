package mysqlcounts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Read implements store.Feed.
//
// A single statement reads the streams with a cursor and looks for streams without a cursor. If a cursor is not stored
// any more, Read repeats the statement without that cursor. A second statement then reads the streams without a cursor,
// from the numbers that the first statement has found.
func (n Feed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	err := store.Stream{Region: q.Region}.Validate()
	var page store.FeedPage
	if err == nil {
		err = n.c.checkSession(ctx)
	}
	if err == nil {
		page, err = n.read(ctx, q)
	}
	if err != nil {
		return store.FeedPage{}, fmt.Errorf("read the change feed as %q: %w", q.Region, err)
	}
	return page, nil
}

func (n Feed) read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	q.MaxBytes = max(q.MaxBytes, 1)
	q.After = maps.Clone(q.After)
	maps.DeleteFunc(q.After, func(s store.Stream, c store.FeedCursor) bool {
		return s.Region == q.Region || c == store.FeedCursor{}
	})
	got, lost, err := n.askAfter(ctx, q)
	if err != nil {
		return store.FeedPage{}, err
	}
	page := store.FeedPage{Now: got.now, Gone: got.gone(lost), Settings: got.settings}
	if room := roomFor(q); len(got.heads) > room {
		got.heads, page.Full = got.heads[:room], true
	}
	page.Rows, page.More, err = n.fill(ctx, got, q.MaxBytes)
	if err != nil || len(got.heads) == 0 || page.More {
		return page, err
	}
	if q.MaxBytes -= bytesOf(page.Rows); q.MaxBytes <= 0 && len(page.Rows) > 0 {
		page.More = true
		return page, nil
	}
	asked := askFor(got.heads, max(q.MaxBytes, 1))
	asked.snapshots = true
	rest, err := n.ask(ctx, asked)
	if err == nil && rest.beginLate(got.heads) {
		err = errFeedGone
	}
	if err != nil {
		return page, err
	}
	rows, more, err := n.fill(ctx, rest, q.MaxBytes)
	page.Rows, page.More = append(page.Rows, rows...), more
	slices.SortFunc(page.Rows, compareFeed)
	return page, err
}

// askAfter reads the rows after the cursors, until all remaining cursors are stored. lost are the streams whose cursors
// are not stored.
func (n Feed) askAfter(ctx context.Context, q store.FeedQuery) (got feedAnswer, lost []store.Stream, err error) {
	for {
		if got, err = n.ask(ctx, askAfter(q)); err != nil {
			return got, nil, err
		}
		found := got.lost(q)
		if len(found) == 0 {
			return got, lost, nil
		}
		for _, s := range found {
			delete(q.After, s)
		}
		lost = append(lost, found...) // repeat the statement, which may find that rows of other cursors are gone
	}
}

// feedAnswer is the result of a feedQuery.
type feedAnswer struct {
	rows  []foundRow  // sorted
	heads []feedRange // streams without a cursor, and the number to begin at; sorted
	full  bool        // there may be more rows
	now   time.Time

	settings int64 // version of the settings
}

// foundRow is a row, possibly without its payload.
type foundRow struct {
	store.FeedRow
	bytes   int // size of the payload that the reader should receive
	leftOut bool
}

func (n Feed) ask(ctx context.Context, q feedQuery) (a feedAnswer, err error) {
	query, args := q.statement()
	err = n.c.each(ctx, func(rows *sql.Rows) error {
		var kind int
		var row foundRow
		var last int64 // an int64, because another program may have written any number, and that must hide no other row
		var writtenAtMs int64
		if err := rows.Scan(&kind, &row.Region, &row.Shard, &row.Sequence, &row.Writer, &row.Snapshot, &last, &row.bytes,
			&writtenAtMs, &row.Payload); err != nil {
			return err
		}
		row.Last, row.WrittenAt = last != 0, time.UnixMilli(writtenAtMs)
		switch kind {
		case feedKindClock:
			a.now, a.settings = row.WrittenAt, row.Sequence
		case feedKindHead:
			a.heads = append(a.heads, feedRange{row.Stream, row.Snapshot})
		default:
			if row.Snapshot != 0 && !q.snapshots {
				row.bytes = 0
			}
			row.leftOut = row.bytes > q.payloadMax
			a.rows = append(a.rows, row)
		}
		return nil
	}, query, args...)
	a.full = len(a.rows) == q.rowsMax
	slices.SortFunc(a.rows, func(a, b foundRow) int { return compareFeed(a.FeedRow, b.FeedRow) })
	slices.SortFunc(a.heads, compareRanges)
	return a, err
}

// Kinds of rows in the result of FeedRead. The third kind is 1, the rows of the ranges.
const (
	feedKindClock = 0
	feedKindHead  = 2
)

// lost returns the streams whose cursor is not stored: their first row is not the row that follows a stored cursor.
// With Prove, the first row must be the cursor's own row, and lost removes it from the rows. If the answer is full,
// streams after its last row are not checked.
func (a *feedAnswer) lost(q store.FeedQuery) (lost []store.Stream) {
	first := make(map[store.Stream]store.FeedCursor, len(q.After))
	a.rows = slices.DeleteFunc(a.rows, func(row foundRow) bool {
		if _, seen := first[row.Stream]; seen {
			return false
		}
		first[row.Stream] = row.Cursor()
		return q.Prove
	})
	end := a.end()
	for s, cursor := range q.After {
		found, ok := first[s]
		switch {
		case !ok && q.Prove && compareStreams(s, end) <= 0,
			ok && q.Prove && found != cursor,
			ok && !q.Prove && found.Sequence != cursor.Sequence+1:
			lost = append(lost, s)
		}
	}
	return lost
}

// end returns the last stream of which the answer has rows, if it is full. Otherwise it returns a stream after all
// others.
func (a *feedAnswer) end() store.Stream {
	if a.full && len(a.rows) > 0 {
		return a.rows[len(a.rows)-1].Stream
	}
	return store.Stream{Region: regionEnd}
}

// gone returns the lost streams without a stored row.
func (a *feedAnswer) gone(lost []store.Stream) []store.Stream {
	return slices.DeleteFunc(lost, func(s store.Stream) bool {
		return slices.ContainsFunc(a.heads, func(head feedRange) bool { return head.Stream == s })
	})
}

// beginLate reports whether the rows of a stream do not begin with the snapshot that was found for it. The snapshot's
// first parts are gone then, and a reader of the later parts would not read the next snapshot.
func (a *feedAnswer) beginLate(heads []feedRange) bool {
	return slices.ContainsFunc(heads, func(head feedRange) bool {
		first, found := slices.BinarySearchFunc(a.rows, head.Stream, func(row foundRow, s store.Stream) int {
			return compareStreams(row.Stream, s)
		})
		return head.from > 0 && found && a.rows[first].Sequence != head.from
	})
}

// fill returns the rows that fit into maxBytes, at least one, and adds the payloads that were left out.
func (n Feed) fill(ctx context.Context, a feedAnswer, maxBytes int) (rows []store.FeedRow, more bool, err error) {
	sum := 0
	var long []*store.FeedRow
	for i := range a.rows {
		if i > 0 && sum >= maxBytes {
			a.rows, a.full = a.rows[:i], true
			break
		}
		if sum += a.rows[i].bytes + store.FeedRowBytes; a.rows[i].leftOut {
			long = append(long, &a.rows[i].FeedRow)
		}
	}
	if err := n.readPayloads(ctx, long); err != nil {
		return nil, false, err
	}
	for i := range a.rows {
		rows = append(rows, a.rows[i].FeedRow)
	}
	return rows, a.full, nil
}

// errFeedGone is returned by a read whose rows were deleted meanwhile. The next read begins at a snapshot.
var errFeedGone = errors.New("rows were deleted while they were read")

// readPayloads reads the payloads that were left out.
func (n Feed) readPayloads(ctx context.Context, long []*store.FeedRow) error {
	if len(long) == 0 {
		return nil
	}
	query, args := payloadsStatement(long)
	found := 0
	err := n.c.each(ctx, func(rows *sql.Rows) error {
		var row store.FeedRow
		if err := rows.Scan(&row.Region, &row.Shard, &row.Sequence, &row.Writer, &row.Payload); err != nil {
			return err
		}
		for _, want := range long {
			if want.Stream == row.Stream && want.Cursor() == row.Cursor() {
				want.Payload = row.Payload
				found++
			}
		}
		return nil
	}, query, args...)
	if err != nil || found == len(long) {
		return err
	}
	return errFeedGone
}

func bytesOf(rows []store.FeedRow) (sum int) {
	for _, row := range rows {
		sum += len(row.Payload) + store.FeedRowBytes
	}
	return sum
}

func compareFeed(a, b store.FeedRow) int {
	return cmp.Or(compareStreams(a.Stream, b.Stream), cmp.Compare(a.Sequence, b.Sequence))
}

func compareStreams(a, b store.Stream) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard))
}
