package hunt

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// bounds are what an item of a reservation counts in a cell now.
func (g *reservations) bounds(r *reservation, item int, cell window.Cell) (low, high int64) {
	now := time.Now()
	stray, main, alone := int64(0), false, true
	for _, a := range r.attempts {
		cost, in := a.step.Costs[item], slices.Contains(a.cells[item], cell)
		if cost == 0 {
			continue
		}
		first := r.acked == nil || r.acked == a || a.began.Before(r.made) // it may be what was made
		if first {
			main, alone = main || in, alone && in && len(a.cells[item]) == 1
		}
		if in && r.local {
			high += max(cost, r.most[item])
		}
		if in && a != r.acked && (r.lost || g.strays(a)) { // each attempt has holds of its own
			if stray += cost; r.acked == nil || r.lost {
				stray = max(stray, r.most[item])
			}
		}
	}
	if r.acked == nil && r.settled && slices.ContainsFunc(r.attempts, func(a *attempt) bool {
		return slices.Contains(a.cells[item], cell)
	}) { // its answer was lost, and somebody has settled it all the same
		stray = max(stray, r.most[item])
	}
	if !main || r.acked == nil {
		return 0, high + stray
	}
	cost, returned := r.acked.step.Costs[item], r.acked.step.Returned
	switch {
	case r.words && !r.lost:
		high += r.final[item] + stray
	case now.After(r.over) && returned && !r.lost:
		high += r.most[item] + stray
	default:
		high += max(cost, r.most[item]) + stray
	}
	switch {
	case r.local || !alone:
	case r.lost:
		if g.restated(r) && !r.closed && (now.Before(r.ends) || !returned) {
			low = cost
		}
	case r.words:
		low = r.final[item]
	case !r.closed && (now.Before(r.ends) || !returned):
		low = max(cost, r.least[item])
	default:
		low = r.least[item]
	}
	return low, high
}

// restatedWithin is how long nodes take to find out that a replica lacks reservations, and to state these again: a node
// that has nothing to send asks once a second.
const restatedWithin = 4 * time.Second

// restated reports whether a promoted replica must have a reservation again that it may have lacked: nodes have had the
// time, and those that have made calls about it are there and were answered.
func (g *reservations) restated(r *reservation) bool {
	return !r.emptied && len(r.attempts) == 1 && time.Since(r.lostAt) > restatedWithin &&
		!slices.ContainsFunc(r.callers, func(l *life) bool { return !l.answersSince(r.lostAt) })
}

// strays tells whether the holds of an attempt may be there, whatever became of the reservation.
func (g *reservations) strays(a *attempt) bool {
	r := a.of
	switch {
	case a.returned.IsZero():
		return true // it is under way, or its caller has ended
	case a.over && r.acked == nil:
		return true
	case a.clean:
		return false
	case a.step.Returned && time.Since(a.returned) > a.step.After+g.slack()+10*time.Second:
		return false
	}
	// In several groups another node holds before it finds that the ID is taken, and then takes that back.
	several := g.world.plan.Fleet.parts() > 1
	return r.acked == nil || r.lost || r.local || several || !a.sameCells(r.acked) || !a.began.Before(r.ends)
}

// sum is what all reservations count in a cell, besides one.
func (g *reservations) sum(at heldCell, besides *reservation) (low, high int64) {
	for _, r := range g.all {
		if r.region != at.region || r == besides {
			continue
		}
		for i := range costsMax {
			least, most := g.bounds(r, i, at.cell)
			low, high = low+least, high+most
		}
	}
	return low, high
}

// count takes note of what all reservations count now, and holds origins to it. The mutex is held.
func (g *reservations) count() {
	var order []heldCell
	for _, r := range g.all {
		for _, a := range r.attempts {
			for _, cells := range a.cells {
				for _, cell := range cells {
					at := heldCell{r.region, cell}
					if g.cells[at] == nil {
						g.cells[at] = &heldCount{}
					}
					if !slices.Contains(order, at) {
						order = append(order, at)
					}
				}
			}
		}
	}
	for _, a := range g.asks {
		g.rooms(a)
	}
	totals := make([]map[window.Cell]store.Total, len(g.world.regions))
	for i, r := range g.world.regions {
		totals[i] = r.origin.Totals()
	}
	for _, at := range order {
		c := g.cells[at]
		low, high := g.sum(at, nil)
		high += c.back
		c.least, c.most = max(c.least, low), max(c.most, high)
		if _, is := totals[at.region.index][at.cell]; c.wrong {
			continue
		} else if is {
			g.probe(at, c, low, high)
		} else if low > 0 {
			c.wrong = true
			g.violate("held", "%s holds nothing of %s, and %d are reserved", at.region.name, cellName(at.cell), low)
		}
	}
}

// probeStream is of calls that no node has made.
const probeStream = 1

// probe holds what an origin counts in a cell to what reservations count.
func (g *reservations) probe(at heldCell, c *heldCount, low, high int64) {
	before := at.cell
	before.Sequence--
	key, origin := at.cell.Key, at.region.client()
	reply, err := origin.Hold(context.Background(), store.HoldCall{Group: key, Stream: probeStream,
		Holds: []store.Hold{{Owner: "probe", Cell: at.cell, Before: before, TTL: time.Minute}}})
	if err != nil {
		g.violate("error", "probe %s: %v", cellName(at.cell), err)
		return
	}
	total := reply.Answers[0].Total
	used := reply.Answers[0].Used - total.Foreign
	most := c.most + g.byThemselves(at)
	c.wrong = used < low || used > high || total.Region < c.least || total.Region > most
	if used < low || used > high {
		g.violate("held", "%s counts %d of %s, and %d to %d are reserved or were spent", at.region.name, used,
			cellName(at.cell), low, high)
	}
	if total.Region < c.least || total.Region > most {
		g.violate("held", "%s holds %d of %s, and %d to %d were reserved or spent at any moment", at.region.name,
			total.Region, cellName(at.cell), c.least, most)
	}
}

// byThemselves is what nodes may have reserved in a cell by themselves, in an outage. It counts as other cost does: on
// top of the most that was ever held, because only holds use the room below that.
func (g *reservations) byThemselves(at heldCell) (cost int64) {
	for _, r := range g.all {
		if r.region != at.region || !r.local {
			continue
		}
		for i := range costsMax {
			most := int64(0)
			for _, a := range r.attempts {
				if slices.Contains(a.cells[i], at.cell) {
					most = max(most, a.step.Costs[i], r.most[i])
				}
			}
			cost += most
		}
	}
	return cost
}

// rooms takes note of what is left for an attempt, at most. The mutex is held.
func (g *reservations) rooms(a *attempt) {
	nowMs := g.origins(a.of.region, time.Now()).UnixMilli()
	for i := range a.step.items() {
		limit := g.world.plan.Fleet.heldKey(a.step.Key, i).Limit
		for cell := range a.room[i] {
			before := cell
			before.Sequence--
			low, _ := g.sum(heldCell{a.of.region, cell}, a.of)
			was, _ := g.sum(heldCell{a.of.region, before}, a.of)
			durationMs := cell.DurationMs()
			uncovered := min(max(0, window.Start(cell.Sequence+1, durationMs)-nowMs), durationMs)
			room := limit - low - was*uncovered/durationMs
			a.room[i][cell] = max(a.room[i][cell], room)
		}
	}
}

// lose has an origin forget something, or all.
func (g *reservations) lose(r *region, all bool, forget func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	forget()
	for _, held := range g.all {
		if held.region == r {
			held.lost, held.emptied, held.lostAt = true, held.emptied || all, time.Now()
		}
	}
	for at, c := range g.cells {
		if at.region == r {
			c.least, c.back = 0, c.most
		}
	}
}

// countAgain counts once nodes must have stated again what a promoted replica lacks.
func (g *reservations) countAgain() {
	time.Sleep(restatedWithin + time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
}

// mostElsewhere is what reservations of all other regions have counted in a cell at any moment, at most.
func (g *reservations) mostElsewhere(r *region, cell window.Cell) (most int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for at, c := range g.cells {
		if at.region != r && at.cell == cell {
			most += c.most + g.byThemselves(at)
		}
	}
	return most
}

// others is what all regions besides one have accepted in a cell at most.
func (w *world) others(r *region, cell window.Cell) int64 {
	if cell.Namespace == heldNamespace {
		return w.reservations.mostElsewhere(r, cell)
	}
	return w.ledger.others(r, cell)
}

// alive are the cells that have not ended long ago.
func (g *reservations) alive(since time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for at := range g.cells {
		if at.cell.ExpiresAtMs() > since.UnixMilli() {
			n++
		}
	}
	return n
}

// look has all nodes be asked about all reservations, once nothing fails any more.
func (g *reservations) look() {
	for _, r := range g.all {
		if r.acked == nil {
			continue
		}
		for _, l := range r.region.here() {
			g.change(l, Step{Do: CancelHold, ID: r.number, Region: r.region.index})
		}
	}
}
