package queue

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// Reads are the entries of a shard that a call should read. At most ReadCallsMax calls are under way. Entries that are
// added meanwhile go together in the next call, and namespaces take turns. Without this bound, a single caller's new
// keys would put so many calls before those of all other callers that all of them came too late.
//
// The zero value is empty. All methods may be called concurrently.
type Reads struct {
	mu      sync.Mutex // no other lock is taken under it
	waiting Fair[Read]
	calls   int          // under way
	newest  int          // the namespace of the newest read, plus 1
	short   clock.Steady // calls are short until then
}

// Read is an entry to read.
type Read struct {
	Entry  *cell.Entry
	Flight *cell.Flight // ends with the answer
	Since  clock.Steady
}

// Bounds of the calls that read keys before decisions, two cells of each key. On a busy shard that several namespaces
// read from, the calls are short: the longer they are, the later the costs of other namespaces come to the origin.
const (
	ReadCallsMax  = 2   // under way at a shard
	ReadKeysMax   = 32  // of a call that begins while another call is under way, or follows a call
	ReadKeysAlone = 250 // of any other call, and of all calls while only a single namespace reads

	mixedFor clock.Steady = 1000 // ms; a namespace counts as reading for as long after a read
)

// Add adds a read. The caller must then call Begin.
func (q *Reads) Add(r Read) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := r.Entry.Group()
	if q.newest != 0 && q.newest != int(of)+1 {
		q.short = r.Since + mixedFor
	}
	q.newest = int(of) + 1
	q.waiting.Push(of, r)
}

// keysMaxLocked returns how many keys a call of a busy shard reads.
func (q *Reads) keysMaxLocked(now clock.Steady) int {
	if now < q.short {
		return ReadKeysMax
	}
	return ReadKeysAlone
}

// Begin returns the reads of a further call, or nil if no read waits or ReadCallsMax calls are under way. The caller
// must make that call, and the calls that Next returns.
func (q *Reads) Begin(now clock.Steady) []Read {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.calls == ReadCallsMax || q.waiting.Len() == 0 {
		return nil
	}
	q.calls++
	if q.calls == 1 {
		return q.waiting.Take(ReadKeysAlone)
	}
	return q.waiting.Take(q.keysMaxLocked(now))
}

// Next returns the reads of the call that follows an ended call, or nil if no read waits. Reads that have waited for
// timeout end without a call, because their callers have given up.
func (q *Reads) Next(now clock.Steady, timeout time.Duration) []Read {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		r, ok := q.waiting.Peek()
		if !ok {
			q.calls--
			return nil
		}
		if time.Duration(now-r.Since)*time.Millisecond < timeout {
			return q.waiting.Take(q.keysMaxLocked(now))
		}
		q.waiting.Pop()
		r.Flight.Fail(context.DeadlineExceeded, now)
	}
}

// Len returns the number of waiting reads.
func (q *Reads) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}
