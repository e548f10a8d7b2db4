package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	sweepInterval = time.Second
	drainPause    = 20 * time.Millisecond  // between two attempts of the final replay
	listenPause   = 200 * time.Millisecond // before a lost connection is tried again
)

// Start begins the loops: the sweep; with an origin, a replay and a listener for each of its shards; with
// Config.Settings, settings and heartbeats. It returns at once and waits for no server. The loops use the values of
// ctx, but they do not end with it: Stop ends them.
func (l *Limiter) Start(ctx context.Context) error {
	run := &l.loops
	ctx, ok := run.Start(ctx)
	if !ok {
		return ErrStarted
	}
	run.Go(func() { l.engine.clock.Run(ctx) })
	l.permits.Leases.Run(ctx, run.Go)
	sweepEvery := l.engine.rules.Cadence(func(*rules.Settings) time.Duration { return sweepInterval })
	run.every(ctx, sweepEvery, func(context.Context) {
		l.engine.sweep()
		l.reports.full.Full(l.engine.clock.Steady())
		l.reports.full.HeldBack(l.engine.clock.Steady())
	})
	tick := l.engine.rules.Cadence(func(s *rules.Settings) time.Duration { return s.Tuning.ReplayTick.Std() })
	for _, sh := range l.engine.out.Shards() {
		run.every(ctx, tick, run.watched("replay to shard "+sh.Label(), func(ctx context.Context) error {
			// Stop must not interrupt a send: its increments may have been applied, and would be sent again. The outbox bounds
			// the wait.
			return sh.Replay(context.WithoutCancel(ctx))
		}))
		run.every(ctx, tick, run.watched("sync with shard "+sh.Label(), func(ctx context.Context) error {
			return sh.Sync(context.WithoutCancel(ctx))
		}))
	}
	for _, sh := range l.engine.out.Shards() {
		run.Go(func() { sh.SendFlushes(ctx) })
	}
	for _, sh := range l.engine.out.Shards() {
		run.Go(func() {
			listen := run.watched("listening to shard "+sh.Label(), sh.Listen)
			listen(ctx)
			loop.Every(ctx, l.engine.rules.Cadence(func(*rules.Settings) time.Duration { return listenPause }), nil, listen)
		})
	}
	run.every(ctx, sweepEvery, run.watched("reservations", l.permits.Reservations.Send))
	if l.cfg.Settings == nil {
		return nil
	}
	run.Go(func() { l.engine.rules.EndTrials(ctx) })
	run.Go(func() {
		tend := run.background("settings", l.reports.tend)
		tend(ctx)
		every := l.engine.rules.Cadence(func(s *rules.Settings) time.Duration { return s.Tuning.SettingsEvery() })
		loop.Every(ctx, every, l.engine.rules.Changed, tend)
	})
	return nil
}

// Stop ends the loops and all leases. It then sends the remaining accepted cost to the origin and removes this node
// from the fleet, so that the other nodes' shares of the remaining limits grow when they next read their settings. It
// retries until ctx ends. If ctx has already ended, as a signal's context has, Stop tries for up to 5 s. It returns
// an error that names the counts which could not be sent.
//
// As soon as Stop is called, the limiter makes no other calls, and cost that it accepts is not sent. It decides by
// each namespace's outage policy, and otherwise from its own counts. Calls about reservations and tokens return
// ErrStopped or follow that policy. A second Stop returns nil at once.
func (l *Limiter) Stop(ctx context.Context) error {
	if !l.loops.Stop() {
		return nil
	}
	l.permits.Leases.End() // first, because waiting callers may be inside calls that Stop waits for
	l.calls.Stop()
	l.engine.out.Stop()
	l.permits.Reservations.Stop()
	ctx, done := loop.LastCalls(ctx)
	defer done()
	var errs []error
	if l.cfg.Origin != nil {
		errs = append(errs, l.engine.out.Drain(ctx))
	}
	if err := l.permits.Leases.Stop(ctx); err != nil { // after the counts, which would be lost; leases end by themselves
		errs = append(errs, fmt.Errorf("hand slots back: %w", err))
	}
	if l.cfg.Settings != nil {
		if err := l.reports.beat(ctx, true); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweep removes expired entries from the table, and corrects entries that are ahead of the clock. Each round sweeps
// some entries; a round after the clock was set back sweeps all of them. Otherwise the clock could reach the cell of
// an idle entry before the entry's turn, and cost that ended long ago would count again. The entry could also restore
// such cost to an origin that has lost its counts.
func (g *engine) sweep() {
	ticks := 1
	g.out.ForgetCells()
	if g.swept.setBack(g.clock.ReadMs(), g.clock.ReadSteady()) {
		ticks = g.table.SweepTicks()
	}
	for range ticks {
		_, unsent := g.table.Sweep(g.clock.ReadMs())
		g.out.Stats.Dropped[outbox.DroppedExpired].Add(unsent)
		g.usage.AcceptUnnamed(unsent)
	}
}

// reading is the time of the last sweep, by both clocks.
type reading struct {
	ms     int64
	steady clock.Steady
}

// setBack stores the time, and reports whether the wall clock was set back by more than store.ClockSetBack since the
// previous reading.
func (r *reading) setBack(ms int64, steady clock.Steady) bool {
	was := *r
	*r = reading{ms, steady}
	return was.steady != 0 && was.ms+int64(steady-was.steady)-ms > store.ClockSetBack.Milliseconds()
}
