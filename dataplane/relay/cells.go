package relay

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// cell is a relay's record of a cell. Its book's mu guards it.
type cell struct {
	group *group

	// Counts of the other regions.
	first  part    // component of a single region, enough for most cells; of is nil if there is none
	more   *[]part // components of further regions
	sent   int64   // foreign total that the origin has acknowledged
	unsent bool    // listed in the book's unsent
	shared bool    // another region is known to use the cell; never reset

	dropped bool // removed from its table

	*ownCount  // nil until the own region counts in the cell
	identifier string
}

// ownCount is a relay's record of a cell that its own region has counted in.
type ownCount struct {
	number           uint32    // published with the cell's name; 0 before that
	total, limit     int64     // as last read from the origin while it was healed; total only grows
	published        int64     // largest count stored in the change feed; 0 if none is; only grows
	seen             int64     // largest total read from the origin in any epoch; for peers alone, see seeLocked
	handed           int64     // the part of seen that peers were sent
	stored           int64     // count stored in the CountStore; only grows
	refused          bool      // the CountStore has refused a row for this cell
	unpublishedSince time.Time // when total first exceeded published; zero if it does not
}

// part is a region's component of a cell, from the change feed, a peer or the CountStore. Its total only grows.
type part struct {
	of    *region
	total int64
}

func (c *cell) name() window.Cell {
	name := c.group.of
	name.Identifier = c.identifier
	return name
}

// compare orders cells by name.
func (c *cell) compare(d *cell) int { return c.name().Compare(d.name()) }

func (c *cell) expiresMs() int64 { return c.group.expiresMs }

// foreign returns the sum of all other regions' components, at most store.CountMax.
func (c *cell) foreign() int64 {
	sum := c.first.total
	if c.more == nil {
		return sum
	}
	for i := range *c.more {
		sum = min(store.CountMax, sum+(*c.more)[i].total)
	}
	return sum
}

// parts yields the components of the other regions.
func (c *cell) parts() iter.Seq[*part] {
	return func(yield func(*part) bool) {
		if c.first.of == nil || !yield(&c.first) || c.more == nil {
			return
		}
		for i := range *c.more {
			if !yield(&(*c.more)[i]) {
				return
			}
		}
	}
}

// merge raises a region's component, and reports whether the foreign total grew.
func (c *cell) merge(of *region, total int64) bool {
	p := c.partOf(of)
	if total <= p.total {
		return false
	}
	before := c.foreign()
	p.total = total
	return before < store.CountMax
}

// partOf returns a region's component, and adds it if the cell has none.
func (c *cell) partOf(of *region) *part {
	switch {
	case c.first.of == of:
		return &c.first
	case c.first.of == nil:
		of.cells++
		c.first.of = of
		return &c.first
	case c.more == nil:
		c.more = new([]part)
	}
	for i := range *c.more {
		if p := &(*c.more)[i]; p.of == of {
			return p
		}
	}
	of.cells++
	*c.more = append(*c.more, part{of: of})
	return &(*c.more)[len(*c.more)-1]
}

func (c *cell) isOwn() bool {
	return c.ownCount != nil && (c.total > 0 || c.published > 0 || c.stored > 0 || c.seen > 0)
}

// isUnpublished reports whether the own region has counted more than it has published. It returns false for a cell that
// the own region has not counted in, even if other regions use it.
func (c *cell) isUnpublished() bool { return c.ownCount != nil && c.total > c.published }

// standing returns the cell's standing, given the total that was published.
func (c *cell) standing(published int64) standing {
	return standing{total: c.total, published: published, limit: c.limit, shared: c.shared}
}

func (c *cell) isForeign() bool { return c.first.of != nil }

// book holds the cells of a shard, with lists of the cells that must be published, stored or sent.
type book struct {
	clock originClock // needs no lock to read; setClock changes it together with the cells

	mu      sync.Mutex
	healed  store.Epoch // the last epoch in which the origin was healed
	cells   cellIndex
	due     map[*cell]struct{} // cells whose total may have to be published
	unsaved map[*cell]struct{} // cells whose total may have to be stored in the CountStore

	unhanded map[*cell]struct{} // cells whose seen total peers may need; empty without peers
	nudge    chan struct{}      // cap 1: a cell whose count was kept back is now shared; nil without peers

	unsent  queue[*cell] // cells whose foreign total the origin may lack and that are not being sent
	regions regionSet    // regions with a component in any cell
	partMax int          // most cells of a region; beyond it, the region only gets components in cells of the book

	wiped int // how often the foreign totals were forgotten
	acked ackedTotals
}

const (
	// regionCellsMax is the most cells that a relay holds of another region, in all shards. They take some 600 MB, or 2 GB
	// if each cell is alone in its namespace and window. Beyond it, the relay leaves out the region's cells that the own
	// region does not use, until other cells have expired. The same bound applies to the own region's cells that the relay
	// reads from MySQL.
	regionCellsMax = 1 << 22

	// streamsMax is the most streams that a relay follows, and the most regions that its cells may have components of. It
	// has room for four shards of each of the 1,000 regions that settings can hold. Each stream takes memory and a part of
	// the statement that reads the feed, and an account that can write to MySQL can invent regions.
	streamsMax = 4_000
)

func (b *book) init(shards int) {
	b.regions.init(streamsMax)
	b.partMax = (regionCellsMax + shards - 1) / shards
	b.cells.init()
	b.due, b.unsaved = make(map[*cell]struct{}), make(map[*cell]struct{})
	b.unhanded = make(map[*cell]struct{})
}

// forgetOwn forgets the own region's counts in all cells. If the shard still leads, it keeps the counts that peers
// receive. It also keeps the totals, so it can heal an origin that is emptied before the next load. Foreign totals
// stay, and the next load sends them again: see changes.
func (b *book) forgetOwn(leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.due)
	clear(b.unsaved)
	if !leads {
		clear(b.unhanded)
	}
	for c := range b.cells.allOwn() { // clear each record in place, because rows on their way still refer to their cells
		kept := ownCount{}
		if leads && b.nudge != nil {
			kept = ownCount{total: c.total, limit: c.limit, seen: c.seen, handed: c.handed}
		}
		*c.ownCount = kept
	}
	b.cells.tidy()
}

// hasOwn reports whether the own region is known to count in any cell.
func (b *book) hasOwn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.cells.allOwn() {
		if c.isOwn() {
			return true
		}
	}
	return false
}

// resend queues all foreign totals, because the origin has lost them. A call that is under way may still record an
// acknowledgement of the old origin, but those totals are queued all the same.
func (b *book) resend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked.sent.reset()
	for c := range b.cells.all() {
		c.sent = 0
		if c.isForeign() {
			b.unsentLocked(c)
		}
	}
}

// keptFor is how long a cell is kept after it has expired by the origin's clock. If that clock was ahead and is set
// back within this time, no counts are lost.
const keptFor = time.Minute

// expired reports whether a cell with the given expiry is no longer kept.
func (b *book) expired(atMs int64) bool { return hasExpired(atMs, b.clock.ms()) }

func hasExpired(atMs, nowMs int64) bool { return atMs+keptFor.Milliseconds() <= nowMs }

// sweep forgets the cells that have expired.
func (b *book) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(b.expired, func(g *group) bool { return b.expired(g.expiresMs) })
}

// forgetLocked forgets the groups for which gone returns true, with all their cells. It skips all groups with an expiry
// for which ends returns false.
func (b *book) forgetLocked(ends func(atMs int64) bool, gone func(*group) bool) {
	goneCell := func(c *cell) bool { return gone(c.group) }
	for _, set := range []map[*cell]struct{}{b.due, b.unsaved, b.unhanded} {
		maps.DeleteFunc(set, func(c *cell, _ struct{}) bool { return goneCell(c) })
	}
	b.unsent.remove(goneCell)
	for atMs, groups := range b.cells.endings {
		if !ends(atMs) {
			continue
		}
		left := slices.DeleteFunc(groups, func(g *group) bool {
			if !gone(g) {
				return false
			}
			b.dropLocked(g)
			return true
		})
		if len(left) == 0 {
			delete(b.cells.endings, atMs)
			continue
		}
		b.cells.endings[atMs] = left
	}
}

// setClock records the origin's clock, and reports whether it was set back. In that case the book forgets the cells
// whose windows have not begun: the origin has forgotten them too, and their counts came from a wrong clock.
func (b *book) setClock(now time.Time) (setBack bool) {
	if now.IsZero() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if setBack = b.clock.set(now.UnixMilli()); setBack {
		all := func(int64) bool { return true }
		b.forgetLocked(all, func(g *group) bool { return store.Ahead(&g.of, now.UnixMilli()) })
	}
	return setBack
}

// lastHealed returns the last epoch in which the origin was healed, 0 if there is none.
func (b *book) lastHealed() store.Epoch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.healed
}

// setHealed records the epoch in which the origin is healed.
func (b *book) setHealed(epoch store.Epoch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healed = epoch
}

// shareLocked records that another region uses a cell.
func (b *book) shareLocked(c *cell, now time.Time) {
	if c.shared {
		return
	}
	c.shared = true
	b.queueLocked(c, now)
	if b.unhandedLocked(c) {
		wake(b.nudge)
	}
}

// unhandedLocked queues a cell for peers if they lack its seen total, and reports whether they lack it.
func (b *book) unhandedLocked(c *cell) bool {
	if b.nudge == nil || c.ownCount == nil || c.seen <= c.handed {
		return false
	}
	b.unhanded[c] = struct{}{}
	return true
}

// forWellFormed calls note for each well-formed change in a window of at least shortest. It returns the number of
// malformed changes, which must never get into a row.
func forWellFormed(changes []store.Change, shortest time.Duration, note func(*store.Change)) (malformed int) {
	for i := range changes {
		switch ch := &changes[i]; {
		case ch.Cell.Validate() != nil || ch.Total < 0 || ch.Total > store.CountMax || ch.Limit < 0:
			malformed++
		case ch.Cell.Duration >= shortest:
			note(ch)
		}
	}
	return malformed
}

// growLocked raises the own region's total to the origin's. An origin that has lost counts may have less than before.
func (b *book) growLocked(ch *store.Change, now time.Time) {
	c := b.cells.own(b.cellLocked(&ch.Cell))
	c.limit = ch.Limit
	c.total = max(c.total, ch.Total)
	if c.total > c.stored {
		b.unsaved[c] = struct{}{}
	}
	b.queueLocked(c, now)
	b.seeLocked(ch)
}

// seeLocked records a total for peers. The total is a lower bound of the region's accepted cost, so peers may receive
// it before the relay has loaded and healed its origin, and while MySQL is down. Until the origin is healed, seen must
// stay apart from total, because total heals an emptied origin: the origin would count a total of its own epoch twice.
func (b *book) seeLocked(ch *store.Change) {
	c := b.cells.own(b.cellLocked(&ch.Cell))
	c.limit, c.seen = ch.Limit, max(c.seen, ch.Total)
	b.unhandedLocked(c)
}

// queueLocked queues the cell if its total has not been published yet.
func (b *book) queueLocked(c *cell, now time.Time) {
	if !c.isUnpublished() {
		return
	}
	if c.unpublishedSince.IsZero() {
		c.unpublishedSince = now
	}
	b.due[c] = struct{}{}
}

// reconsider queues all cells whose totals have not been published, sent to peers or stored yet.
func (b *book) reconsider() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.cells.allOwn() {
		if c.isUnpublished() {
			b.due[c] = struct{}{}
		}
		b.unhandedLocked(c)
		if c.total > c.stored {
			b.unsaved[c] = struct{}{}
		}
	}
}

// setPublished records a total that is stored in the change feed. The book's mutex guards it.
func (c *cell) setPublished(total int64) {
	c.published = max(c.published, total)
	if !c.isUnpublished() {
		c.unpublishedSince = time.Time{}
	}
}
