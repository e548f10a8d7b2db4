package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The loops' steps, for tests that run them by hand.

// ReplayOnce sends unsent cost, once, to all shards at the same time.
func (l *Limiter) ReplayOnce(ctx context.Context) error { return l.once(ctx, (*outbox.Shard).Replay) }

func (l *Limiter) once(ctx context.Context, step func(*outbox.Shard, context.Context) error) error {
	return l.engine.out.Each(func(sh *outbox.Shard) error { return step(sh, ctx) })
}

// ReplayStream returns the stream in which replay sends to the first shard.
func (l *Limiter) ReplayStream() uint64 { return l.engine.out.Shards()[0].ReplayStream() }

// NowMs returns the limiter's time.
func (l *Limiter) NowMs() int64 { return l.engine.clock.ReadMs() }

// KnowTime makes the limiter use its own clock as the origin's, which it has not read yet.
func (l *Limiter) KnowTime() { l.engine.clock.FollowNone() }

// ReadTime reads the time of a key's shard.
func (l *Limiter) ReadTime(key window.Key) { l.engine.out.ReadTime(context.Background(), &key) }

// ApplyForeign applies totals as a listener does.
func (l *Limiter) ApplyForeign(totals []store.Foreign) { l.engine.out.ApplyForeign(totals) }

func (l *Limiter) LoadSettings(ctx context.Context) error {
	return l.engine.rules.Load(ctx)
}

// MeasureShape measures the shape of the load at a time.
func (l *Limiter) MeasureShape(now time.Time) {
	l.reports.load.Measure(l.engine.rules.InForce(), now.UnixMilli())
}

func (l *Limiter) Heartbeat(ctx context.Context) error { return l.reports.beat(ctx, false) }

// SetSteady replaces the steady reading of a limiter that was made with a Clock; nil restores it.
func (l *Limiter) SetSteady(elapsed func() time.Duration) {
	if elapsed == nil {
		l.engine.clock.SetSteady(nil)
		return
	}
	l.engine.clock.SetSteady(func() clock.Steady { return clock.SteadyStart + clock.Steady(elapsed().Milliseconds()) })
}

// Sweep sweeps the whole table once.
func (l *Limiter) Sweep() {
	for range l.engine.table.SweepTicks() {
		l.engine.sweep()
	}
}

// SweepTurn runs a round of the loop that sweeps.
func (l *Limiter) SweepTurn() { l.engine.sweep() }

// MakeRoom tries to evict every entry, as new keys do in a full table.
func (l *Limiter) MakeRoom() { l.engine.table.EvictIdle(l.engine.clock.ReadMs()) }

// AwaitCalls waits for reads and heals in flight.
func (l *Limiter) AwaitCalls() { l.calls.Wait() }

// CellState is a limiter's state of a cell.
type CellState struct {
	Held, Sending                                            bool
	Count, Foreign, Settled, Named, Credit, Unsent, Claiming int64
}

// Cell returns the state of a cell.
func (l *Limiter) Cell(c window.Cell) CellState {
	e := l.entryOf(c.Key)
	if e == nil {
		return CellState{}
	}
	at := e.LookAt(c.Sequence)
	if !l.engine.table.Fleet {
		return CellState{Held: at.Held, Count: at.Counted, Foreign: at.Others}
	}
	return CellState{Held: at.Held, Sending: at.Sending, Count: at.Accepted, Foreign: at.Foreign, Settled: at.Settled, Named: at.Named,
		Credit: at.Credit, Unsent: at.Unsent, Claiming: at.Claiming}
}

func (l *Limiter) entryOf(k window.Key) *cell.Entry {
	id := l.engine.table.IdentityOfKey(&k, l.engine.rules.InForce().ResetOf(&k))
	return l.engine.table.Get(&id)
}

// StrictUntil returns the key's strict deadline by the steady clock, 0 for none.
func (l *Limiter) StrictUntil(k window.Key) time.Duration {
	if e := l.entryOf(k); e != nil {
		if at := e.Look(0, clock.SteadyStart); at.StrictUntil != 0 {
			return milliseconds(int64(at.StrictUntil - clock.SteadyStart))
		}
	}
	return 0
}

// Entries returns the number of keys in the table.
func (l *Limiter) Entries() int { return l.engine.table.Len() }

// Created returns the number of keys that were added.
func (l *Limiter) Created() int64 {
	return l.engine.table.Created.Load()
}

// Accepted returns the count that a send of a cell would read now.
func (l *Limiter) Accepted(c window.Cell) int64 { return l.Cell(c).Count }

// Hold is a batch with a single request, between judgement and release.
type Hold struct {
	w       batch
	limiter *Limiter
}

// HoldOne does the first half of a batch with a single request.
func (l *Limiter) HoldOne(r Request) *Hold {
	h := &Hold{limiter: l}
	h.w.begin(&l.engine, 1, clock.Stamp{})
	if err := h.w.prepare([]Request{r}, l.engine.clock.ReadMs()); err != nil {
		panic(err)
	}
	h.w.enter(context.Background(), false)
	it := &h.w.items[0]
	it.entry.Hold(h.w.horizon, it.nowMs, it.durationMs)
	it.judge(it)
	return h
}

// HoldOrder returns the order in which a batch locks its keys, by identifier.
func (l *Limiter) HoldOrder(requests []Request) (identifiers []string) {
	var w batch
	w.begin(&l.engine, len(requests), clock.Stamp{})
	if err := w.prepare(requests, l.engine.clock.ReadMs()); err != nil {
		panic(err)
	}
	for _, i := range w.order {
		identifiers = append(identifiers, requests[i].Identifier)
	}
	return identifiers
}

func (h *Hold) Allowed() bool { return h.w.items[0].verdict.Allowed }
func (h *Hold) Undo()         { h.w.release(h.w.order, false, false) }
func (h *Hold) Keep() {
	it := &h.w.items[0]
	h.w.lowerMinLimits()
	h.w.release(h.w.order, true, true)
	it.verdict.Counted = it.cost
	h.limiter.engine.mark(it.entry, cell.Known, &it.verdict, &it.call, it.rule)
}

// Evicted returns the number of entries that were evicted for a cause.
func (l *Limiter) Evicted(cause string) int64 {
	return map[string]int64{"expired": l.engine.table.Evicted.Expired.Load(), "idle": l.engine.table.Evicted.Idle.Load(), "share": l.engine.table.Evicted.Share.Load()}[cause]
}

// UntrackedKeys returns the number of keys that are being decided without room in the table.
func (l *Limiter) UntrackedKeys() int64 { return l.engine.table.UntrackedKeys.Present.Load() }

// ReportFull logs a full table, as the sweep does.
func (l *Limiter) ReportFull() { l.reports.full.Full(l.engine.clock.Steady()) }

// Nodes returns the limiter's number of nodes in its region.
func (l *Limiter) Nodes() int64 { return l.engine.rules.InForce().Nodes }

// WaitingReads returns the number of reads that wait for a call.
func (l *Limiter) WaitingReads() (reads int) {
	for _, sh := range l.engine.out.Shards() {
		reads += sh.WaitingReads()
	}
	return reads
}

// CountOnly counts a request, and stops there.
func (l *Limiter) CountOnly(r Request) {
	id := l.engine.table.IdentityOf(r.Workspace, r.Namespace, r.Identifier, r.Duration, window.Exact)
	k, nowMs := r.key(), l.engine.clock.ReadMs()
	e, _ := l.engine.table.Add(&id, &k, nil, false, l.engine.table.Horizon(false), window.Sequence(nowMs, k.DurationMs()), nowMs)
	var v cell.Verdict
	if !e.Judge(&v, l.engine.table.Horizon(false), nowMs, k.DurationMs(), r.Limit, r.Cost, true) || !v.Allowed {
		panic("not counted")
	}
}

// Entry returns a value for the memory that holds a key now, nil for none. It equals an earlier value only if the key
// was not dropped in between.
func (l *Limiter) Entry(k window.Key) any {
	if e := l.entryOf(k); e != nil {
		return e
	}
	return nil
}

// SweepTick runs a tick of the sweep. It returns the number of examined entries.
func (l *Limiter) SweepTick() (looked int) {
	looked, _ = l.engine.table.Sweep(l.engine.clock.ReadMs())
	return looked
}

// BreakersOff lets every call to the origin through.
func (l *Limiter) BreakersOff() {
	for _, sh := range l.engine.out.Shards() {
		sh.TurnBreakersOff()
	}
}

// SyncOnce syncs the keys of the estimate mode that wait, in all shards.
func (l *Limiter) SyncOnce(ctx context.Context) error { return l.once(ctx, (*outbox.Shard).Sync) }

// Waiting returns the number of keys that wait for a sync, and the number of refused keys.
func (l *Limiter) Waiting() (keys int, refused int64) {
	for _, sh := range l.engine.out.Shards() {
		keys += sh.WaitingSyncs()
	}
	return keys, l.engine.out.Stats.SyncsRefused.Load()
}

// Asked reports whether a key waits for a sync, and not only to be sent.
func (l *Limiter) Asked(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.Estimates().WantsSync()
}

// Waits reports whether a key waits to be sent or synced.
func (l *Limiter) Waits(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.Flags().Asked()
}

// Claimants returns the number of costs that wait for the next call that claims.
func (l *Limiter) Claimants() (n int) {
	for _, sh := range l.engine.out.Shards() {
		n += sh.WaitingClaims()
	}
	return n
}

// HeldBack returns how often a new key was held back.
func (l *Limiter) HeldBack() int64 {
	times, _, _ := l.engine.table.NewKeys.HeldBack()
	return times
}
