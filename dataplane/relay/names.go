package relay

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// numberLocked gives a cell the next number of its group.
func (s *shard) numberLocked(c *cell) {
	if s.own.numbers == nil {
		s.own.numbers = make(map[window.Cell]uint32)
	}
	s.own.numbers[c.group.of]++
	c.number = s.own.numbers[c.group.of]
}

// names finds cells by the numbers that writers of streams have given them. A number stands for one cell as long as
// its group lives, whichever peer tells it: a relay that starts on a stream is another writer.
type names struct {
	mu     sync.Mutex // held while a row is merged
	groups map[numbered]leaves
	last   numbered // of group, and what it returned
	leaves leaves
}

// numbered is a group of cells that a writer numbers.
type numbered struct {
	stream store.Stream
	writer uint64
	cells  window.Cell // without an identifier
}

// leaves have 1<<leafBits numbers each, so that a number that stands alone takes little.
type leaves map[uint32]*[1 << leafBits]*cell

const leafBits = 5

// groupLocked is that of a cell in a row.
func (n *names) groupLocked(row *store.NewsRow, c window.Cell) leaves {
	group := numbered{row.Stream, row.Writer, groupOf(c)}
	if n.leaves != nil && n.last == group {
		return n.leaves
	}
	in := n.groups[group]
	if in == nil {
		in = make(leaves)
		if n.groups == nil {
			n.groups = make(map[numbered]leaves)
		}
		n.groups[group] = in
	}
	n.last, n.leaves = group, in
	return in
}

func (l leaves) set(number uint32, c *cell) {
	leaf := l[number>>leafBits]
	if leaf == nil {
		leaf = new([1 << leafBits]*cell)
		l[number>>leafBits] = leaf
	}
	leaf[number%(1<<leafBits)] = c
}

// find is nil where no name was read.
func (l leaves) find(number uint32) *cell {
	if leaf := l[number>>leafBits]; leaf != nil {
		return leaf[number%(1<<leafBits)]
	}
	return nil
}

// keep forgets the groups whose expiry does not pass.
func (n *names) keep(pass func(expiresMs int64) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaves = nil
	maps.DeleteFunc(n.groups, func(group numbered, _ leaves) bool { return !pass(group.cells.ExpiresAtMs()) })
}

// lacking knows the streams of which names were not read: of windows that had seemed to be in the future, or of rows
// that could not be read. They are read again from their last snapshots, which have all names.
type lacking struct {
	within  map[store.Stream]bool      // a snapshot is being read, and not to its end
	streams map[store.Stream]bool      // to be read again
	begunAt map[store.Stream]time.Time // when they were
}

const lackingEvery = 30 * time.Second

// note takes note of a row that was read with so many counts whose names were not. Within a snapshot they are in its
// later parts.
func (l *lacking) note(row *store.NewsRow, nameless int) {
	if l.within == nil {
		*l = lacking{make(map[store.Stream]bool), make(map[store.Stream]bool), make(map[store.Stream]time.Time)}
	}
	if row.Snapshot != 0 {
		l.within[row.Stream] = !row.Last
	}
	if nameless > 0 && !l.within[row.Stream] {
		l.streams[row.Stream] = true
	}
}

// begin takes the cursors of streams that lack names away, at most every lackingEvery.
func (l *lacking) begin(after map[store.Stream]store.NewsCursor, now time.Time) {
	for s := range l.streams {
		if now.Sub(l.begunAt[s]) >= lackingEvery {
			l.begunAt[s] = now
			delete(after, s)
			delete(l.streams, s)
		}
	}
}

// isWithin tells whether the last page ended within a snapshot that is being read.
func (l *lacking) isWithin() bool {
	for _, within := range l.within {
		if within {
			return true
		}
	}
	return false
}
