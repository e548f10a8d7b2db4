package relay

import (
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// cell is what a relay knows of one cell. Its book's mu guards it.
type cell struct {
	group *group

	// The other regions' side.
	first  part    // of one region, as most cells have; of is nil while there is none
	more   *[]part // of further regions
	sent   int64   // foreign total that the origin is known to have
	unsent bool    // listed in the book's
	shared bool    // another region is known to use the cell; stays

	dropped bool // taken off its table

	*ownCount  // nil until the own region counts in the cell
	identifier string
}

// ownCount is what a relay knows of a cell that its own region has counted in.
type ownCount struct {
	number           uint32    // that the relay has told with the cell's name; 0 before
	total, limit     int64     // as the origin had them last while it was healed; total only grows
	published        int64     // the largest count that is stored in the news; 0 if none is; only grows
	seen             int64     // the largest total that the origin had, in whatever epoch: for peers alone, see seeLocked
	handed           int64     // to peers, of seen
	stored           int64     // in the CountStore; only grows
	refused          bool      // the CountStore takes no row of it
	unpublishedSince time.Time // when total first was more than told; zero if it is not
}

// part is a region's component, told or stored. Its total only grows.
type part struct {
	of    *region
	total int64
}

// region is another region that cells of a book have parts of.
type region struct {
	name  string
	cells int // that do
}

func (c *cell) name() window.Cell {
	name := c.group.of
	name.Identifier = c.identifier
	return name
}

// compare orders cells as their names.
func (c *cell) compare(d *cell) int { return c.name().Compare(d.name()) }

func (c *cell) expiresMs() int64 { return c.group.expiresMs }

// foreign is what all other regions are known to have accepted.
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

// parts is one a region.
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

// merge raises a region's component, and returns whether that raised the foreign total.
func (c *cell) merge(of *region, total int64) bool {
	p := c.partOf(of)
	if total <= p.total {
		return false
	}
	before := c.foreign()
	p.total = total
	return before < store.CountMax
}

// partOf is a region's part, and makes it where there is none.
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

// isUnpublished tells whether the own region has counted more than it has told. A cell that it has not counted in has
// nothing to tell, whichever other region uses it.
func (c *cell) isUnpublished() bool { return c.ownCount != nil && c.total > c.published }

// standing is the cell's, of which so much is told.
func (c *cell) standing(published int64) standing {
	return standing{total: c.total, published: published, limit: c.limit, shared: c.shared}
}

func (c *cell) isForeign() bool { return c.first.of != nil }

// book holds the cells of a shard, and lists of those that need something.
type book struct {
	mu         sync.Mutex
	nowMs      int64       // the origin's clock, when it last answered
	answeredAt time.Time   // when that was, by a clock that does not step; zero: nowMs is another shard's
	healed     store.Epoch // the last epoch in which the origin was healed
	cells      cellIndex
	due        map[*cell]struct{} // those whose total may have to be told
	unsaved    map[*cell]struct{} // those whose total may have to be stored for good

	unhanded map[*cell]struct{} // those whose seen total peers may have to be told; empty without peers
	nudge    chan struct{}      // has room for one: a cell that was kept back is found to be shared; nil without peers

	unsent  queue[*cell]       // those whose foreign total the origin may lack, and is not being told
	regions map[string]*region // those that have a part of a cell
	partMax int                // of these cells a region has at most; then only cells that are there get its part

	regionsMax int
	wiped      int // how often foreign totals were forgotten
	acked      ackedTotals
}

const (
	// regionCellsMax is how many cells a relay holds of another region, in all shards: some 600 MB, and 2 GB if each is
	// alone in its namespace and window. Of a region that tells of more, those that the own region does not use are
	// left out until others have expired. It takes as many of the own region's from MySQL.
	regionCellsMax = 1 << 22

	// streamsMax is how many streams of news a relay follows, and of how many regions its cells are: four shards of
	// each of the 1,000 regions that settings have room for. Each one takes memory, and a part of the statement that
	// reads news, while an account that can write MySQL makes up regions at will.
	streamsMax = 4_000
)

func (b *book) init(shards int) {
	b.regions, b.regionsMax = make(map[string]*region), streamsMax
	b.partMax = (regionCellsMax + shards - 1) / shards
	b.cells.init()
	b.due, b.unsaved = make(map[*cell]struct{}), make(map[*cell]struct{})
	b.unhanded = make(map[*cell]struct{})
}

// forgetOwn forgets the own region's side of all cells. If the shard still leads, it keeps what peers receive, and the
// totals to which an origin is raised that is emptied before the next load. The others' side stays, and the load that
// follows has it sent again: see changes.
func (b *book) forgetOwn(leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.due)
	clear(b.unsaved)
	if !leads {
		clear(b.unhanded)
	}
	for c := range b.cells.allOwn() { // what is on its way keeps cells
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

// resend queues all foreign totals, for an origin that has lost them. A call that is under way meanwhile may still
// record that the old origin has acknowledged some: they are queued all the same.
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

// keptFor is how long a cell stays after it has expired by the origin's clock, so that a clock which was ahead and is
// set back costs nothing.
const keptFor = time.Minute

func (b *book) hasExpired(c *window.Cell) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expired(c.ExpiresAtMs())
}

func (b *book) expired(atMs int64) bool { return hasExpired(atMs, b.nowMs) }

func hasExpired(atMs, nowMs int64) bool { return atMs+keptFor.Milliseconds() <= nowMs }

// sweep forgets what has expired.
func (b *book) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := func(c *cell) bool { return b.expired(c.expiresMs()) }
	for _, set := range []map[*cell]struct{}{b.due, b.unsaved, b.unhanded} {
		maps.DeleteFunc(set, func(c *cell, _ struct{}) bool { return gone(c) })
	}
	b.unsent.remove(gone)
	for atMs, groups := range b.cells.endings {
		if !b.expired(atMs) {
			continue
		}
		for _, g := range groups {
			b.dropLocked(g)
		}
		delete(b.cells.endings, atMs)
	}
}

// setClock takes note of the origin's clock.
func (b *book) setClock(now time.Time) {
	if now.IsZero() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nowMs, b.answeredAt = now.UnixMilli(), time.Now()
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

// suppose has another shard's clock stand for the origin's.
func (b *book) suppose(nowMs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nowMs, b.answeredAt = nowMs, time.Time{}
}

// clock is what the origin's shows now or has shown a little earlier, by as much as its answer took; zero: it is not
// known.
func (b *book) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answeredAt.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(b.nowMs).Add(time.Since(b.answeredAt))
}

// shareLocked takes note of another region that uses a cell.
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

// unhandedLocked has a cell's total handed to peers, if it is to be, and reports whether they lack it.
func (b *book) unhandedLocked(c *cell) bool {
	if b.nudge == nil || c.ownCount == nil || c.seen <= c.handed {
		return false
	}
	b.unhanded[c] = struct{}{}
	return true
}

// forWellFormed calls note for changes, except in windows shorter than shortest. It returns how many it has left out
// because they are malformed: none of them may get into a row.
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

// growLocked takes note of what the origin has of the own region. An origin that has lost counts has less than before.
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

// seeLocked records a total for peers. It is a lower bound of the region's accepted cost, so peers may have it before
// the relay has loaded and healed its origin, also while MySQL is away. Until the origin is healed it stays apart from
// the cell's total, which heals an emptied origin: the origin would count a total of its own epoch twice.
func (b *book) seeLocked(ch *store.Change) {
	c := b.cells.own(b.cellLocked(&ch.Cell))
	c.limit, c.seen = ch.Limit, max(c.seen, ch.Total)
	b.unhandedLocked(c)
}

// queueLocked has it decided whether a cell's total is to be told.
func (b *book) queueLocked(c *cell, now time.Time) {
	if !c.isUnpublished() {
		return
	}
	if c.unpublishedSince.IsZero() {
		c.unpublishedSince = now
	}
	b.due[c] = struct{}{}
}

// reconsider has it decided anew about all cells whether their totals are to be told and stored.
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
