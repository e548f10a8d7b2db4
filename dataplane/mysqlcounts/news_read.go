package mysqlcounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Read implements store.News.
//
// Known streams and the look for unknown ones are one statement, which ends with the bytes that fit. It has the row of
// each cursor too, without its payload. Where that row is missing, or another one, the stream is asked for as an
// unknown one; and streams that turn out to be unknown are read from the number that the first statement has found.
func (n News) Read(
	ctx context.Context, region string, after map[store.Stream]store.NewsCursor, maxBytes int,
) (store.NewsPage, error) {
	err := store.Stream{Region: region}.Validate()
	var page store.NewsPage
	if err == nil {
		page, err = n.read(ctx, region, after, max(maxBytes, 1))
	}
	if err != nil {
		return store.NewsPage{}, fmt.Errorf("read news as %q: %w", region, err)
	}
	return page, nil
}

func (n News) read(
	ctx context.Context, region string, after map[store.Stream]store.NewsCursor, maxBytes int,
) (store.NewsPage, error) {
	known := maps.Clone(after)
	maps.DeleteFunc(known, func(s store.Stream, c store.NewsCursor) bool {
		return s.Region == region || c == store.NewsCursor{}
	})
	got, err := n.ask(ctx, askAfter(region, known, maxBytes))
	for err == nil {
		lost := got.dropCursors(known)
		if len(lost) == 0 {
			break
		}
		for _, s := range lost {
			delete(known, s)
		}
		got, err = n.ask(ctx, askAfter(region, known, maxBytes)) // in which the rows of other cursors may be gone
	}
	page := store.NewsPage{Rows: got.rows, More: got.more(), Now: got.now}
	if err != nil || len(got.heads) == 0 || page.More {
		return page, err
	}
	if maxBytes -= bytesOf(page.Rows); maxBytes <= 0 && len(page.Rows) > 0 {
		page.More = true
		return page, nil
	}
	rest, err := n.ask(ctx, newsQuestion{ranges: got.heads, maxBytes: max(maxBytes, 1)})
	page.Rows, page.More = append(page.Rows, rest.rows...), rest.more()
	slices.SortFunc(page.Rows, compareNews)
	return page, err
}

// newsAnswer is what came back for a newsQuestion.
type newsAnswer struct {
	rows   []store.NewsRow // sorted
	heads  []newsRange     // unknown streams, and where to begin to read; sorted
	behind int64           // the bytes of all rows in the ranges, sent or not
	now    time.Time
}

func (n News) ask(ctx context.Context, q newsQuestion) (a newsAnswer, err error) {
	query, args := q.statement()
	rows, err := n.c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var kind int
		var row store.NewsRow
		var behind, writtenAtMs int64
		if err := rows.Scan(&kind, &row.Region, &row.Shard, &row.Sequence, &row.Writer, &row.Snapshot, &row.Last, &behind,
			&writtenAtMs, &row.Payload); err != nil {
			return a, err
		}
		row.WrittenAt = time.UnixMilli(writtenAtMs)
		switch kind {
		case newsKindClock:
			a.now = row.WrittenAt
		case newsKindHead:
			a.heads = append(a.heads, newsRange{row.Stream, row.Snapshot})
		default:
			a.rows, a.behind = append(a.rows, row), behind
		}
	}
	slices.SortFunc(a.rows, compareNews)
	slices.SortFunc(a.heads, compareRanges)
	return a, rows.Err()
}

// The kinds of rows of the statement NewsRead; the third is 1, rows of the ranges.
const (
	newsKindClock = 0
	newsKindHead  = 2
)

// dropCursors removes the first row of each stream from the rows, and returns the streams in which it is not the row
// of the cursor.
func (a *newsAnswer) dropCursors(known map[store.Stream]store.NewsCursor) (lost []store.Stream) {
	first := make(map[store.Stream]store.NewsCursor, len(known))
	a.rows = slices.DeleteFunc(a.rows, func(row store.NewsRow) bool {
		if _, seen := first[row.Stream]; seen {
			return false
		}
		first[row.Stream] = row.Cursor()
		return true
	})
	for s, cursor := range known {
		if first[s] != cursor {
			lost = append(lost, s)
		}
	}
	return lost
}

// more reports whether maxBytes left rows out.
func (a *newsAnswer) more() bool { return int64(bytesOf(a.rows)) < a.behind }

func bytesOf(rows []store.NewsRow) (sum int) {
	for _, row := range rows {
		sum += len(row.Payload) + store.NewsRowBytes
	}
	return sum
}

func compareNews(a, b store.NewsRow) int {
	return cmp.Or(compareStreams(a.Stream, b.Stream), cmp.Compare(a.Sequence, b.Sequence))
}

func compareStreams(a, b store.Stream) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard))
}
