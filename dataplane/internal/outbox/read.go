package outbox

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// reads are the reads of a shard that decisions wait for, for example of a cold key, of a key without a recent answer,
// or of a key in strict mode.
type reads struct {
	sh *Shard
	queue.Reads
}

// Read joins the read of e that is in flight, or starts a read. It returns nil while e rests after a
// failed read, and while the breaker of the shard's reads is open.
func (o *Outbox) Read(now clock.Steady, e *cell.Entry) *cell.Flight {
	sh := o.ShardOf(e)
	f := sh.reads.join(now, e)
	sh.reads.start(now)
	return f
}

// ReadAll is Read for several keys, and returns a flight for each. On a shard without a read under way, up to
// queue.ReadKeysAlone keys go in one call.
func (o *Outbox) ReadAll(now clock.Steady, entries []*cell.Entry) []*cell.Flight {
	flights := make([]*cell.Flight, len(entries))
	for i, e := range entries {
		flights[i] = o.ShardOf(e).reads.join(now, e)
	}
	for _, sh := range o.shards {
		sh.reads.start(now)
	}
	return flights
}

// join joins the read in flight of e, or adds a read to the reads that wait for a call.
func (r *reads) join(now clock.Steady, e *cell.Entry) *cell.Flight {
	added := false
	f := e.Reads().Join(now, func() *cell.Flight {
		if r.sh.asks.State() == breaker.Open {
			return nil
		}
		added = true
		return cell.NewFlight()
	})
	if added {
		r.Add(queue.Read{Entry: e, Flight: f, Since: now})
	}
	return f
}

// Wait waits until f ends, but not past ctx. It reports whether f brought an answer; a nil f brings none.
func Wait(ctx context.Context, f *cell.Flight) bool {
	if f == nil {
		return false
	}
	select {
	case <-f.Done:
		return f.Err == nil
	case <-ctx.Done():
		return false
	}
}

// start begins calls for the waiting reads of a shard, up to the most that may run at once. Each runs in a goroutine of
// its own, because a caller that gives up must not take the answer from others. A stopped limiter makes no calls.
func (r *reads) start(now clock.Steady) {
	for reads := r.Begin(now); reads != nil; reads = r.Begin(now) {
		if r.sh.out.cfg.Calls.Start(func() { r.make(reads, r.fetch) }) {
			continue
		}
		r.make(reads, func(reads []queue.Read) {
			for _, read := range reads {
				read.Flight.Skip(ErrStopped)
			}
		})
	}
}

// make makes a call, and further calls until no read waits.
func (r *reads) make(reads []queue.Read, call func([]queue.Read)) {
	cfg := &r.sh.out.cfg
	for ; reads != nil; reads = r.Next(cfg.Clock.ReadSteady(), cfg.ReadTimeout) {
		call(reads)
	}
}

// fetch reads both cells of each entry in one call and merges the answers.
func (r *reads) fetch(reads []queue.Read) {
	sh, o := r.sh, r.sh.out
	end, ok := sh.asks.Begin()
	if !ok {
		for _, read := range reads {
			read.Flight.Skip(breaker.ErrOpen)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.cfg.ReadTimeout)
	defer cancel()
	cells := make([]window.Cell, 0, 2*len(reads))
	for _, read := range reads {
		both := read.Entry.Reads().Cells()
		cells = append(cells, both[:]...)
	}
	known := o.cfg.Clock.Known()
	totals, err := sh.get(ctx, cells, end)
	now := o.cfg.Clock.ReadSteady()
	if err != nil {
		for _, read := range reads {
			read.Flight.Fail(err, now)
		}
		return
	}
	lost := make([]store.Epoch, 0, len(cells))
	for i, read := range reads {
		if !known { // else the entry would count as read in a cell that only this node's clock showed
			o.Renumber(read.Entry, o.cfg.Table.Horizon(false), o.cfg.Clock.ReadMs())
		}
		both := read.Entry.Reads().Hydrate(&o.Stats.Merged, read.Flight, cells[2*i].Sequence, totals[2*i:2*i+2], now)
		lost = append(lost, both[:]...)
		close(read.Flight.Done)
	}
	sh.lostAll(lost, totals, func(i int) *cell.Entry { return reads[i/2].Entry })
}
