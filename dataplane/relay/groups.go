package relay

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// group is the cells of a namespace's window: they expire together. Cells and identifiers lie in blocks, as there are
// tens of millions: what a relay takes is for the most part fetching memory that it has not lately used, and following
// pointers to collect garbage.
type group struct {
	of        window.Cell // without an identifier
	expiresMs int64
	book      *book
	cells     map[string]*cell // by identifier
	own       []*cell          // those with an ownCount

	block []cell          // for the next cells
	texts strings.Builder // identifiers
}

// Blocks grow with their groups to these sizes, so that a cell that is alone in its group takes little.
const (
	blockCells = 64
	blockBytes = 4 << 10
)

// groupOf is what the cells of a group have in common.
func groupOf(c window.Cell) window.Cell {
	c.Identifier = ""
	return c
}

// addLocked adds a cell that is not there.
func (g *group) addLocked(identifier string) *cell {
	if len(g.block) == 0 {
		g.block = make([]cell, min(blockCells, max(1, len(g.cells))))
	}
	c := &g.block[0]
	g.block = g.block[1:]
	c.group, c.identifier = g, g.keep(identifier)
	g.cells[c.identifier] = c
	g.book.n++
	return c
}

// keep copies an identifier, so that it does not hold the row that it is of.
func (g *group) keep(identifier string) string {
	if g.texts.Cap()-g.texts.Len() < len(identifier) {
		size := min(blockBytes, 2*g.texts.Cap())
		g.texts = strings.Builder{}
		g.texts.Grow(max(size, len(identifier)))
	}
	from := g.texts.Len()
	g.texts.WriteString(identifier)
	return g.texts.String()[from:]
}

// tidyLocked removes the cells that no region is known to use.
func (g *group) tidyLocked() {
	unused := func(c *cell) bool { return !c.isOwn() && !c.isForeign() }
	before := len(g.cells)
	maps.DeleteFunc(g.cells, func(_ string, c *cell) bool { return unused(c) })
	g.book.n -= before - len(g.cells)
	g.own = slices.DeleteFunc(g.own, unused)
}

// groupLocked is that of a cell, and makes it where there is none.
func (b *book) groupLocked(of *window.Cell) *group {
	key := groupOf(*of)
	if b.last != nil && b.last.of == key {
		return b.last
	}
	g := b.groups[key]
	if g == nil {
		key.Workspace, key.Namespace = strings.Clone(key.Workspace), strings.Clone(key.Namespace)
		g = &group{of: key, expiresMs: key.ExpiresAtMs(), book: b, cells: make(map[string]*cell)}
		b.groups[key] = g
		b.endings[g.expiresMs] = append(b.endings[g.expiresMs], g)
	}
	b.last = g
	return g
}

// findLocked is nil where there is no such cell.
func (b *book) findLocked(name *window.Cell) *cell {
	if g := b.groups[groupOf(*name)]; g != nil {
		return g.cells[name.Identifier]
	}
	return nil
}

// cellLocked makes the cell where there is none.
func (b *book) cellLocked(name *window.Cell) *cell {
	g := b.groupLocked(name)
	if c := g.cells[name.Identifier]; c != nil {
		return c
	}
	return g.addLocked(name.Identifier)
}

// ownLocked makes the cell, and the own region's side of it, where there is none.
func (b *book) ownLocked(name *window.Cell) *cell {
	c := b.cellLocked(name)
	if c.ownCount == nil {
		c.ownCount = &ownCount{hash: hashOf(name), told: toldNothing, handed: toldNothing}
		c.group.own = append(c.group.own, c)
	}
	return c
}

// allLocked is all cells.
func (b *book) allLocked() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, g := range b.groups {
			for _, c := range g.cells {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// allOwnLocked is all cells with an ownCount.
func (b *book) allOwnLocked() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, g := range b.groups {
			for _, c := range g.own {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// tidyLocked forgets the cells that no region is known to use, and the groups that have no others.
func (b *book) tidyLocked() {
	b.last = nil
	clear(b.endings)
	for of, g := range b.groups {
		if g.tidyLocked(); len(g.cells) == 0 {
			delete(b.groups, of)
			continue
		}
		b.endings[g.expiresMs] = append(b.endings[g.expiresMs], g)
	}
}

// dropLocked forgets a group, which sweep takes off endings.
func (b *book) dropLocked(g *group) {
	for _, c := range g.cells {
		for _, p := range c.parts {
			if p.of.cells--; p.of.cells == 0 {
				delete(b.regions, p.of.name)
			}
		}
	}
	b.n -= len(g.cells)
	b.last = nil
	delete(b.groups, g.of)
}
