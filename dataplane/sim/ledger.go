package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// ledger is the truth: what was asked and what was admitted, by key, cell and region,
// written down outside of the limiters. Every figure and every check compares with it.
type ledger struct {
	mu       sync.Mutex
	began    time.Time
	regions  int         // in the world
	nodes    int         // the same: receivers of news
	mode     window.Mode // of the namespace: part of every key
	accounts map[window.Key]*account
	order    []*account // as they were opened

	convergence         // since the later of the acceptance and the other region's first use of the cell
	fromAccepted delays // since the acceptance, whenever the other region begins to use the cell
}

// account is what one key asked for and got.
type account struct {
	key     window.Key
	limit   int64
	group   string
	regions []int  // where it has traffic, when that is more than one: there news of it matter
	homes   []bool // by region: the same

	cells []*cellAccount // those that are not settled yet, oldest first

	offered, admitted int64   // cost
	warm              int64   // of admitted: before the figures are measured
	denied, degraded  int64   // requests
	books             balance // of the cells that are settled
	peak              float64
}

// cellAccount is one cell of an account.
type cellAccount struct {
	sequence int64
	total    int64
	accepted []int64 // by region
	twice    []int64 // by region: claims that the origin may have added for callers who were denied

	marks []mark          // of keys with traffic in several regions
	used  []time.Duration // by region: when it first accepted a cost; neverUsed before that
	known []progress      // by node: what it has heard of
}

const neverUsed time.Duration = -1

// mark is a cost that a region has accepted, or that has reached its origin.
type mark struct {
	region      int
	amount, sum int64         // sum is of all regions in this cell, this cost included
	at          time.Duration // since traffic began
	hot         bool          // the key was past hotShare of its limit
	missing     int           // in a tracker: other origins that do not know it yet
}

// progress is the first mark that a node or an origin does not know yet, and what its own region had counted before
// that.
type progress struct {
	next int
	own  int64
}

// advance passes the marks that are known in a region that knows foreign, and calls learned for those of other regions.
// A mark is known with all others' marks before it: the first that is not ends it.
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

// convergence is how long it took until costs were known elsewhere: all of them, and the ones of keys that were past
// hotShare of their limits.
type convergence struct{ all, hot delays }

func (n *convergence) add(m *mark, d time.Duration) {
	n.all.add(d)
	if m.hot {
		n.hot.add(d)
	}
}

// miss counts a cost that did not become known.
func (n *convergence) miss(m *mark) {
	n.all.unknown++
	if m.hot {
		n.hot.unknown++
	}
}

// hotShare is where a key begins to be close to its limit, in all regions together.
const hotShare = 0.8

func newLedger(began time.Time, regions, nodes int) *ledger {
	return &ledger{began: began, regions: regions, nodes: nodes, accounts: make(map[window.Key]*account)}
}

func (l *ledger) key(r dataplane.Request) window.Key {
	return window.Key{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Mode: l.mode,
		Duration: r.Duration}
}

// open begins an account for requests like r. homes are the regions with traffic.
func (l *ledger) open(group string, r dataplane.Request, homes ...int) *account {
	return l.openKey(group, l.key(r), r.Limit, homes...)
}

// openKey is open for a key that may have a generation.
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

// enter records a decision. The cell is the one that the node decided in, by its own
// clock; the moment is the true one.
func (l *ledger) enter(a *account, region int, cost int64, d *dataplane.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.offered += cost
	if d.Source.Degraded() {
		a.degraded++
	}
	if !d.Allowed {
		a.denied++
		return
	}
	now := time.Now()
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

// warmedUp marks the moment from which figures are measured.
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

// repeatable notes that a claim may have been added without its caller hearing of it: if that was denied, the cost is
// its node's credit.
func (l *ledger) repeatable(region int, cell window.Cell, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[cell.Key]; a != nil {
		a.cell(cell.Sequence, l.regions, l.nodes).twice[region] += cost
	}
}

// foundLocked is a cell in which something was accepted, or nil.
func (l *ledger) foundLocked(cell *window.Cell) (*account, *cellAccount) {
	a := l.accounts[cell.Key]
	if a == nil {
		return nil, nil
	}
	return a, a.find(cell.Sequence)
}

// ceiling is the most that a region may publish of a cell.
func (l *ledger) ceiling(region int, cell window.Cell) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, c := l.foundLocked(&cell); c != nil {
		return c.accepted[region] + c.twice[region]
	}
	return 0
}

// applied records that a node of region knows what others have accepted of a cell, in all.
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

// observe notes that a node got to know a mark. What it knew before its region began to use the cell is no delay.
func (l *ledger) observe(m *mark, used, now time.Duration) {
	l.fromAccepted.add(now - m.at)
	if used != neverUsed {
		l.convergence.add(m, now-max(m.at, used))
	}
}

// missed counts what nodes of other regions never learned of a cell that is over; where their region has not used the
// cell, only as seen from the acceptance.
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

// groups adds up accounts by their groups.
func (l *ledger) groups(measuredS float64) groups {
	all := make(groups)
	for _, a := range l.order {
		t := all.of(a.group)
		t.add(&tally{keys: 1, offered: a.offered, admitted: a.admitted, degraded: a.degraded, books: a.books})
		full := a.denied > 0 || a.peak >= 1
		t.peaked(a.peak, full)
		if full {
			t.rate += float64(a.admitted-a.warm) / (float64(max(1, a.limit)) * measuredS / a.key.Duration.Seconds())
		}
	}
	return all
}
