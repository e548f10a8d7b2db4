package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/denied"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// engine decides calls, one at a time; a batch decides several at once with it. It changes the entries of its table,
// and reads and sends through its outbox. It has no loops: the Limiter runs those. All methods may be called
// concurrently.
type engine struct {
	clock        *clock.Clock
	table        *cell.Table
	out          *outbox.Outbox // to the origin
	calls        *loop.Calls    // to the origin, on behalf of decisions; none is made once they are stopped
	readTimeout  time.Duration  // how long one decision waits in all
	clockSkewMax time.Duration  // how far a time that the caller passed may be from the clock
	regionNodes  int            // how many nodes share the origin; 0: as many as send heartbeats
	alone        bool           // there is no origin
	marks        uint32         // flags that a decision sets on its entry; constant

	rules  rules.Rules    // the settings in force
	dirty  cell.DirtyList // entries whose counts changed
	stats  *stats
	denied denied.Log
}

// init sets what the engine shares with its limiter. Its rules and its list of dirty entries are ready before.
func (g *engine) init(l *Limiter) {
	g.clock, g.table, g.out, g.calls = l.clock, l.table, l.out, &l.calls
	g.readTimeout, g.clockSkewMax, g.regionNodes = l.cfg.ReadTimeout, l.cfg.ClockSkewMax, l.cfg.RegionNodes
	g.alone, g.marks, g.stats = l.alone(), cell.Used, new(stats)
	if !g.alone {
		g.marks |= cell.Dirty
	}
}
