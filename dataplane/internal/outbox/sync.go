package outbox

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// syncs exchanges the counts of the estimate mode. A request that finds its key due adds the key to the waiting keys.
// Each replay tick takes some of them and sends their cost. The reply to an increment is the region's total, and is
// used as such: only a cell that had nothing to send is read.
//
// Sends and readings have different rates. A hot key's own cost is sent with every tick. The cost of other nodes is
// read when the key comes to a step, so that readings are current when they are taken. The tier decides when that is.
type syncs struct {
	stream // under running
	sh     *Shard

	running sync.Mutex // a single step at a time
	waits   []exchange // of the stream's pending chunk; under running

	mu      sync.Mutex // never held across I/O
	waiting []wanted   // in the order of their requests, each key at most once
}

func (s *syncs) init(sh *Shard) {
	s.stream.init(sh, sh.sends)
	s.sh = sh
}

// wanted is a waiting key, and its settings when it began to wait.
type wanted struct {
	entry *cell.Entry
	set   *rules.Estimate
}

// AskSync queues a key for a sync, unless too many keys of its namespace wait: then the key's next request can try
// again.
func (o *Outbox) AskSync(e *cell.Entry, set *rules.Estimate) {
	if o.stopping.Load() || !e.Estimates().Ask() {
		return
	}
	if set.Waiting.Add(1) > set.PendingMax {
		set.Waiting.Add(-1)
		e.Estimates().Unask()
		o.Stats.SyncsRefused.Add(1)
		return
	}
	o.ShardOf(e).syncs.add(wanted{e, set})
}

// Sync syncs the waiting keys once. Keys that fail wait for the next tick, behind the others.
func (sh *Shard) Sync(ctx context.Context) error { return sh.syncs.tick(ctx) }

func (s *syncs) tick(ctx context.Context) (firstErr error) {
	sh, o := s.sh, s.sh.out
	s.running.Lock()
	defer s.running.Unlock()
	if sh.sends.State() == breaker.Open {
		return nil // replay reports this already
	}
	if err := s.resend(ctx); err != nil {
		return err
	}
	if s.size() > 0 {
		if err := sh.askTime(ctx, &s.stream); err != nil {
			return err
		}
	}
	batch := s.take()
	if len(batch) > 0 {
		within, end := o.cfg.Trace(ctx, collect.TickSync.String())
		ctx = within
		defer func(began time.Time) { o.Stats.Origin.Ticked(collect.TickSync, began); end(firstErr) }(time.Now())
	}
	for len(batch) > 0 {
		n := min(len(batch), chunkCells/2)
		failed, err := s.exchangeAll(ctx, batch[:n])
		firstErr = cmp.Or(firstErr, err)
		s.add(failed...)
		// no use in trying the rest now
		if batch = batch[n:]; len(batch) > 0 && (len(failed) == n || s.pending != nil) {
			s.add(batch...)
			break
		}
	}
	return cmp.Or(firstErr, sh.prove(ctx, &s.stream))
}

func (s *syncs) add(w ...wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, w...)
}

// take removes the first keys of each namespace, as many as its batch_max; the rest is
// carried over.
func (s *syncs) take() (batch []wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	taken := make(map[*atomic.Int64]int) // by namespace
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		if taken[w.set.Waiting] < w.set.BatchMax {
			taken[w.set.Waiting]++
			batch = append(batch, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return batch
}

func (s *syncs) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// exchange is a key's part in a sync.
type exchange struct {
	wanted
	cell.SyncPart
	failed bool
}

// exchangeAll makes at most one increment and one read, for all given keys. If the increment gets no answer, the keys
// wait for the answer of the next turn.
func (s *syncs) exchangeAll(ctx context.Context, batch []wanted) (failed []wanted, err error) {
	o := s.sh.out
	nowMs, now := o.cfg.Clock.ReadMs(), o.cfg.Clock.ReadSteady()
	exchanges := make([]exchange, len(batch))
	writes := &chunk{}
	var reads inquiry
	for i, w := range batch {
		exchanges[i].wanted = w
		s.prepare(&exchanges[i], nowMs, now, writes, &reads)
	}
	if len(writes.costs) > 0 {
		lost, refused, no := s.sh.deliver(ctx, &s.stream, writes)
		if no != nil {
			s.waits = exchanges
			return nil, no
		}
		err = refused
		markFailed(exchanges, lost)
	}
	if len(reads.cells) > 0 {
		err = cmp.Or(err, s.read(ctx, &reads))
	}
	return s.finishAll(exchanges), err
}

// resend sends the increment that got no answer again. Its keys must wait for another sync, because their readings
// would be as old as the increment.
func (s *syncs) resend(ctx context.Context) error {
	if s.pending == nil {
		return nil
	}
	if _, _, err := s.sh.deliver(ctx, &s.stream, s.pending); err != nil {
		return err
	}
	for i := range s.waits {
		s.add(s.waits[i].wanted)
	}
	s.waits = nil
	return nil
}

func (s *syncs) finishAll(exchanges []exchange) (failed []wanted) {
	o := s.sh.out
	nowMs, now := o.cfg.Clock.ReadMs(), o.cfg.Clock.ReadSteady()
	for i := range exchanges {
		if x := &exchanges[i]; x.failed {
			failed = append(failed, x.wanted)
		} else {
			s.finish(x, nowMs, now)
		}
	}
	return failed
}

func markFailed(exchanges []exchange, lost []*cell.Entry) {
	if len(lost) == 0 {
		return
	}
	of := make(map[*cell.Entry]bool, len(lost))
	for _, e := range lost {
		of[e] = true
	}
	for i := range exchanges {
		exchanges[i].failed = exchanges[i].failed || of[exchanges[i].entry]
	}
}

// prepare puts a key's unsent cost on its way, and lists the cells that must be read. A cell that is over is not
// written, because no decision depends on its cost any more.
func (s *syncs) prepare(x *exchange, nowMs int64, now clock.Steady, writes *chunk, reads *inquiry) {
	o, e := s.sh.out, x.entry
	inForce := o.cfg.Rules.InForce()
	if o.cfg.Table.HoldsBack(e, false, inForce.Nodes) {
		return
	}
	late := level.Low.IntervalMs(x.set.SyncBaseMs) + sendTimeout.Milliseconds()
	shares := inForce.Shares(e.Names())
	x.SyncPart = e.Estimates().BeginSync(o.cfg.Table.Horizon(false), nowMs, now, &x.set.Rules, late, shares)
	o.ForgetUnsent(e, x.AgedOut)
	for i, sends := range x.Sends {
		if sends {
			writes.add(e, x.Costs[i])
		} else if x.Read[i] {
			reads.cells = append(reads.cells, e.Cell(x.Sequence-1+int64(i)))
			reads.of = append(reads.of, x)
		}
	}
}

// inquiry holds the cells that a call reads, and their exchanges.
type inquiry struct {
	cells []window.Cell
	of    []*exchange
}

// read reads the cells that nothing was sent for, and merges them.
func (s *syncs) read(ctx context.Context, r *inquiry) error {
	o := s.sh.out
	totals, err := s.totals(ctx, r.cells)
	if err != nil {
		for _, x := range r.of {
			x.failed = true
		}
		return err
	}
	now := o.cfg.Clock.ReadSteady()
	lost := make([]store.Epoch, len(r.of))
	for i, x := range r.of {
		lost[i] = x.entry.Ledger().Absorb(&o.Stats.Merged, r.cells[i].Sequence, &totals[i], now)
	}
	s.sh.lostAll(lost, totals, func(i int) *cell.Entry { return r.of[i].entry })
	return nil
}

func (s *syncs) totals(ctx context.Context, cells []window.Cell) ([]store.Total, error) {
	end, ok := s.sh.sends.Begin()
	if !ok {
		return nil, breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return s.sh.get(ctx, cells, end)
}

// finish takes the reading by which requests are judged from now on. If the answer came after its cell was over, it has
// too little of the current cell, so the key waits for another sync.
func (s *syncs) finish(x *exchange, nowMs int64, now clock.Steady) {
	o := s.sh.out
	x.set.Waiting.Add(-1)
	last, drift := x.entry.Estimates().EndSync(o.cfg.Table.Horizon(false), &x.SyncPart, nowMs, now, &x.set.Rules)
	if last > 0 {
		o.Stats.drift.Observe(drift)
		o.Stats.staleness.Observe(float64(now-last) / 1000)
	}
	if x.entry.Flags().Restores() || !o.stopping.Load() && x.entry.Estimates().LacksSync(x.set.Floor) {
		s.askUnsent(x.entry) // meanwhile the origin has lost its counts, or so much was counted that it must be sent
	}
}

// askUnsent makes unsent cost of the estimate mode wait for a sync, by its namespace's settings. It ignores the bound
// of waiting keys, because nothing else would send the cost.
func (s *syncs) askUnsent(e *cell.Entry) {
	if e.Estimates().AskUnsent() {
		set := s.sh.out.cfg.Rules.InForce().EstimateOf(e.Names())
		set.Waiting.Add(1)
		s.add(wanted{e, set})
	}
}

// unsynced returns the cost of the keys that wait for a sync.
func (s *syncs) unsynced() (cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		cost += w.entry.Ledger().Unsent()
	}
	return cost + s.unanswered.Load()
}
