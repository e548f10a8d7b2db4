package relay

import (
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// number assigns the next number of the group to a cell.
func (o *own) number(c *cell) {
	if o.numbers == nil {
		o.numbers = make(map[window.Cell]uint32)
	}
	o.numbers[c.group.of]++
	c.number = o.numbers[c.group.of]
}

// names finds cells by the numbers that writers of streams have assigned to them. A number stands for the same cell
// until the cell's group has expired. A relay that starts on a stream is a new writer, with numbers of its own.
type names struct {
	mu     sync.Mutex // held while a row is merged
	groups map[numbered]leaves
	last   numbered // the last group that groupLocked returned, and its leaves, if it has any
	leaves leaves

	held      map[string]int // number of leaves, by region
	leavesMax int            // most leaves of a region
}

// regionLeavesMax is the most leaves that a relay holds of a region, in all shards. They take some 700 MB if each leaf
// is alone in its group. If groups are large, regionCellsMax cells need an eighth of that number of leaves.
const regionLeavesMax = 1 << 20

func newNames() names {
	return names{groups: make(map[numbered]leaves), held: make(map[string]int), leavesMax: regionLeavesMax}
}

// numbered identifies a group of cells in which a writer assigns numbers.
type numbered struct {
	stream store.Stream
	writer uint64
	cells  window.Cell // without an identifier
}

// leaves hold 1<<leafBits numbers each, so that a single number takes little memory.
type leaves map[uint32]*[1 << leafBits]*cell

const leafBits = 5

// findLocked returns the cell with the given number, or nil if its name was not read. It stores nothing.
func (n *names) findLocked(row *store.FeedRow, group *window.Cell, number uint32) *cell {
	return n.groupLocked(numbered{row.Stream, row.Writer, *group}).find(number)
}

func (l leaves) find(number uint32) *cell {
	if leaf := l[number>>leafBits]; leaf != nil {
		return leaf[number%(1<<leafBits)]
	}
	return nil
}

// setLocked stores the number that a row assigns to a cell. It returns false if there is no room for another leaf of
// the region.
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

// groupLocked returns the leaves of a group, or nil if it has none.
func (n *names) groupLocked(group numbered) leaves {
	if n.leaves == nil || n.last != group {
		n.last, n.leaves = group, n.groups[group]
	}
	return n.leaves
}

// keep forgets the groups for which pass returns false.
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
