package relay

import (
	"iter"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// group is the cells of a namespace's window: they expire together.
type group struct {
	of        window.Cell // without an identifier
	expiresMs int64
	book      *book
	cells     table
	own       []*cell // those with an ownCount
}

// groupOf is what the cells of a group have in common.
func groupOf(c window.Cell) window.Cell {
	c.Identifier = ""
	return c
}

// tidyLocked removes the cells that no region is known to use.
func (g *group) tidyLocked() {
	unused := func(c *cell) bool { return !c.isOwn() && !c.isForeign() }
	g.book.countLocked(g, -1)
	g.cells.tidy(unused)
	g.own = slices.DeleteFunc(g.own, unused)
	g.book.countLocked(g, 1)
}

// countLocked counts a group's cells, or with -1 no longer.
func (b *book) countLocked(g *group, sign int) {
	b.n += sign * g.cells.n
	b.owns += sign * len(g.own)
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
		g = &group{of: key, expiresMs: key.ExpiresAtMs(), book: b}
		b.groups[key] = g
		b.endings[g.expiresMs] = append(b.endings[g.expiresMs], g)
	}
	b.last = g
	return g
}

// findLocked is nil where there is no such cell.
func (b *book) findLocked(name *window.Cell) *cell {
	if g := b.groups[groupOf(*name)]; g != nil {
		return g.cells.find(name.Identifier)
	}
	return nil
}

// cellLocked makes the cell where there is none.
func (b *book) cellLocked(name *window.Cell) *cell {
	return b.inGroupLocked(b.groupLocked(name), name.Identifier, hashIdentifier(name.Identifier))
}

// inGroupLocked makes the cell where there is none.
func (b *book) inGroupLocked(g *group, identifier string, hash uint32) *cell {
	if c := g.cells.findHashed(identifier, hash); c != nil {
		return c
	}
	c := g.cells.add(identifier, hash)
	c.group = g
	b.n++
	return c
}

// storedLocked is a cell of which MySQL has the own region's count; nil if there is no room for one more: what the
// origin itself holds has none of these bounds.
func (b *book) storedLocked(name *window.Cell) *cell {
	if b.owns < b.partMax {
		return b.ownLocked(name)
	}
	if c := b.findLocked(name); c != nil && c.ownCount != nil {
		return c
	}
	return nil
}

// ownLocked makes the cell, and the own region's side of it, where there is none.
func (b *book) ownLocked(name *window.Cell) *cell {
	c := b.cellLocked(name)
	if c.ownCount == nil {
		c.ownCount = &ownCount{}
		c.group.own = append(c.group.own, c)
		b.owns++
	}
	return c
}

// allLocked is all cells.
func (b *book) allLocked() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, g := range b.groups {
			for c := range g.cells.all() {
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
		if g.tidyLocked(); g.cells.n == 0 {
			delete(b.groups, of)
			continue
		}
		b.endings[g.expiresMs] = append(b.endings[g.expiresMs], g)
	}
}

// dropLocked forgets a group, which sweep takes off endings.
func (b *book) dropLocked(g *group) {
	for c := range g.cells.all() {
		for p := range c.parts() {
			if p.of.cells--; p.of.cells == 0 {
				delete(b.regions, p.of.name)
			}
		}
	}
	b.countLocked(g, -1)
	b.last = nil
	delete(b.groups, g.of)
}
