package relay

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// A snapshot is due when SnapshotEvery has passed and it costs no more than the rows since the last snapshot, or when
// there are many rows.
func TestWhenASnapshotIsDue(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		what             string
		since, sinceSize int
		lastBytes        int
		after            time.Duration
		want             bool
	}{
		{"nothing was told", 0, 0, 0, time.Hour, false},
		{"the first", 1, 3, 0, time.Minute, true},
		{"too early", 100, 1 << 20, 1 << 10, time.Minute - 1, false},
		{"fewer bytes than it would take", 100, 1<<20 - 1, 1 << 20, time.Hour, false},
		{"as many bytes", 100, 1 << 20, 1 << 20, time.Minute, true},
		{"many short rows", snapshotRowsMax, 3 * snapshotRowsMax, 1 << 20, time.Second, true},
	} {
		h := history{since: c.since, sinceSize: c.sinceSize, lastBytes: c.lastBytes, begunAt: began}
		if got := h.due(began.Add(c.after), time.Minute); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// A relay that takes over continues the history of its predecessor's snapshots.
func TestTheHistoryIsReadFromTheRows(t *testing.T) {
	row := func(sequence, snapshot int64, last bool, bytes int) store.FeedRow {
		return store.FeedRow{Sequence: sequence, Snapshot: snapshot, Last: last, Payload: make([]byte, bytes)}
	}
	now := time.Now()
	rows := []store.FeedRow{row(7, 7, false, 10), row(8, 0, false, 100), row(9, 7, true, 20), row(10, 0, false, 200), row(11, 11, false, 5)}
	h := history{begunAt: now}
	for i := range rows {
		h.read(&rows[i])
	}
	if h.last != 7 || h.lastBytes != 30 || h.since != 3 || h.sinceSize != 305 || h.first != 0 {
		t.Errorf("%+v", h)
	}
	part := row(12, 12, false, 40)
	end := row(13, 12, true, 2)
	if prune := h.stored(&part, nil); prune != 0 || h.first != 12 {
		t.Errorf("after a part: prune %d, %+v", prune, h)
	}
	if prune := h.stored(&end, nil); prune != 7 || h.last != 12 || h.lastBytes != 42 || h.since != 0 || h.first != 0 {
		t.Errorf("after the last part: prune %d, %+v", prune, h)
	}
}
