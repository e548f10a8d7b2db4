package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// Reads of guests go together: those of a shard that come up during one call are one call, the next.
// A flood of keys without room so costs the origin calls in the pace of its answers, and not one a
// request.

const gatherMax = replayChunk / 2 // keys that one call reads, two cells of each

// gathered is a read that no call has been made for yet.
type gathered struct {
	flight  *cell.Flight
	entries []*cell.Entry
}

// readGuest is read for a guest.
func (l *Limiter) readGuest(now clock.Steady, e *cell.Entry) *cell.Flight {
	sh, lead := l.shardOf(e), false
	f := e.Join(now, func() (f *cell.Flight) {
		f, lead = sh.gather(e)
		return f
	})
	if lead && !l.calls.Start(func() { l.readGathered(sh) }) {
		for g := sh.takeGathered(); g != nil; g = sh.takeGathered() {
			g.flight.End(nil)
			g.flight.Fail(ErrStopped, now)
		}
	}
	return f
}

// readGathered makes calls until no read waits for one.
func (l *Limiter) readGathered(sh *shard) {
	for g := sh.takeGathered(); g != nil; g = sh.takeGathered() {
		l.fetch(g.flight, g.entries)
	}
}

// gather adds a guest to the next call; nil while the breaker is open. lead is true for the one
// who has to see to the calls.
func (sh *shard) gather(e *cell.Entry) (f *cell.Flight, lead bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := len(sh.gathered)
	if n == 0 || len(sh.gathered[n-1].entries) == gatherMax {
		end, ok := sh.asks.Begin()
		if !ok {
			return nil, false
		}
		sh.gathered = append(sh.gathered, &gathered{flight: cell.NewFlight(end)})
		n++
	}
	g := sh.gathered[n-1]
	g.entries = append(g.entries, e)
	lead = !sh.gathering
	sh.gathering = true
	return g.flight, lead
}

// takeGathered takes the next call's read; nil ends the lead.
func (sh *shard) takeGathered() *gathered {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.gathered) == 0 {
		sh.gathering = false
		return nil
	}
	g := sh.gathered[0]
	if sh.gathered = sh.gathered[1:]; len(sh.gathered) == 0 {
		sh.gathered = nil
	}
	return g
}
