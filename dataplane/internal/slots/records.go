package slots

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// limitLeases are a key's leases, in a slab with a list of free records.
type limitLeases struct {
	busy    int64                 // live records
	callers map[fair.Caller]int64 // live records of callers with a label
	records []record
	free    uint32           // index + 1 of the first free record, 0 for none
	byEnd   []uint32         // heap of the live records that end by themselves
	ids     map[string]Lease // live leases by ID

	least    time.Duration // no live record has a shorter ttl; 0: unknown
	finished int           // leases that have ended, or last longer, since least was computed
}

// record is a lease, or a free place for a lease.
type record struct {
	generation uint32 // of the lease in this record, or of the next lease
	live       bool
	attended   bool   // the node renews it until it is released
	next       uint32 // of the free list
	place      int    // in byEnd, if it ends by itself
	ttl        time.Duration
	deadline   time.Duration // when the lease ends by itself
	since      time.Duration
	holder     string
	by         fair.Caller
	byID       *byID         // nil for a lease without an ID
	done       chan struct{} // nil until Done is called
	was        error         // why the last lease in this record has ended
}

// byID has the ID of a lease by ID.
type byID struct {
	id      string
	sinceMs int64
}

func (l *limitLeases) setID(id string, lease Lease) {
	if l.ids == nil {
		l.ids = make(map[string]Lease)
	}
	l.ids[id] = lease
}

// count adds n, 1 or -1, to the live records of a caller.
func (l *limitLeases) count(by fair.Caller, n int64) {
	if l.busy += n; !by.Labelled() {
		return
	}
	if l.callers == nil {
		l.callers = make(map[fair.Caller]int64)
	}
	if l.callers[by] += n; l.callers[by] == 0 {
		delete(l.callers, by)
	}
}

// mayHave reports whether a caller may have another lease on this node.
func (l *limitLeases) mayHave(by fair.Caller) bool {
	own := l.callers[by]
	return fair.HasRoom(own, own, LeasesMax-l.busy, LeasesMax)
}

// firstEnd returns when the first lease ends by itself.
func (l *limitLeases) firstEnd() time.Duration {
	if len(l.byEnd) == 0 {
		return forever
	}
	return l.records[l.byEnd[0]].deadline
}

// setTTL sets a live lease's time to live.
func (l *limitLeases) setTTL(r *record, ttl time.Duration) {
	if ttl > r.ttl {
		l.finished++ // the record may have had the shortest
	}
	if r.ttl = ttl; l.least == 0 || ttl < l.least {
		l.least = ttl
	}
}

// exactMax is the most records that are searched for the shortest time to live each time a lease has ended.
const exactMax = 1000

// shortestTTL returns the shortest time to live of all leases, or forever without any. With many leases, it may return
// that of a lease that has ended, until as many leases have ended as are live, so that the search costs each of them
// little.
func (l *limitLeases) shortestTTL() time.Duration {
	if l.busy == 0 {
		l.least, l.finished = 0, 0
		return forever
	}
	if l.finished > 0 && (len(l.records) <= exactMax || int64(l.finished) >= l.busy) {
		l.least, l.finished = forever, 0
		for i := range l.records {
			if r := &l.records[i]; r.live {
				l.least = min(l.least, r.ttl)
			}
		}
	}
	return l.least
}

// byEnd is a heap of a key's leases by their ends.
type byEnd limitLeases

func (h *byEnd) Len() int { return len(h.byEnd) }

func (h *byEnd) Less(i, j int) bool {
	return h.records[h.byEnd[i]].deadline < h.records[h.byEnd[j]].deadline
}

func (h *byEnd) Swap(i, j int) {
	h.byEnd[i], h.byEnd[j] = h.byEnd[j], h.byEnd[i]
	h.records[h.byEnd[i]].place, h.records[h.byEnd[j]].place = i, j
}

// Push implements heap.Interface.
func (h *byEnd) Push(x any) {
	index := x.(uint32)
	h.records[index].place = len(h.byEnd)
	h.byEnd = append(h.byEnd, index)
}

// Pop implements heap.Interface.
func (h *byEnd) Pop() any {
	last := len(h.byEnd) - 1
	index := h.byEnd[last]
	h.byEnd = h.byEnd[:last]
	return index
}
