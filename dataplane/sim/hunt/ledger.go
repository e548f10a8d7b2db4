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

// ledger records the grants that callers received, outside of the limiters.
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

// account is the ledger of one cell.
type account struct {
	cell    window.Cell
	key     int
	entries []*entry  // by life, in the order of first use
	credit  []int64   // by region: cost that was claimed, as far as callers can tell, and not granted
	claims  [][]claim // by region: claims that its origin has added
}

type claim struct {
	cost int64
	at   time.Time
}

// claimID identifies a claim at an origin. The origin forgets decided claims with its epoch.
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

// sending names a life and the part of its origin to which it sends. While that part refuses to count, ledger.unsent
// has the time at which the life first accepted a cost that it could not send.
type sending struct {
	life *life
	part int
}

// waits is longer than a request may take.
const waits = 300 * time.Millisecond

// entry holds the bounds of the cost that a life accepted in a cell: at least low, once all reservations are settled,
// and at most high.
type entry struct {
	life      *life
	low, high int64
	unknown   int64 // granted in addition to low: perhaps only the node's sketch has it
	atStop    int64 // the part of low that Stop had to send
	limit     int64 // the highest limit by which any of it was granted
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

// grant records a decision's grant, which counts in one of the given cells, and whether the origin receives it.
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

// strictLocked checks a life in a closed namespace: it must grant nothing beyond a limit once it must have noticed that
// its origin refuses to count. Below the limit, and before that moment, cost accepted by several nodes adds up.
func (g *ledger) strictLocked(l *life, cell window.Cell, limit int64) {
	p, r := g.world.plan, l.node.region
	if !p.Fleet.Strict || cell.Mode != window.Exact || l.ended.Load() {
		return
	}
	at := sending{l, r.origin.ShardOf(&cell.Key)}
	refusedFor := r.refusals.refusedFor(at.part, memstore.OpSend)
	if p.Claims() {
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
	if granted > limit && time.Since(first) > g.noticed() {
		g.world.record.violate("closed",
			"%v grants a cost after which %d of %d are in %s, and its origin refuses to count since %v", l,
			granted, limit, cellName(cell), refusedFor)
	}
}

// noticed returns how long a node of a closed namespace may take to notice that its origin refuses to count its cost:
// two sends in a row fail, and a decision was under way meanwhile. Calls that also get lost may take replay's timeout
// of a second each.
func (g *ledger) noticed() time.Duration {
	p := g.world.plan
	t := 3*p.Slowest().ReplayTick.Std() + 4*p.Fleet.OriginTrip + readTimeout
	if p.Changes(Cut, Refuse, Mute, Slow, Repeat) {
		t += 2 * time.Second
	}
	if p.Claims() || p.Changes(Refund, Reserve, Hurry) {
		t += idleEvery
	}
	return t
}

// idleEvery is how often a node sends a chunk without costs while it has nothing to send. A cost that its credit pays
// for is not sent, so nothing else shows the node then that its origin refuses to count.
const idleEvery = time.Second

// strict reports whether a life's grants in a cell must stay within a limit. They need not in these cases:
//
//   - A settlement charges more than was reserved.
//   - In the estimate mode, leaks drain.
//   - A node that receives a reset late begins its key again. It then needs its origin's answer, and a caller that
//     waits for it, to include the cost that it has accepted since.
//   - The same holds for a node that has forgotten the key because its table was full.
func (g *ledger) strict(cell window.Cell) bool {
	p := g.world.plan
	alone := p.LosesCalls() || p.Changes(Wipe, Failover, Hurry)
	late := alone && p.Changes(Reset) || p.MayFill() && (alone || p.Changes(Kill, Die, Stop, Leave))
	return cell.Mode == window.Exact && !p.Changes(Reserve) && !late
}

// remembers reports whether a life's grants without its origin's answer must stay within a limit: the sketch of a full
// table never under-counts. In a second outage the count may begin again from the total that the origin has received
// since the first.
func (g *ledger) remembers(cell window.Cell) bool {
	p, outages := g.world.plan, 0
	for _, s := range p.Steps {
		switch {
		case s.Do == Cut || s.Do == Refuse || s.Do == Kill || s.Do == Die:
			outages++
		case s.Do.IsFault():
			return false
		}
	}
	return cell.Mode == window.Exact && outages == 1 && !p.Changes(Reserve, Reset, Hurry)
}

// settle records that a reservation changed by so much.
func (g *ledger) settle(l *life, cells []window.Cell, change int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(l, cells, change, !g.world.plan.MayFill())
}

// changeLocked adds to the accepted cost of one of the given cells. If there are two cells, neither of them must have
// it.
func (g *ledger) changeLocked(l *life, cells []window.Cell, change int64, known bool) {
	for _, cell := range cells {
		e := g.account(cell).entry(l)
		e.high += max(0, change)
		e.atStop += min(0, change) // Stop may not have sent it yet
		switch {
		case change > 0 && g.world.wasSet(l.node.region):
			// The origin may have forgotten the cell, or count it as expired.
		case change < 0 || len(cells) == 1 && known:
			e.low += change
		case len(cells) == 1:
			e.unknown += change
		}
	}
}

// ungranted records that a node may have credit in any of the given cells.
func (g *ledger) ungranted(r *region, cells []window.Cell, cost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cell := range cells {
		g.account(cell).credit[r.index] += cost
	}
}

// claimed records that an origin has added a claim, and reports whether the claim is new. A claim that the origin
// decides twice is added once.
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

// notGranted returns how much a region's origin may have added for claims that were not granted, or not yet. It is at
// most the cost of added claims, and at most the claims of callers that were denied or have no answer yet.
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

// withoutAnswer records a decision that a node made without the origin's answer, in a fleet that claims. The node pays
// grants from cost that it had claimed. Claimed cost that it denies, or had claimed in the cell before, becomes credit.
func (g *ledger) withoutAnswer(r *region, cells []window.Cell, cost int64, granted bool) {
	if !granted {
		g.ungranted(r, cells, cost)
	}
	now := r.clock.Now()
	for _, cell := range cells {
		if began := window.Start(cell.Sequence, cell.DurationMs()); now.Add(-waits).UnixMilli() < began {
			cell.Sequence--
			g.ungranted(r, g.world.names(cell), cost)
		}
	}
}

// batch records the cost of a batch until its caller has the answer. A node sends a batch's cost on untracked keys
// before it answers, so its origin and other regions may have the cost earlier than the caller has the answer.
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

// ends records how much a stopped life has to send. It does not send cost that it accepts from now on.
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

// kept returns how much of an entry a region's origin must hold. Cost that ended lives accepted may be lost with them,
// unless they were stopped, reported it as sent, and their origin loses nothing.
func (g *ledger) kept(e *entry) int64 {
	switch {
	case !e.life.ended.Load():
		return e.low
	case e.life.Sent.Load() && !g.forgets(e.life.node.region):
		return min(e.atStop, e.low)
	}
	return 0
}

// forgets reports whether a region's origin ever loses its counts.
func (g *ledger) forgets(r *region) bool {
	return slices.ContainsFunc(g.world.plan.Steps, func(s Step) bool {
		return s.Region == r.index && (s.Do == Wipe || s.Do == Failover || s.Do == SetClock)
	})
}

// bounds returns how much of a cell a region's origin must hold in the end, and how much it may hold at any time.
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
	if g.world.plan.MayFill() && g.forgets(r) {
		low = 0 // nodes do not restore cost that a full table has forgotten
	}
	return low, high
}

// others returns how much all other regions may have accepted at most.
func (g *ledger) others(r *region, cell window.Cell) (most int64) {
	for _, other := range g.world.regions {
		if other != r {
			_, high := g.bounds(other, cell)
			most += high
		}
	}
	return most
}

// exact reports whether a cell can influence a decision of the exact mode.
func (a *account) exact() bool { return a.cell.Mode == window.Exact && a.live(time.Now()) }

// live reports whether a cell can influence a decision at a time, by every clock.
func (a *account) live(now time.Time) bool {
	const clocks = 10 * time.Second
	return window.ExpiresAt(a.cell.Sequence, a.cell.Key.Duration.Milliseconds()) > now.Add(clocks).UnixMilli()
}

// all returns the present accounts.
func (g *ledger) all() []*account {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.accounts)
}

// usedIn reports whether any of a region's remaining nodes has accepted cost in a cell.
func (g *ledger) usedIn(r *region, a *account) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(a.entries, func(e *entry) bool {
		return e.life.node.region == r && e.low > 0 && !e.life.ended.Load()
	})
}
