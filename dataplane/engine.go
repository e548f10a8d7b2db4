package dataplane

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/denied"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/usage"
	"github.com/weirhq/weir/shared/window"
)

// engine decides single calls; a batch uses it to decide several calls at once. It changes the entries of its table,
// and reads and sends through its outbox. It has no loops: the Limiter runs them. All methods may be called
// concurrently.
type engine struct {
	clock        *clock.Clock
	table        *cell.Table
	out          *outbox.Outbox // to the origin
	calls        *loop.Calls    // to the origin, on behalf of decisions; once stopped, it makes none
	readTimeout  time.Duration  // how long one decision may wait in total
	clockSkewMax time.Duration  // how far a time that the caller passed may be from the clock
	regionNodes  int            // number of nodes that share the origin; 0: as many as send heartbeats
	alone        bool           // there is no origin
	marks        uint32         // flags that a decision sets on its entry; constant

	rules  rules.Rules    // the settings in force
	dirty  cell.DirtyList // entries whose counts changed
	swept  reading        // of the loop that sweeps
	stats  *stats
	denied denied.Log
	usage  usage.Book
}

// init sets all fields except the outbox and the settings in force.
func (g *engine) init(cfg *Config, calls *loop.Calls) {
	g.alone, g.marks, g.stats = cfg.Origin == nil, cell.Used, new(stats)
	g.clock = clock.New(cfg.Clock)
	g.table = cell.NewTable(cfg.EntriesMax, cfg.ClockSkewMax.Milliseconds(), g.clock, !g.alone)
	if !g.alone {
		g.marks |= cell.Dirty
		g.clock.WillFollow()
		g.table.Forgotten = func(e *cell.Entry, cost int64) {
			f := e.Names().Family()
			g.usage.TryAccept(f.Workspace, f.Namespace, cost)
		}
		g.table.NewKeys.Bound(int64(cfg.NewKeysMax))
	}
	g.calls = calls
	g.readTimeout, g.clockSkewMax, g.regionNodes = cfg.ReadTimeout, cfg.ClockSkewMax, cfg.RegionNodes
}

// call is a valid request with everything resolved, for the rest of the request path. It and everything that it
// points to are on the caller's stack.
type call struct {
	id         *cell.Identity
	request    *Request // its names, and its own duration; everything else is here
	nowMs      int64
	durationMs int64
	limit      int64
	own        int64 // limit of the request itself
	cost       int64
	ahead      int64 // in a batch: cost of the earlier items on the same key
	counts     *stripe
	until      time.Duration // since the clock's base: deadline of the decision's waits, 0 before the first
	horizon    *cell.Horizon // keeps nowMs from moving entries past the clock
	mode       window.Mode
	known      bool // nowMs is by the origin's clock, or there is no origin
	cached     bool // nowMs is the clock's cached time, and may be a little late
}

// counting reports whether the call counts if it is allowed.
func (c *call) counting() bool { return c.cost > 0 && !c.request.peek }

func (c *call) key() window.Key {
	k := c.request.key()
	k.Duration, k.Mode = milliseconds(c.durationMs), c.mode
	return k
}

// stripe returns the counters of the calling goroutine. local is any variable on its stack. The choice of a stripe
// only matters for speed, so a stack that moves does no harm.
func (m *stats) stripe(local *call) *stripe {
	return &m.decisions[stripeAt(local)]
}

func stripeAt(local *call) uintptr {
	at := uintptr(unsafe.Pointer(local))
	return (at>>11 ^ at>>17) % stripes
}

// stamp converts a time that the caller passed. It returns an error if the time is too far from the clock.
func (g *engine) stamp(now time.Time) (clock.Stamp, error) {
	at, skew, ok := g.clock.At(now, g.clockSkewMax)
	if !ok {
		return at, fmt.Errorf("%w: now is %v away from this node's clock (at most %v)", ErrInvalid, skew,
			g.clockSkewMax)
	}
	return at, nil
}

// settle moves a call that has read another clock to the origin's clock. It reports whether it moved the call.
func (g *engine) settle(c *call) (settled bool) {
	if c.known || !g.clock.Known() {
		return false
	}
	c.known, c.nowMs = true, g.clock.Settle(c.nowMs, c.horizon.Given(), g.clockSkewMax)
	return true
}

// wallMs converts a time of the steady clock to the wall clock's current time scale, in Unix ms; 0 stays 0. When the
// wall clock is corrected, times kept by the steady clock are correct at once.
func (g *engine) wallMs(at clock.Steady) int64 {
	if at == 0 {
		return 0
	}
	return g.clock.WallOf(at, g.clock.ReadMs()).UnixMilli()
}
