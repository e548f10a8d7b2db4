package hunt

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// ledger is what callers were granted, written down outside of the limiters.
type ledger struct {
	world *world

	mu       sync.Mutex
	accounts []*account // in the order of first use
	byName   map[window.Cell]*account
	decided  map[claimID]bool // claims that origins have added
	asked    map[asking]int64 // cost of batches that have no answer yet
	unsent   map[sending]time.Time

	decisions atomic.Int64
}

// account is one cell.
type account struct {
	cell    window.Cell
	key     int
	entries []*entry  // by life, in the order of first use
	credit  []int64   // by region: what was claimed, as far as callers know, and not granted
	claims  [][]claim // by region: those that its origin has added
}

type claim struct {
	cost int64
	at   time.Time
}

// claimID is what an origin knows a claim by. What it has decided it forgets with its epoch.
type claimID struct {
	stream uint64
	number int64
	place  int // in its call
	cell   window.Cell
	epoch  store.Epoch
}

// asking is a key whose cost the nodes of a region are deciding on.
type asking struct {
	region     int
	identifier string
}

// sending is what a life sends to a part of its origin. While that refuses to count, ledger.unsent has when the life
// first accepted a cost that it could not send.
type sending struct {
	life *life
	part int
}

// waits is longer than a request does.
const waits = 300 * time.Millisecond

// entry is what one life accepted in a cell: at least low, once all reservations are settled, and at most high.
type entry struct {
	life      *life
	low, high int64
	unknown   int64 // granted besides low: it may be in the node's sketch alone
	atStop    int64 // of low: what Stop had to send
	limit     int64 // the highest that any of it was granted by
}

func cellName(c window.Cell) string {
	name := fmt.Sprintf("%s/%v cell %d", c.Key.Identifier, c.Key.Duration, c.Sequence)
	if c.Generation > 0 {
		name += fmt.Sprintf(" after reset %d", c.Generation)
	}
	return name
}

func (g *ledger) account(cell window.Cell) *account {
	a := g.byName[cell]
	if a == nil {
		named := func(k Key) bool { return k.Name == cell.Identifier }
		key := slices.IndexFunc(g.world.plan.Fleet.Keys, named)
		a = &account{cell: cell, key: key, credit: make([]int64, len(g.world.regions)),
			claims: make([][]claim, len(g.world.regions))}
		g.byName[cell] = a
		g.accounts = append(g.accounts, a)
	}
	return a
}

func (a *account) entry(l *life) *entry {
	for _, e := range a.entries {
		if e.life == l {
			return e
		}
	}
	e := &entry{life: l}
	a.entries = append(a.entries, e)
	return e
}

// grant writes down what a decision granted, in one of some cells, and whether the origin gets to know it.
func (g *ledger) grant(l *life, cells []window.Cell, cost, limit int64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(l, cells, cost, known)
	for _, cell := range cells {
		e := g.account(cell).entry(l)
		granted := e.low
		if len(cells) == 1 {
			granted += e.unknown
		}
		if e.limit = max(e.limit, limit); granted > e.limit && g.strict(cell) {
			g.world.record.violate("1", "%v granted %d of %d in %s", l, granted, e.limit, cellName(cell))
		}
		g.strictLocked(l, cell, limit)
		if e.unknown > e.limit && g.remembers(cell) {
			g.world.record.violate("13", "%v granted %d of %d in %s without its origin's answer", l, e.unknown, e.limit,
				cellName(cell))
		}
	}
}

// strictLocked holds a life in a closed namespace to granting nothing beyond a limit once it must have noticed that its
// origin refuses to count. Below the limit, and before that, what nodes have accepted adds up.
func (g *ledger) strictLocked(l *life, cell window.Cell, limit int64) {
	p, r := g.world.plan, l.node.region
	if !p.Fleet.Strict || cell.Mode != window.Exact || l.ended.Load() {
		return
	}
	at := sending{l, r.origin.ShardOf(&cell.Key)}
	refusedFor := r.refusals.refusedFor(at.part, memstore.OpSend)
	if p.claims() {
		refusedFor = min(refusedFor, r.refusals.refusedFor(at.part, memstore.OpClaim))
	}
	first, is := g.unsent[at]
	switch {
	case refusedFor == 0:
		delete(g.unsent, at)
		return
	case !is || time.Since(first) > refusedFor:
		g.unsent[at] = time.Now()
		return
	}
	granted := int64(0)
	for _, e := range g.account(cell).entries {
		if e.life.node.region == r {
			granted += e.low + e.unknown
		}
	}
	if granted > limit && time.Since(first) > p.noticed() {
		g.world.record.violate("closed", "%v grants what makes %d of %d in %s, and its origin refuses to count since %v",
			l, granted, limit, cellName(cell), refusedFor)
	}
}

// noticed is how long a node of a closed namespace may take to notice that its origin refuses to count what it has
// accepted: two sends in a row fail, and a decision was under way meanwhile. Calls that also get lost may take
// replay's timeout of a second each.
func (p Plan) noticed() time.Duration {
	t := 3*p.slowest().ReplayTick.Std() + 4*p.Fleet.OriginTrip + readTimeout
	if p.changes(Cut, Refuse, Mute, Slow, Repeat) {
		t += 2 * time.Second
	}
	if p.claims() || p.changes(Refund, Reserve, Hurry) {
		t += idleEvery
	}
	return t
}

// idleEvery is how often a node sends a chunk without costs while it has nothing to send. A cost that its credit pays
// for is not sent, so nothing else shows the node then that its origin refuses to count.
const idleEvery = time.Second

// strict tells whether a life's grants in a cell stay within a limit: settling may charge more than a limit, and in
// the estimate mode leaks drain. A node that hears late of a reset begins its key anew, and knows what it has
// accepted since if its origin answers, and the caller waits. So does one that has forgotten the key for want of
// room.
func (g *ledger) strict(cell window.Cell) bool {
	p := g.world.plan
	alone := p.losesCalls() || p.changes(Wipe, Failover, Hurry)
	late := alone && p.changes(Reset) || p.mayFill() && (alone || p.changes(Kill, Die, Stop, Leave))
	return cell.Mode == window.Exact && !p.changes(Reserve) && !late
}

// remembers tells whether what a life grants without its origin's answer stays within a limit: the sketch of a full
// table never under-counts. In a second outage it may begin anew with what the origin has got to know since the
// first.
func (g *ledger) remembers(cell window.Cell) bool {
	p, outages := g.world.plan, 0
	for _, s := range p.Steps {
		switch {
		case s.Do == Cut || s.Do == Refuse || s.Do == Kill || s.Do == Die:
			outages++
		case s.Do.isFault():
			return false
		}
	}
	return cell.Mode == window.Exact && outages == 1 && !p.changes(Reserve, Reset, Hurry)
}

// settle writes down that a reservation changed by so much.
func (g *ledger) settle(l *life, cells []window.Cell, change int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(l, cells, change, !g.world.plan.mayFill())
}

// changeLocked adds to what is accepted in one of some cells: if there are two, none of them need have it.
func (g *ledger) changeLocked(l *life, cells []window.Cell, change int64, known bool) {
	for _, cell := range cells {
		e := g.account(cell).entry(l)
		e.high += max(0, change)
		e.atStop += min(0, change) // Stop may not have sent it yet
		switch {
		case change < 0 || len(cells) == 1 && known:
			e.low += change
		case len(cells) == 1:
			e.unknown += change
		}
	}
}

// ungranted writes down that a node may have credit in any of some cells.
func (g *ledger) ungranted(r *region, cells []window.Cell, cost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cell := range cells {
		g.account(cell).credit[r.index] += cost
	}
}

// claimed writes down that an origin has added a claim, and tells whether it had not yet: one that it decides again
// is added once.
func (g *ledger) claimed(r *region, id claimID, cost int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decided[id] {
		return false
	}
	g.decided[id] = true
	a := g.account(id.cell)
	a.claims[r.index] = append(a.claims[r.index], claim{cost, time.Now()})
	return true
}

// notGranted is what a region's origin may have added for claims that were not granted, or were not yet: no more than
// it has added, nor than what was claimed by callers that were denied, or have no answer yet.
func (a *account) notGranted(r *region) int64 {
	added, lately := int64(0), int64(0)
	for _, c := range a.claims[r.index] {
		added += c.cost
		if time.Since(c.at) < waits {
			lately += c.cost
		}
	}
	return min(added, a.credit[r.index]+lately)
}

// withoutAnswer writes down a decision that a node of a fleet that claims has made without the origin's answer. What
// it had claimed has paid for what it grants; credit is what it had claimed and denies, or had claimed in the cell
// before.
func (g *ledger) withoutAnswer(r *region, cells []window.Cell, cost int64, granted bool) {
	if !granted {
		g.ungranted(r, cells, cost)
	}
	now := time.Now().Add(g.world.plan.Fleet.Ahead[r.index])
	for _, cell := range cells {
		if began := window.Start(cell.Sequence, cell.DurationMs()); now.Add(-waits).UnixMilli() < began {
			cell.Sequence--
			g.ungranted(r, g.world.names(cell), cost)
		}
	}
}

// batch writes down the cost of a batch until its caller has the answer. A node sends a batch's cost on untracked keys
// before it answers, so its origin and other regions may know the cost earlier than the caller does.
func (g *ledger) batch(r *region, keys []int, costs []int64) (answered func()) {
	add := func(sign int64) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, key := range keys {
			g.asked[asking{r.index, g.world.plan.Fleet.Keys[key].Name}] += sign * costs[i]
		}
	}
	add(1)
	return func() { add(-1) }
}

// ends writes down what a life has to send that is stopped: what it accepts from now on it does not send.
func (g *ledger) ends(l *life) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.accounts {
		for _, e := range a.entries {
			if e.life == l {
				e.atStop = e.low
			}
		}
	}
}

// kept is what a region's origin must hold of an entry. What ended lives accepted may be lost with them, unless they
// were stopped, say that they have sent it, and their origin loses nothing.
func (g *ledger) kept(e *entry) int64 {
	switch {
	case !e.life.ended.Load():
		return e.low
	case e.life.Sent.Load() && !g.forgets(e.life.node.region):
		return min(e.atStop, e.low)
	}
	return 0
}

// forgets tells whether a region's origin ever loses its counts.
func (g *ledger) forgets(r *region) bool {
	return slices.ContainsFunc(g.world.plan.Steps, func(s Step) bool {
		return s.Region == r.index && (s.Do == Wipe || s.Do == Failover)
	})
}

// bounds are what a region's origin must hold of a cell at least, in the end, and may hold at most, ever.
func (g *ledger) bounds(r *region, cell window.Cell) (low, high int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	high = g.asked[asking{r.index, cell.Identifier}]
	a := g.byName[cell]
	if a == nil {
		return 0, high
	}
	high += a.notGranted(r)
	for _, e := range a.entries {
		if e.life.node.region != r {
			continue
		}
		high += e.high
		low += g.kept(e)
	}
	if g.world.plan.mayFill() && g.forgets(r) {
		low = 0 // what a full table has forgotten it does not restore
	}
	return low, high
}

// others is what all regions besides one may have accepted at most.
func (g *ledger) others(r *region, cell window.Cell) (most int64) {
	for _, other := range g.world.regions {
		if other != r {
			_, high := g.bounds(other, cell)
			most += high
		}
	}
	return most
}

// exact tells whether a cell can influence a decision of the exact mode.
func (a *account) exact() bool { return a.cell.Mode == window.Exact && a.live(time.Now()) }

// live tells whether a cell can influence a decision at a time, by every clock.
func (a *account) live(now time.Time) bool {
	const clocks = 10 * time.Second
	return window.ExpiresAt(a.cell.Sequence, a.cell.Key.Duration.Milliseconds()) > now.Add(clocks).UnixMilli()
}

// all are the accounts of now.
func (g *ledger) all() []*account {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.accounts)
}

// usedIn tells whether a region's nodes that are left have accepted any cost of a cell.
func (g *ledger) usedIn(r *region, a *account) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(a.entries, func(e *entry) bool {
		return e.life.node.region == r && e.low > 0 && !e.life.ended.Load()
	})
}
