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
// and those that are made while the region's origin does not answer. It keeps no counts: each hold is charged to the
// table's entry that has its cost, so a settlement that gives cost back makes room for every decision of this process.
// For example, a hold of 500 that is settled with 120 gives 380 back to the entry, and Allow may use them.
//
// Reservations end by Go's monotonic clock, which no step of the wall clock changes. All methods may be called
// concurrently, except init.
type local struct {
	rules  *rules.Rules
	engine Engine
	base   time.Time
	timer  *time.Timer // fires when the next hold ends or is forgotten

	mu     sync.Mutex
	group  *holds.Group
	making map[string]making // by ID: requests that are under way
}

// making is a request for a reservation of this process that is under way.
type making struct {
	by   Judge         // grants its holds
	out  bool          // the region's origin has not answered this request
	done chan struct{} // closed when the request has ended
}

func (l *local) init(cfg *Config) {
	l.rules, l.engine, l.base, l.making = cfg.Rules, cfg.Engine, time.Now(), make(map[string]making)
	l.group = holds.NewGroup(true)
	l.timer = time.AfterFunc(time.Hour, l.end)
	l.timer.Stop() // until there is a hold
}

// nowMs is in Unix ms, without the steps of the wall clock since the limiter was made.
func (l *local) nowMs() int64 { return l.base.UnixMilli() + time.Since(l.base).Milliseconds() }

// begin registers a request, whose judge grants the holds of the reservation until end is called. If another request
// with the ID is under way, begin waits until it has ended, or returns the error of ctx.
func (l *local) begin(ctx context.Context, id string, by Judge, out bool) (end func(), err error) {
	m := making{by, out, make(chan struct{})}
	for {
		l.mu.Lock()
		other, ok := l.making[id]
		if !ok {
			l.making[id] = m
			l.mu.Unlock()
			break
		}
		l.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.making, id)
		close(m.done)
	}, nil
}

// knows reports whether this process has a record of the ID. m is the request for a reservation with the ID, if one is
// under way.
func (l *local) knows(id string) (known bool, m making) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group.Knows(id, l.nowMs()), l.making[id]
}

// GroupOf implements store.Reservations. There is one group.
func (l *local) GroupOf(*window.Key) int { return 0 }

// ShardOf implements held.Origin.
func (l *local) ShardOf(*window.Key) int { return 0 }

// Hold implements store.Reservations.
func (l *local) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	if err := store.CheckHoldCall(&call); err != nil {
		return store.HoldReply{}, err
	}
	in := counts{local: l}
	if call.Record != nil && len(call.Holds) > 0 {
		if known, m := l.knows(call.Record.ID); !known && m.by != nil {
			in.charges = m.by.Grant(ctx, m.out) // it may wait for the region's origin, so no lock is held
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	nowMs := l.nowMs()
	reply := l.group.Apply(&call, &in, 0, nowMs)
	reply.Now = time.UnixMilli(nowMs)
	for i, charge := range in.charges {
		if _, held := l.group.Counts(&call.Holds[i]); !held && charge != nil {
			charge.Set(0)
		}
	}
	l.wake()
	return reply, nil
}

// wake sets the timer to when the next hold ends or is forgotten. The mutex is held.
func (l *local) wake() {
	if nextMs, ok := l.group.NextMs(); ok {
		l.timer.Reset(time.Until(l.base.Add(time.Duration(nextMs-l.base.UnixMilli()) * time.Millisecond)))
	}
}

// end ends and forgets the holds that are due.
func (l *local) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.End(l.nowMs())
	l.wake()
}

// trim forgets all reservations that have ended or were settled before HoldKeptFor has passed, to make room for others.
func (l *local) trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.Trim(l.nowMs())
}

// stop forgets all reservations. What they count stays in the table's entries.
func (l *local) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group = holds.NewGroup(true)
	l.timer.Stop()
}

// counts are the counts of this process, for one call.
type counts struct {
	*local
	charges []holds.Charge // of the call's new holds; none if they were not granted
}

// Expired implements holds.Counts. A charge to a cell that has expired changes nothing.
func (c *counts) Expired(window.Cell) bool { return false }

// Used implements holds.Counts.
func (c *counts) Used(of window.Cell, _ *holds.Cell) int64 {
	if reset, ok := c.rules.InForce().ResetOfCell(&of); ok && of.Sequence > 0 {
		return c.engine.Counted(&of, reset)
	}
	return 0
}

// Grant implements holds.Counts.
func (c *counts) Grant(i int, _ *store.Hold, _ *store.HoldAnswer) (charge holds.Charge, ok bool) {
	if i < len(c.charges) {
		charge = c.charges[i]
	}
	return charge, charge != nil
}
