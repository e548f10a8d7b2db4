package permits

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// local is the origin of the reservations that only this process has: all of them if the region has no store.Granter,
// and reservations that are made while the region's origin does not answer. It keeps no counts: each hold is charged to
// the table's entry that has its cost, so a settlement that gives cost back makes room for every decision of this
// process. For example, a hold of 500 that is settled with 120 gives 380 back to the entry, and Allow can use them.
//
// Reservations end by Go's monotonic clock, which no step of the wall clock changes. All methods may be called
// concurrently, except init and the methods of holds.Counts, which only the group should call.
type local struct {
	rules   *rules.Rules
	engine  Engine
	flights *flights // their judges grant holds
	base    time.Time
	timer   *time.Timer // fires when the next hold ends or is forgotten, or earlier

	mu      sync.Mutex
	group   *holds.Group
	firesMs int64          // when the timer fires, 0: it is stopped
	charges []holds.Charge // of the new holds of the call that the group applies; none if they were not granted
}

func (l *local) init(cfg *Config, requests *flights) {
	l.rules, l.engine, l.flights, l.base = cfg.Rules, cfg.Engine, requests, time.Now()
	l.group = holds.NewGroup(true)
	l.timer = time.AfterFunc(time.Hour, l.end)
	l.timer.Stop() // until there is a hold
}

// nowMs returns the time in Unix ms, without the steps of the wall clock since the limiter was made.
func (l *local) nowMs() int64 { return l.base.UnixMilli() + time.Since(l.base).Milliseconds() }

// knows reports whether this process has a record of the ID.
func (l *local) knows(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group.Knows(id, l.nowMs())
}

// GroupOf implements store.Reservations. There is a single group.
func (l *local) GroupOf(*window.Key) int { return 0 }

// ShardOf implements held.Origin.
func (l *local) ShardOf(*window.Key) int { return 0 }

// Hold implements store.Reservations.
func (l *local) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	if err := store.CheckHoldCall(&call); err != nil {
		return store.HoldReply{}, err
	}
	var charges []holds.Charge
	if call.Record != nil && len(call.Holds) > 0 {
		if judge, out := l.flights.judge(call.Record.ID); judge != nil && !l.knows(call.Record.ID) {
			charges = judge.Grant(ctx, out) // it may wait for the region's origin, so no lock is held
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	nowMs := l.nowMs()
	l.charges = charges
	reply := l.group.Apply(&call, l, 0, nowMs)
	l.charges = nil
	reply.Now = time.UnixMilli(nowMs)
	for i, charge := range charges {
		if _, held := l.group.Counts(&call.Holds[i]); !held && charge != nil {
			charge.Set(0)
		}
	}
	l.wake()
	return reply, nil
}

// wake sets the timer to when the next hold ends or is forgotten, unless it fires before that. The mutex is held.
func (l *local) wake() {
	if nextMs, ok := l.group.NextMs(); ok && (l.firesMs == 0 || nextMs < l.firesMs) {
		l.firesMs = nextMs
		l.timer.Reset(time.Until(l.base.Add(time.Duration(nextMs-l.base.UnixMilli()) * time.Millisecond)))
	}
}

// end ends and forgets the holds that are due.
func (l *local) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.firesMs = 0
	l.group.End(l.nowMs())
	l.wake()
}

// trim forgets all reservations that have ended or were settled before HoldKeptFor has passed, to make room for others.
func (l *local) trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.Trim(l.nowMs())
}

// stop drops all reservations. The cost that they count stays in the table's entries.
func (l *local) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group = holds.NewGroup(true)
	l.timer.Stop()
	l.firesMs = 0
}

// Expired implements holds.Counts. A charge to a cell that has expired changes nothing.
func (l *local) Expired(window.Cell) bool { return false }

// Used implements holds.Counts.
func (l *local) Used(c *window.Cell, _ *holds.Cell) int64 {
	if reset, ok := l.rules.InForce().ResetOfCell(c); ok && c.Sequence > 0 {
		return l.engine.Counted(c, reset)
	}
	return 0
}

// Grant implements holds.Counts. The mutex is held.
func (l *local) Grant(i int, _ *store.Hold, _ *store.HoldAnswer) (charge holds.Charge, ok bool) {
	if i < len(l.charges) {
		charge = l.charges[i]
	}
	return charge, charge != nil
}
