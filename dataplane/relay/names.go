package relay

import (
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// number gives a cell the next number of its group.
func (o *own) number(c *cell) {
	if o.numbers == nil {
		o.numbers = make(map[window.Cell]uint32)
	}
	o.numbers[c.group.of]++
	c.number = o.numbers[c.group.of]
}

// names finds cells by the numbers that writers of streams have given them. A number stands for one cell as long as
// its group lives, whichever peer tells it: a relay that starts on a stream is another writer.
type names struct {
	mu     sync.Mutex // held while a row is merged
	groups map[numbered]leaves
	last   numbered // the last group that was found, and its leaves, if there are any
	leaves leaves

	held      map[string]int // leaves, by region
	leavesMax int            // of a region
}

// regionLeavesMax is how many leaves a relay holds of one region, in all shards: some 700 MB if each has a group of its
// own. A region's cells at regionCellsMax take an eighth of them where groups are large.
const regionLeavesMax = 1 << 20

func newNames() names {
	return names{groups: make(map[numbered]leaves), held: make(map[string]int), leavesMax: regionLeavesMax}
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

// findLocked is the cell of a group that has a number in a row; nil where no name was read. It keeps nothing.
func (n *names) findLocked(row *store.FeedRow, group *window.Cell, number uint32) *cell {
	return n.groupLocked(numbered{row.Stream, row.Writer, *group}).find(number)
}

func (l leaves) find(number uint32) *cell {
	if leaf := l[number>>leafBits]; leaf != nil {
		return leaf[number%(1<<leafBits)]
	}
	return nil
}

// setLocked keeps the number that a row gives a cell. It is false where the region has no room for one more leaf.
func (n *names) setLocked(row *store.FeedRow, number uint32, c *cell) (fits bool) {
	group := numbered{row.Stream, row.Writer, c.group.of}
	in := n.groupLocked(group)
	leaf := in[number>>leafBits]
	if leaf == nil {
		if n.held[row.Region] >= n.leavesMax {
			return false
		}
		n.held[row.Region]++
		if in == nil {
			in = make(leaves)
			n.groups[group] = in
		}
		leaf = new([1 << leafBits]*cell)
		in[number>>leafBits] = leaf
	}
	leaf[number%(1<<leafBits)] = c
	return true
}

// groupLocked has the leaves of a group; nil where it has none.
func (n *names) groupLocked(group numbered) leaves {
	if n.leaves == nil || n.last != group {
		n.last, n.leaves = group, n.groups[group]
	}
	return n.leaves
}

// keep forgets the groups whose expiry does not pass.
func (n *names) keep(pass func(expiresMs int64) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaves = nil
	for group, in := range n.groups {
		if pass(group.cells.ExpiresAtMs()) {
			continue
		}
		delete(n.groups, group)
		if n.held[group.stream.Region] -= len(in); n.held[group.stream.Region] == 0 {
			delete(n.held, group.stream.Region)
		}
	}
}
