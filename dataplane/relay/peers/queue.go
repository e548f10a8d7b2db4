package peers

import (
	"context"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
)

// Bounds of the rows that wait for a stream. An interval has up to 8 rows of 256 KiB from each shard. Rows that waited
// longer would arrive sooner through MySQL.
const (
	queueRowsMax  = 64
	queueBytesMax = 4 << 20
)

// queue holds the rows for a stream, and drops the oldest rows when it is full. It is open while there is a stream.
type queue struct {
	mu    sync.Mutex
	open  bool
	rows  []store.FeedRow
	bytes int
	lacks bool          // the peer may lack earlier rows: the stream is new, or rows were dropped
	more  chan struct{} // capacity 1: signals that rows wait
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// setOpen opens or closes the queue. It drops the waiting rows, and returns their number.
func (q *queue) setOpen(open bool) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	dropped = len(q.rows)
	q.open, q.rows, q.bytes, q.lacks = open, nil, 0, open
	return dropped
}

// push adds a row and never blocks. taken reports whether the queue is open; dropped is the number of old rows that
// were dropped for it.
func (q *queue) push(row store.FeedRow) (taken bool, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		return false, 0
	}
	q.rows = append(q.rows, row)
	q.bytes += len(row.Payload)
	for len(q.rows) > queueRowsMax || q.bytes > queueBytesMax {
		q.shiftLocked()
		q.lacks = true
		dropped++
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return true, dropped
}

// takeLacks reports whether the peer may lack rows since the last call. The caller must then repeat
// all counts that were sent before. Rows that arrive meanwhile stay in the queue.
func (q *queue) takeLacks() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lacks := q.lacks
	q.lacks = false
	return lacks
}

// shiftLocked removes and returns the oldest row.
func (q *queue) shiftLocked() store.FeedRow {
	row := q.rows[0]
	q.rows[0] = store.FeedRow{} // so that the payload can be freed
	q.rows = q.rows[1:]
	q.bytes -= len(row.Payload)
	return row
}

// take waits for a row and removes it; ok is false if ctx has ended.
func (q *queue) take(ctx context.Context) (row store.FeedRow, ok bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		if len(q.rows) > 0 {
			defer q.mu.Unlock()
			return q.shiftLocked(), true
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-q.more:
		}
	}
	return row, false
}
