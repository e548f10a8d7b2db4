package counttest_test

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
)

func TestFeedSubject(t *testing.T) {
	fault := os.Getenv(suite.FaultVariable)
	counttest.TestFeed(t, func(testing.TB) counttest.Feed {
		s := &feedSubject{
			fault: fault, rows: make(map[store.Stream][]store.FeedRow),
			held: make(map[store.Stream]chan struct{}), lost: make(map[store.Stream]int64),
		}
		return counttest.Feed{Feed: s, Hold: s.hold, Lose: s.lose}
	})
}

// feedSubject is a store.Feed with a single deliberate fault.
type feedSubject struct {
	fault string
	mu    sync.Mutex
	rows  map[store.Stream][]store.FeedRow
	held  map[store.Stream]chan struct{} // closed at the end of the transaction
	lost  map[store.Stream]int64         // the last number before a loss

	looked int // by writers that found their number free
	both   chan struct{}
}

func (s *feedSubject) stream(name store.Stream) store.Stream {
	switch s.fault {
	case "shards are one":
		name.Shard = 0
	case "regions ignore letter case":
		name.Region = strings.ToLower(name.Region)
	}
	return name
}

func (s *feedSubject) ended(ctx context.Context) error {
	if s.fault == "never looks at ctx" {
		return nil
	}
	return ctx.Err()
}

func (s *feedSubject) Append(ctx context.Context, row store.FeedRow) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	if err := row.Validate(); err != nil && s.fault != "takes any row" {
		return err
	}
	row.Stream = s.stream(row.Stream)
	if err := s.free(ctx, row.Stream); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(row)
}

// free waits until no row of the stream is held.
func (s *feedSubject) free(ctx context.Context, name store.Stream) error {
	s.mu.Lock()
	over := s.held[name]
	s.mu.Unlock()
	if over == nil || s.fault == "does not wait for a held row" {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return nil
	}
}

func (s *feedSubject) store(row store.FeedRow) error {
	rows := s.rows[row.Stream]
	if at := slices.IndexFunc(rows, func(r store.FeedRow) bool { return r.Sequence == row.Sequence }); at >= 0 {
		if s.same(rows[at], row) {
			return nil
		}
		if s.fault != "the last writer wins" {
			return store.ErrTaken
		}
		rows[at] = row
		return nil
	}
	if s.fault == "looks and then writes" {
		s.meet()
		rows = s.rows[row.Stream]
	} else if row.Sequence != s.next(row.Stream) && s.fault != "takes gaps" {
		return store.ErrTaken
	}
	if s.fault != "keeps a reference to the payload" {
		row.Payload = bytes.Clone(row.Payload)
	}
	if s.fault == "cuts payloads at 64 KiB" {
		row.Payload = row.Payload[:min(len(row.Payload), 64<<10)]
	}
	row.WrittenAt = time.Now()
	s.rows[row.Stream] = append(rows, row)
	return nil
}

// meet lets the first two writers that have looked go on together. It must be called under mu, which it releases
// meanwhile.
func (s *feedSubject) meet() {
	switch s.looked++; s.looked {
	case 1:
		s.both = make(chan struct{})
		s.mu.Unlock()
		<-s.both
		s.mu.Lock()
	case 2:
		close(s.both)
	}
}

func (s *feedSubject) same(a, b store.FeedRow) bool {
	switch s.fault {
	case "a repeated row is taken":
		return false
	case "compares writers alone":
		return a.Writer == b.Writer
	case "compares payloads alone":
		return bytes.Equal(a.Payload, b.Payload)
	}
	return a.Writer == b.Writer && bytes.Equal(a.Payload, b.Payload) && a.Snapshot == b.Snapshot && a.Last == b.Last
}

func (s *feedSubject) next(name store.Stream) int64 {
	last := int64(0)
	if rows := s.rows[name]; len(rows) > 0 {
		last = rows[len(rows)-1].Sequence
	}
	if s.fault == "goes on from what was lost" {
		last = max(last, s.lost[name])
	}
	return last + 1
}

func (s *feedSubject) hold(t testing.TB, row store.FeedRow) (commit, rollback func()) {
	over := make(chan struct{})
	s.held[row.Stream] = over
	if s.fault == "shows what is not committed" {
		_ = s.store(row) // it is the next row
	}
	end := func(stored bool) func() {
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			close(over)
			delete(s.held, row.Stream)
			if (stored || s.fault == "a killed writer has its row") && s.store(row) != nil {
				t.Error("the held row is not the next one")
			}
		}
	}
	return end(true), end(false)
}

func (s *feedSubject) lose(_ testing.TB, name store.Stream, from int64) {
	s.lost[name] = s.next(name) - 1
	s.rows[name] = slices.DeleteFunc(s.rows[name], func(r store.FeedRow) bool { return r.Sequence >= from })
}

func (s *feedSubject) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	page := store.FeedPage{Now: time.Now()}
	if s.fault == "has no clock" {
		page.Now = time.Time{}
	}
	if err := s.ended(ctx); err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []store.FeedRow
	for name, rows := range s.rows {
		if name.Region == q.Region && s.fault != "reads its own region" || s.overlooked(name, q.After) {
			continue
		}
		if len(rows) > 0 && s.isBeyond(name, q) {
			page.Full = true
			continue
		}
		found = append(found, s.after(rows, q.After[name], q)...)
	}
	page.Gone = s.gone(q)
	if s.fault != "rows in any order" {
		slices.SortFunc(found, func(a, b store.FeedRow) int {
			return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Sequence, b.Sequence))
		})
	}
	page.Rows, page.More = s.fitting(found, q.MaxBytes)
	return page, nil
}

// overlooked reports whether a stream is new to the reader, in a region that is not.
func (s *feedSubject) overlooked(name store.Stream, after map[store.Stream]store.FeedCursor) bool {
	if _, known := after[name]; known || s.fault != "overlooks new shards" {
		return false
	}
	for other := range after {
		if other.Region == name.Region {
			return true
		}
	}
	return false
}

// isBeyond: StreamsMax has no room for a stream.
func (s *feedSubject) isBeyond(name store.Stream, q store.FeedQuery) bool {
	if _, known := q.After[name]; known || q.StreamsMax == 0 || s.fault == "reads all streams" {
		return false
	}
	before := len(q.After)
	for other, rows := range s.rows {
		_, known := q.After[other]
		isBefore := cmp.Or(cmp.Compare(other.Region, name.Region), cmp.Compare(other.Shard, name.Shard)) < 0
		if !known && isBefore && len(rows) > 0 && other.Region != q.Region {
			before++
		}
	}
	return before >= q.StreamsMax
}

func (s *feedSubject) fitting(rows []store.FeedRow, maxBytes int) (fit []store.FeedRow, more bool) {
	bytesSum := 0
	for _, row := range rows {
		full := bytesSum >= maxBytes && (len(fit) > 0 || s.fault == "has no row that is too large")
		if full && s.fault != "has all rows at once" {
			return fit, s.fault != "never has more"
		}
		if bytesSum += len(row.Payload); s.fault != "counts payload alone" {
			bytesSum += store.FeedRowBytes
		}
		row.Payload = bytes.Clone(row.Payload)
		fit = append(fit, row)
	}
	return fit, false
}

// gone returns the streams of other regions that have a cursor and no row.
func (s *feedSubject) gone(q store.FeedQuery) (gone []store.Stream) {
	for name, c := range q.After {
		if q.Prove && c.Sequence > 0 && name.Region != q.Region && len(s.rows[name]) == 0 && s.fault != "never says what is gone" {
			gone = append(gone, name)
		}
	}
	return gone
}

// after returns the rows after a cursor, without the payload of snapshots if the cursor is stored.
func (s *feedSubject) after(rows []store.FeedRow, c store.FeedCursor, q store.FeedQuery) []store.FeedRow {
	next := slices.IndexFunc(rows, func(r store.FeedRow) bool { return r.Sequence > c.Sequence })
	unproved := !q.Prove && c.Sequence > 0 && s.fault != "always looks for cursors"
	switch {
	case unproved && next < 0:
		return nil
	case unproved && (rows[next].Sequence == c.Sequence+1 || s.fault == "overlooks gaps"):
		return s.follow(rows[next:], q.Parts)
	case !unproved && s.isStored(rows, c):
		return s.follow(rows[s.from(rows, c):], q.Parts)
	}
	return rows[s.from(rows, c):]
}

func (s *feedSubject) isStored(rows []store.FeedRow, c store.FeedCursor) bool {
	return slices.ContainsFunc(rows, func(r store.FeedRow) bool { return r.Cursor() == c })
}

func (s *feedSubject) follow(rows []store.FeedRow, parts bool) []store.FeedRow {
	rows = slices.Clone(rows)
	for i := range rows {
		wanted := parts && s.fault != "never has parts"
		if rows[i].Snapshot != 0 && !wanted && s.fault != "repeats snapshots" {
			rows[i].Payload = nil
		}
	}
	return rows
}

// from returns the place at which the rows after a cursor begin.
func (s *feedSubject) from(rows []store.FeedRow, c store.FeedCursor) int {
	at := slices.IndexFunc(rows, func(r store.FeedRow) bool {
		return r.Sequence == c.Sequence && (r.Writer == c.Writer || s.fault == "trusts the cursor's number")
	})
	switch {
	case c.Sequence > 0 && at < 0 && s.fault == "waits for numbers that were lost":
		return len(rows)
	case at >= 0 && s.fault == "reads from the cursor on":
		return at
	case at >= 0:
		return at + 1
	}
	return s.whole(rows)
}

func (s *feedSubject) whole(rows []store.FeedRow) int {
	for _, row := range slices.Backward(rows) {
		last := row.Last || row.Snapshot > 0 && s.fault == "begins with a part of a snapshot"
		if last && s.fault != "begins with the first row" {
			return max(0, slices.IndexFunc(rows, func(r store.FeedRow) bool { return r.Sequence == row.Snapshot }))
		}
	}
	return 0
}

func (s *feedSubject) Own(ctx context.Context, name store.Stream, yield func(store.FeedRow)) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.rows[s.stream(name)]
	if s.fault != "own rows are all" {
		rows = rows[s.whole(rows):]
	}
	for _, row := range rows {
		yield(row)
	}
	return nil
}

func (s *feedSubject) Prune(ctx context.Context, name store.Stream, sequence int64, max int) (deleted int, err error) {
	if err := s.ended(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range slices.Collect(maps.Keys(s.rows)) {
		if other == name || s.fault == "prunes the region" && other.Region == name.Region {
			deleted += s.prune(other, sequence, max)
		}
	}
	return deleted, nil
}

func (s *feedSubject) prune(name store.Stream, sequence int64, most int) (deleted int) {
	rows := s.rows[name]
	bound := len(rows) - 1
	if s.fault == "prunes the last row" {
		bound++
	}
	for deleted < bound && (deleted < most || s.fault == "prunes all at once") && rows[deleted].Sequence < sequence {
		deleted++
	}
	if s.fault == "prunes the highest" {
		s.rows[name] = rows[:len(rows)-deleted]
		return deleted
	}
	s.rows[name] = rows[deleted:]
	return deleted
}

// feedFaults are deliberate faults of a Feed: see countsFaults.
var feedFaults = map[string]string{
	"takes gaps":                       "Append/numbers_have_no_gaps",
	"the last writer wins":             "Append/a_number_is_taken",
	"compares writers alone":           "Append/a_number_is_taken",
	"compares payloads alone":          "Append/a_number_is_taken",
	"a repeated row is taken":          "Append/its_writer_may_append_a_row_again",
	"looks and then writes":            "Append/one_of_many_writers",
	"does not wait for a held row":     "Append/waits_for_a_row",
	"a killed writer has its row":      "Append/a_writer_that_is_killed",
	"takes any row":                    "Append/ErrRefused",
	"keeps a reference to the payload": "Append/keeps_no_reference",
	"goes on from what was lost":       "Append/goes_on_where",
	"reads its own region":             "Read/has_the_rows_of_other_regions",
	"rows in any order":                "Read/has_the_rows_of_other_regions",
	"reads from the cursor on":         "Read/has_what_came_after",
	"begins with the first row":        "Read/begins_with_the_last_whole_snapshot",
	"begins with a part of a snapshot": "Read/begins_with_the_last_whole_snapshot",
	"trusts the cursor's number":       "Read/begins_with_the_last_whole_snapshot_where",
	"waits for numbers that were lost": "Read/begins_with_the_last_whole_snapshot_where",
	"never says what is gone":          "Read/begins_with_the_last_whole_snapshot_where",
	"always looks for cursors":         "Read/begins_with_the_last_whole_snapshot_where",
	"overlooks gaps":                   "Read/without_proof",
	"never has parts":                  "Read/has_parts_of_snapshots_where_they_are_asked_for",
	"repeats snapshots":                "Read/begins_with_the_last_whole_snapshot",
	"overlooks new shards":             "Read/finds_new_streams",
	"reads all streams":                "Read/has_no_more_streams",
	"has all rows at once":             "Read/has_about_maxBytes",
	"never has more":                   "Read/has_about_maxBytes",
	"has no row that is too large":     "Read/has_at_least_one_row",
	"counts payload alone":             "Read/counts_rows",
	"shows what is not committed":      "Read/skips_no_row",
	"cuts payloads at 64 KiB":          "Read/keeps_rows_whole",
	"has no clock":                     "Read/has_the_store's_clock",
	"own rows are all":                 "Own/has_the_stream",
	"prunes all at once":               "Prune/deletes_the_lowest",
	"prunes the highest":               "Prune/deletes_the_lowest",
	"prunes the last row":              "Prune/never_deletes",
	"prunes the region":                "Prune/touches_no_other",
	"shards are one":                   "all_methods/tell_streams_apart",
	"regions ignore letter case":       "all_methods/tell_streams_apart",
	"never looks at ctx":               "all_methods/obey_ctx",
}
