package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// ledger records outside of the limiters what callers offered and what was admitted, by key, cell and region. Every
// figure and every check compares with it.
type ledger struct {
	mu       sync.Mutex
	began    time.Time
	regions  int         // number of regions in the world
	nodes    int         // number of nodes, which receive counts
	mode     window.Mode // mode of the namespace, which is a part of every key
	accounts map[window.Key]*account
	order    []*account // in the order in which they were opened

	convergence         // since the acceptance, or since the other region's first use of the cell if that is later
	fromAccepted delays // since the acceptance, even if the other region begins to use the cell later
}

// account records the requests on one key and their decisions.
type account struct {
	key     window.Key
	limit   int64
	group   string
	regions []int  // regions with traffic, if there are several: their nodes should receive counts
	homes   []bool // the same regions, as flags by region

	cells []*cellAccount // cells that were not audited yet, oldest first

	offered, admitted int64 // cost
	warm              int64 // the part of admitted before the measured time
	denied, degraded  int64 // requests
	steady            bool  // the key is never offered its whole limit, so each denial comes from a fault
	deniedSince       time.Time
	lockedOut         time.Duration // longest time from a denial to the next request that was allowed
	books             balance       // of the audited cells
	peak              float64

	real realWindows
}

// cellAccount is the record of a cell of an account.
type cellAccount struct {
	sequence int64
	total    int64
	compared bool    // with the origins
	accepted []int64 // by region
	twice    []int64 // by region: claims that the origin may have added although their callers were denied

	marks []mark          // only for keys with traffic in several regions
	used  []time.Duration // by region: when it first accepted a cost, or neverUsed
	known []progress      // by node: the marks that it has received
}

const neverUsed time.Duration = -1

// mark is a cost that a region has accepted, or that has reached the region's origin.
type mark struct {
	region      int
	amount, sum int64         // sum is the cell's total over all regions, with this cost
	at          time.Duration // since traffic began
	hot         bool          // the key was past hotShare of its limit
	missing     int           // in a tracker: number of other origins that have not received it yet
}

// progress is the first mark that a node or an origin has not received yet, and its own region's total before that
// mark.
type progress struct {
	next int
	own  int64
}

// advance passes the marks that a region with the given foreign total has received, and calls learned for the marks of
// other regions. A mark is received if foreign includes it and all other regions' marks before it.
func (p *progress) advance(marks []mark, region int, foreign int64, learned func(*mark)) {
	for ; p.next < len(marks); p.next++ {
		m := &marks[p.next]
		if m.region == region {
			p.own += m.amount
			continue
		}
		if foreign < m.sum-p.own {
			return
		}
		learned(m)
	}
}

// convergence is how long costs took to reach other regions: all costs, and the costs of keys past hotShare of their
// limits.
type convergence struct{ all, hot delays }

func (n *convergence) add(m *mark, d time.Duration) {
	n.all.add(d)
	if m.hot {
		n.hot.add(d)
	}
}

// miss counts a cost that did not arrive.
func (n *convergence) miss(m *mark) {
	n.all.unknown++
	if m.hot {
		n.hot.unknown++
	}
}

// hotShare is the share of its limit, in all regions together, from which a key counts as hot.
const hotShare = 0.8

func newLedger(began time.Time, regions, nodes int) *ledger {
	return &ledger{began: began, regions: regions, nodes: nodes, accounts: make(map[window.Key]*account)}
}

func (l *ledger) key(r dataplane.Request) window.Key {
	return window.Key{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Mode: l.mode,
		Duration: r.Duration}
}

// open opens an account for requests like r. homes are the regions with traffic.
func (l *ledger) open(group string, r dataplane.Request, homes ...int) *account {
	return l.openKey(group, l.key(r), r.Limit, homes...)
}

// openKey is open for a key that can have a generation.
func (l *ledger) openKey(group string, key window.Key, limit int64, homes ...int) *account {
	a := &account{key: key, limit: limit, group: group}
	if len(homes) > 1 {
		a.regions, a.homes = homes, make([]bool, l.regions)
		for _, h := range homes {
			a.homes[h] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accounts[a.key] = a
	l.order = append(l.order, a)
	return a
}

// enter records a decision. The cell comes from the node's decision, so from its own clock, but the time is the true
// time.
func (l *ledger) enter(a *account, region int, cost int64, d *dataplane.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.offered += cost
	if d.Source.Degraded() {
		a.degraded++
	}
	now := time.Now()
	a.lockout(now, d.Allowed)
	if !d.Allowed {
		a.denied++
		return
	}
	durationMs := a.key.DurationMs()
	c := a.cell(d.ResetAt.UnixMilli()/durationMs-1, l.regions, l.nodes)
	a.admitted += cost
	c.total += cost
	c.accepted[region] += cost

	effective := c.total
	if before := a.find(c.sequence - 1); before != nil {
		elapsed := min(max(0, now.UnixMilli()-window.Start(c.sequence, durationMs)), durationMs)
		effective += window.Carried(before.total, durationMs-elapsed, durationMs)
	}
	share := float64(effective) / float64(max(1, a.limit))
	a.peak = max(a.peak, share)
	if a.homes != nil {
		at := now.Sub(l.began)
		if c.used[region] == neverUsed {
			c.used[region] = at
		}
		c.marks = append(c.marks, mark{region: region, amount: cost, sum: c.total, at: at, hot: share >= hotShare})
	}
}

// lockout measures for how long a steady key is denied.
func (a *account) lockout(now time.Time, allowed bool) {
	if a.steady && !allowed && a.deniedSince.IsZero() {
		a.deniedSince = now
	}
	if !a.deniedSince.IsZero() {
		a.lockedOut = max(a.lockedOut, now.Sub(a.deniedSince))
	}
	if allowed {
		a.deniedSince = time.Time{}
	}
}

// warmedUp marks the start of the measured time.
func (l *ledger) warmedUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.order {
		a.warm = a.admitted
	}
}

func (a *account) find(sequence int64) *cellAccount {
	for i := len(a.cells) - 1; i >= 0; i-- {
		if a.cells[i].sequence == sequence {
			return a.cells[i]
		}
	}
	return nil
}

func (a *account) cell(sequence int64, regions, nodes int) *cellAccount {
	if c := a.find(sequence); c != nil {
		return c
	}
	c := &cellAccount{sequence: sequence, accepted: make([]int64, regions), twice: make([]int64, regions)}
	if a.homes != nil {
		c.known, c.used = make([]progress, nodes), slices.Repeat([]time.Duration{neverUsed}, regions)
	}
	a.cells = append(a.cells, c)
	return c
}

// repeatable records a claim that the origin may have added although its caller received no reply. If the caller was
// denied, the cost is a credit of its node.
func (l *ledger) repeatable(region int, cell window.Cell, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[cell.Key]; a != nil {
		a.cell(cell.Sequence, l.regions, l.nodes).twice[region] += cost
	}
}

// foundLocked returns a cell in which cost was accepted, or nil.
func (l *ledger) foundLocked(cell *window.Cell) (*account, *cellAccount) {
	a := l.accounts[cell.Key]
	if a == nil {
		return nil, nil
	}
	return a, a.find(cell.Sequence)
}

// ceiling returns the most that a region may publish for a cell.
func (l *ledger) ceiling(region int, cell window.Cell) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, c := l.foundLocked(&cell); c != nil {
		return c.accepted[region] + c.twice[region]
	}
	return 0
}

// applied records that a node of region has received the given foreign total of a cell.
func (l *ledger) applied(node, region int, cell window.Cell, foreign int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, c := l.foundLocked(&cell)
	if c == nil || a.homes == nil || !a.homes[region] {
		return
	}
	now := time.Since(l.began)
	c.known[node].advance(c.marks, region, foreign, func(m *mark) { l.observe(m, c.used[region], now) })
}

// observe records the delay of a mark that a node has received. If the node received it before its region began to use
// the cell, only fromAccepted has a delay.
func (l *ledger) observe(m *mark, used, now time.Duration) {
	l.fromAccepted.add(now - m.at)
	if used != neverUsed {
		l.convergence.add(m, now-max(m.at, used))
	}
}

// missed counts the marks that nodes of other regions never received for a cell that has ended. If their region has not
// used the cell, only fromAccepted counts them.
func (l *ledger) missed(a *account, c *cellAccount, nodesOf func(region int) []int) {
	for _, to := range a.regions {
		for _, node := range nodesOf(to) {
			for _, m := range c.marks[c.known[node].next:] {
				if m.region == to {
					continue
				}
				l.fromAccepted.unknown++
				if c.used[to] != neverUsed {
					l.miss(&m)
				}
			}
		}
	}
}

// groups adds up the accounts of each group.
func (l *ledger) groups(measuredS float64) groups {
	all := make(groups)
	for _, a := range l.order {
		t := all.of(a.group)
		t.add(&tally{keys: 1, offered: a.offered, admitted: a.admitted, degraded: a.degraded, lockedOut: a.lockedOut,
			books: a.books, real: a.real.worst, logged: a.real.admits})
		full := a.denied > 0 || a.peak >= 1
		t.peaked(a.peak, full)
		if full {
			t.rate += float64(a.admitted-a.warm) / (float64(max(1, a.limit)) * measuredS / a.key.Duration.Seconds())
		}
	}
	return all
}
