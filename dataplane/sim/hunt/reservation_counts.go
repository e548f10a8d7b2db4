package hunt

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// bounds returns how much an item of a reservation counts in a cell now, at least and at most.
func (g *reservations) bounds(r *reservation, item int, cell window.Cell) (low, high int64) {
	now := time.Now()
	stray, main, alone := int64(0), false, true
	for _, a := range r.attempts {
		cost, in := a.step.Costs[item], slices.Contains(a.cells[item], cell)
		if cost == 0 {
			continue
		}
		first := r.acked == nil || r.acked == a || a.began.Before(r.made) // this attempt may have made the reservation
		if first {
			main, alone = main || in, alone && in && len(a.cells[item]) == 1
		}
		if in && a.mayBeAlone() {
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
	}) { // its answer was lost, and another caller has settled it
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

// restatedWithin is how long nodes take to find out that a replica lacks reservations, and to state them again: a node
// with nothing to send makes a call once a second.
const restatedWithin = 4 * time.Second

// restated reports whether a promoted replica that may have lacked a reservation must have it again: nodes have had the
// time, and the nodes that have made calls about it are there and were answered.
func (g *reservations) restated(r *reservation) bool {
	return !r.emptied && len(r.attempts) == 1 && time.Since(r.lostAt) > restatedWithin &&
		!slices.ContainsFunc(r.callers, func(l *life) bool { return !l.answersSince(r.lostAt) })
}

// strays reports whether an attempt's holds may be at the origin, whatever became of the reservation.
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
	// In several groups another node makes its holds before it finds that the ID is taken, and then takes them back.
	several := g.world.plan.Fleet.Parts() > 1
	return r.acked == nil || r.lost || r.local || several || !a.sameCells(r.acked) || !a.began.Before(r.ends)
}

// sum returns how much all other reservations count in a cell.
func (g *reservations) sum(at heldCell, besides *reservation) (low, high int64) {
	for _, r := range g.all {
		if r.region != at.region || r == besides {
			continue
		}
		for i := range plan.CostsMax {
			least, most := g.bounds(r, i, at.cell)
			low, high = low+least, high+most
		}
	}
	return low, high
}

// unstated returns how much of the reservations in a cell may still be missing in totals. The holds of a reservation in
// several groups are tentative until its node has stated them once more, which it does each second until it has an
// answer.
func (g *reservations) unstated(at heldCell) (low int64) {
	if g.world.plan.Fleet.Parts() <= 1 {
		return 0
	}
	for _, r := range g.all {
		if r.region != at.region || r.acked == nil || r.acked.clean || slices.ContainsFunc(r.callers, func(l *life) bool {
			return l.answersSince(time.Now().Add(-restatedWithin))
		}) {
			continue
		}
		for i := range plan.CostsMax {
			least, _ := g.bounds(r, i, at.cell)
			low += least
		}
	}
	return low
}

// count records how much all reservations count now, and compares origins with it. The mutex is held.
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
		stated := low - g.unstated(at)
		c.least, c.most = max(c.least, stated), max(c.most, high)
		if _, is := totals[at.region.index][at.cell]; c.wrong {
			continue
		} else if is {
			g.probe(at, c, low, high)
		} else if stated > 0 {
			c.wrong = true
			g.violate("held", "%s holds nothing of %s, and %d are reserved", at.region.name, cellName(at.cell), stated)
		}
	}
}

// probeStream is a stream that no node uses.
const probeStream = 1

// probe compares an origin's count of a cell with the count of its reservations.
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

// byThemselves returns how much nodes may have reserved in a cell by themselves, in an outage. It counts like other
// cost, on top of the most that was ever held, because only holds use the room below that.
func (g *reservations) byThemselves(at heldCell) (cost int64) {
	for _, r := range g.all {
		if r.region != at.region {
			continue
		}
		for i := range plan.CostsMax {
			most := int64(0)
			for _, a := range r.attempts {
				if slices.Contains(a.cells[i], at.cell) && a.mayBeAlone() {
					most = max(most, a.step.Costs[i], r.most[i])
				}
			}
			cost += most
		}
	}
	return cost
}

// rooms records how much the limit leaves for an attempt, at most. The mutex is held.
func (g *reservations) rooms(a *attempt) {
	nowMs := g.origins(a.of.region, time.Now()).UnixMilli()
	for i := range a.step.Items() {
		limit := g.world.plan.Fleet.HeldKey(a.step.Key, i).Limit
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

// lose records that an origin forgets a part of its data, or all.
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

// countAgain counts at the time by which nodes must have stated again all reservations that a promoted replica lacks.
func (g *reservations) countAgain() {
	time.Sleep(restatedWithin + time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
}

// mostElsewhere returns the most that reservations of all other regions have counted in a cell at any moment.
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

// others returns the most that all other regions have accepted in a cell.
func (w *world) others(r *region, cell window.Cell) int64 {
	if cell.Namespace == heldNamespace {
		return w.reservations.mostElsewhere(r, cell)
	}
	return w.ledger.others(r, cell)
}

// alive returns the cells that have not ended long ago.
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

// look makes a call about every reservation at every node, once nothing fails any more.
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
