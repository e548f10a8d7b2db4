// Package mapstore is a small store.Origin that keeps the contract: a map and a mutex. Read it to write an origin of
// your own, together with the guide in ../store.md.
//
// It counts, and has none of the optional parts: see package store. The limiters of one process may share an Origin.
// For other uses take package memstore, which has all parts.
package mapstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// keptFor is how long a cell stays after it has expired. The cell before the current one still counts in a sliding
	// window, but has not expired: keptFor is for nodes that are late.
	keptFor = 30 * time.Second

	sweepMin = 1024 // cells and streams from which expired ones are removed
)

// Origin counts in a map. Make it with New. All methods are safe for concurrent use.
type Origin struct {
	mu sync.Mutex

	// A server would hold these fields.
	epoch   store.Epoch
	cells   map[window.Cell]record
	streams map[uint64]stream
	sweepAt int

	// senders is held by each process: it survives a loss of the server's data.
	senders map[uint64]sender
}

var _ store.Origin = (*Origin)(nil)

// record holds the region's accepted cost of a cell: see store.Cost.
type record struct {
	added, restored, known int64 // 0 to store.CountMax; they only grow
}

func (r record) region() int64 { return sum(r.added, max(r.restored, r.known)) }

// stream is the last call of a stream, so that the same call again changes nothing.
type stream struct {
	number int64
	added  []bool // by cost of the last chunk, whether it is bounded and was added
	usedAt time.Time
}

// sender is the chunk that a stream sends, and the epoch in which it was sent first.
type sender struct {
	number int64
	epoch  store.Epoch
	usedAt time.Time
}

// New returns an empty Origin.
func New() *Origin {
	o := &Origin{senders: make(map[uint64]sender)}
	o.Wipe()
	return o
}

// Wipe loses all data, like a server that restarts without it. The new epoch reveals the loss: nodes that receive it
// send their accepted cost again.
func (o *Origin) Wipe() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epoch = store.Epoch(rand.Uint32() | 1) // never 0
	o.cells, o.streams, o.sweepAt = make(map[window.Cell]record), make(map[uint64]stream), sweepMin
}

// Shards implements store.Origin.
func (o *Origin) Shards() int { return 1 }

// ShardOf implements store.Origin.
func (o *Origin) ShardOf(*window.Key) int { return 0 }

// Read implements store.Origin.
func (o *Origin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	if err := ctx.Err(); err != nil {
		return store.Reply{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	reply := store.Reply{Totals: make([]store.Total, len(cells)), Now: now}
	for i := range cells {
		reply.Totals[i] = o.total(cells[i], now)
	}
	return reply, nil
}

// Send implements store.Origin.
func (o *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if err := ctx.Err(); err != nil {
		return store.Reply{}, err
	}
	if err := checkCall(chunk.Shard, chunk.Stream, chunk.Number); err != nil {
		return store.Reply{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	first := o.firstSent(chunk.Stream, chunk.Number, now)
	was := o.streams[chunk.Stream]
	if chunk.Number < was.number && chunk.Bounded() {
		return store.Reply{}, fmt.Errorf("mapstore: chunk %d is late: chunk %d was applied", chunk.Number, was.number)
	}
	isNew := chunk.Number > was.number
	reply := store.Reply{Totals: make([]store.Total, len(chunk.Costs)), Now: now}
	added := make([]bool, len(chunk.Costs))
	for i, c := range chunk.Costs {
		if c.Epoch == 0 && c.AtMost == 0 {
			c.Epoch = first
		}
		reply.Totals[i] = o.add(c, isNew, now)
		if total := &reply.Totals[i]; !isNew && total.Err == nil && i < len(was.added) {
			total.Added = was.added[i] // decided before, whichever cost the repeated chunk has
		}
		added[i] = reply.Totals[i].Added
	}
	if isNew {
		was.number, was.added = chunk.Number, added
	}
	o.keep(chunk.Stream, was, now)
	return reply, nil
}

// firstSent returns the epoch in which a chunk was sent first. A cost without an epoch belongs to that epoch: if the
// origin has lost its data since, others may have been answered with the cost, and restore it.
func (o *Origin) firstSent(id uint64, number int64, now time.Time) store.Epoch {
	s := o.senders[id]
	if s.number != number {
		s.number, s.epoch = number, o.epoch
	}
	s.usedAt = now
	o.senders[id] = s
	return s.epoch
}

// add counts a cost, if its chunk is new and it has room, and returns the cell's total. A bounded cost without an epoch
// fits every epoch.
func (o *Origin) add(c store.Cost, isNew bool, now time.Time) store.Total {
	if err := check(c); err != nil {
		return store.Total{Epoch: o.epoch, Err: err}
	}
	bounded := c.AtMost != 0
	if c.Epoch != o.epoch && (c.Epoch != 0 || !bounded) {
		return store.Total{Epoch: o.epoch, Err: store.ErrEpoch}
	}
	r := o.cells[c.Cell]
	atMost := min(c.AtMost, store.CountMax)
	adds := isNew && (!bounded || c.Add <= atMost && r.region() <= atMost-c.Add)
	if adds {
		r.added, r.restored = sum(r.added, c.Add), sum(r.restored, c.Restore)
		r.known = min(max(r.known, c.Known), store.CountMax)
		o.put(c.Cell, r, now)
	}
	total := o.total(c.Cell, now)
	total.Added = bounded && adds
	return total
}

func check(c store.Cost) error {
	switch {
	case min(c.Add, c.Restore, c.Known, c.Limit) < 0:
		return fmt.Errorf("mapstore: add, restore, known and limit of %v are %d, %d, %d and %d (0 or more)",
			c.Cell, c.Add, c.Restore, c.Known, c.Limit)
	case c.AtMost != 0 && (c.Add == 0 || c.Restore != 0 || c.Known != 0):
		return fmt.Errorf("mapstore: add, restore and known of %v, which is bounded, are %d (1 or more), %d and %d (0)",
			c.Cell, c.Add, c.Restore, c.Known)
	}
	return nil
}

// Listen implements store.Origin. It never calls its callback, because no relay brings counts of other regions.
func (o *Origin) Listen(ctx context.Context, _ int, _ func([]store.Foreign)) error {
	<-ctx.Done()
	return nil
}

func (o *Origin) total(c window.Cell, now time.Time) store.Total {
	if expired(c, now) {
		return store.Total{Epoch: o.epoch}
	}
	return store.Total{Region: o.cells[c].region(), Epoch: o.epoch}
}

// put stores a record. It removes expired cells whenever there are twice as many cells and streams as the last removal
// left. So memory stays within twice the cells in use.
func (o *Origin) put(c window.Cell, r record, now time.Time) {
	if r == (record{}) || expired(c, now) {
		return
	}
	o.cells[c] = r
	o.sweep(now)
}

// keep remembers a stream's last call.
func (o *Origin) keep(id uint64, s stream, now time.Time) {
	s.usedAt = now
	o.streams[id] = s
	o.sweep(now)
}

func (o *Origin) sweep(now time.Time) {
	if len(o.cells)+len(o.streams)+len(o.senders) < o.sweepAt {
		return
	}
	maps.DeleteFunc(o.cells, func(c window.Cell, _ record) bool { return expired(c, now) })
	maps.DeleteFunc(o.streams, func(_ uint64, s stream) bool { return now.Sub(s.usedAt) >= store.StreamKeptMax })
	maps.DeleteFunc(o.senders, func(_ uint64, s sender) bool { return now.Sub(s.usedAt) >= store.StreamKeptMax })
	o.sweepAt = max(sweepMin, 2*(len(o.cells)+len(o.streams)+len(o.senders)))
}

func expired(c window.Cell, now time.Time) bool {
	return c.ExpiresAtMs()+keptFor.Milliseconds() <= now.UnixMilli()
}

func checkCall(shard int, stream uint64, number int64) error {
	if shard != 0 || stream == 0 || number < 1 {
		return fmt.Errorf("mapstore: shard is %d (0), stream %d (not 0), number %d (1 or more)", shard, stream, number)
	}
	return nil
}

// sum returns a + b, at most store.CountMax.
func sum(a, b int64) int64 { return min(a+min(b, store.CountMax), store.CountMax) }
