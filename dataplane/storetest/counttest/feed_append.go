package counttest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

func wantTaken(t testing.TB, n Feed, row store.FeedRow) {
	t.Helper()
	if err := n.Append(t.Context(), row); !errors.Is(err, store.ErrTaken) {
		t.Errorf("append %d to %v: %v, want ErrTaken", row.Sequence, row.Stream, err)
	}
}

func wantRows(t testing.TB, n Feed, rows ...store.FeedRow) {
	t.Helper()
	wantFeed(t, "stored", readFeed(t, n, "none", nil, plenty).Rows, rows...)
}

func testAppendNumbers(t *testing.T, n Feed) {
	wantTaken(t, n, feed(us0, 2))
	appendRows(t, n, feed(us0, 1))
	wantTaken(t, n, feed(us0, 3))
	appendRows(t, n, feed(us0, 2))
	wantRows(t, n, feed(us0, 1), feed(us0, 2))
}

func testAppendTaken(t *testing.T, n Feed) {
	appendRows(t, n, part(us0, 1, 1, true), feed(us0, 2))
	for name, change := range map[string]func(*store.FeedRow){
		"another writer":     func(r *store.FeedRow) { r.Writer++ },
		"another payload":    func(r *store.FeedRow) { r.Payload = append(r.Payload, ' ') },
		"another snapshot":   func(r *store.FeedRow) { r.Snapshot = 0; r.Last = false },
		"not the last part":  func(r *store.FeedRow) { r.Last = false },
		"a payload's letter": func(r *store.FeedRow) { r.Payload = []byte(strings.ToUpper(string(r.Payload))) },
	} {
		row := part(us0, 1, 1, true)
		if change(&row); !errors.Is(n.Append(t.Context(), row), store.ErrTaken) {
			t.Errorf("%s: not ErrTaken", name)
		}
	}
	wantRows(t, n, part(us0, 1, 1, true), feed(us0, 2))
}

func testAppendAgain(t *testing.T, n Feed) {
	for last := range int64(3) {
		appendRows(t, n, feed(us0, last+1))
		appendRows(t, n, upTo(us0, last+1)...)
	}
	wantRows(t, n, upTo(us0, 3)...)
}

// Each writer appends the row that it takes for the next until the stream is long enough: all rows are there, and each
// belongs to the writer whose Append succeeded.
func testAppendRace(t *testing.T, n Feed) {
	const writers, rows = 4, 12
	var mu sync.Mutex
	var want []store.FeedRow
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for sequence := int64(1); sequence <= rows; sequence++ {
				row := feed(us0, sequence)
				row.Writer = uint64(w) << 60 // the column keeps all 64 bits
				switch err := n.Append(t.Context(), row); {
				case err == nil:
					mu.Lock()
					want = append(want, row)
					mu.Unlock()
				case !errors.Is(err, store.ErrTaken):
					t.Errorf("writer %d, row %d: %v", w, sequence, err)
				}
			}
		})
	}
	writing.Wait()
	if len(want) != rows {
		t.Errorf("%d numbers were won, want %d", len(want), rows)
	}
	wantRows(t, n, want...)
}

func testAppendHeld(t *testing.T, n Feed) {
	appendRows(t, n, feed(us0, 1))
	commit, _ := n.Hold(t, feed(us0, 2))
	other := feed(us0, 2)
	other.Writer++
	for _, row := range []store.FeedRow{feed(us0, 2), other} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := n.Append(ctx, row); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrTaken) {
			t.Errorf("while it is held: %v, want the deadline", err)
		}
		cancel()
	}
	appendRows(t, n, feed(us1, 1)) // other streams go on
	commit()
	wantTaken(t, n, other)
	appendRows(t, n, feed(us0, 2)) // the very row that was stored
	wantRows(t, n, feed(us0, 1), feed(us0, 2), feed(us1, 1))
}

func testAppendKilled(t *testing.T, n Feed) {
	appendRows(t, n, feed(us0, 1))
	_, rollback := n.Hold(t, feed(us0, 2))
	rollback()
	other := feed(us0, 2)
	other.Writer++
	appendRows(t, n, other, feed(us0, 3))
	wantTaken(t, n, feed(us0, 2))
	wantRows(t, n, feed(us0, 1), other, feed(us0, 3))
}

func testAppendRefused(t *testing.T, n Feed) {
	longest := feed(store.Stream{Region: strings.Repeat("r", store.RegionBytesMax), Shard: store.FeedShardsMax - 1}, 1)
	longest.Payload = []byte(strings.Repeat("\x00\xff'\\", store.FeedBytesMax/4))
	appendRows(t, n, longest)
	for name, change := range map[string]func(*store.FeedRow){
		"sequence is 0":           func(r *store.FeedRow) { r.Sequence = 0 },
		"sequence is -1":          func(r *store.FeedRow) { r.Sequence = -1 },
		"snapshot is -1":          func(r *store.FeedRow) { r.Snapshot = -1 },
		"snapshot is 2":           func(r *store.FeedRow) { r.Snapshot = 2 },
		"last is set":             func(r *store.FeedRow) { r.Last = true },
		"region is 0 bytes long":  func(r *store.FeedRow) { r.Region = "" },
		"region is 49 bytes long": func(r *store.FeedRow) { r.Region += longest.Region },
		"shard is -1":             func(r *store.FeedRow) { r.Shard = -1 },
		"shard is 65536":          func(r *store.FeedRow) { r.Shard = store.FeedShardsMax },
		"payload is 262145 bytes": func(r *store.FeedRow) { r.Payload = append([]byte("x"), longest.Payload...) },
	} {
		row := feed(store.Stream{Region: "u", Shard: 0}, 1)
		change(&row)
		err := n.Append(t.Context(), row)
		if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want ErrRefused and %q", err, name)
		}
	}
	wantRows(t, n, longest)
}

func testAppendKeepsNothing(t *testing.T, n Feed) {
	row := feed(us0, 1)
	appendRows(t, n, row)
	row.Payload[0] = 'X'
	page := readFeed(t, n, "eu", nil, plenty)
	wantFeed(t, "stored", page.Rows, feed(us0, 1))
	page.Rows[0].Payload[0] = 'X'
	wantRows(t, n, feed(us0, 1))
}

func testAppendLost(t *testing.T, n Feed) {
	appendRows(t, n, upTo(us0, 5)...)
	n.Lose(t, us0, 3)
	wantTaken(t, n, feed(us0, 6))
	appendRows(t, n, feed(us0, 3))
	n.Lose(t, us0, 0)
	wantTaken(t, n, feed(us0, 4))
	appendRows(t, n, feed(us0, 1))
	wantRows(t, n, feed(us0, 1))
}
