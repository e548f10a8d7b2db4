package relay

import (
	"iter"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// group is the cells of a namespace and window. They expire together.
type group struct {
	of        window.Cell // without an identifier
	expiresMs int64
	book      *book
	cells     table
	own       []*cell // cells with an ownCount
}

// groupOf returns a cell's name without the identifier: the part that all cells of its group share.
func groupOf(c window.Cell) window.Cell {
	c.Identifier = ""
	return c
}

// tidy removes the cells that no region uses.
func (g *group) tidy() {
	unused := func(c *cell) bool { return !c.isOwn() && !c.isForeign() }
	g.cells.tidy(unused)
	g.own = slices.DeleteFunc(g.own, unused)
}

// cellIndex finds the cells of a book. The book's mutex guards it.
type cellIndex struct {
	groups  map[window.Cell]*group // by the shared part of the cells' names
	last    *group                 // the last group that groupOf returned; nil if there is none
	n       int                    // cells of all groups
	owns    int                    // cells with an ownCount, of n
	endings map[int64][]*group     // all groups by expiry, so that a sweep skips groups that have not expired
}

func (x *cellIndex) init() {
	x.groups = make(map[window.Cell]*group)
	x.endings = make(map[int64][]*group)
}

// count adds a group's cells to the totals if sign is 1, and subtracts them if it is -1.
func (x *cellIndex) count(g *group, sign int) {
	x.n += sign * g.cells.n
	x.owns += sign * len(g.own)
}

// groupOf returns the group of a cell of book b, and adds the group if there is none.
func (x *cellIndex) groupOf(of *window.Cell, b *book) *group {
	key := groupOf(*of)
	if x.last != nil && x.last.of == key {
		return x.last
	}
	g := x.groups[key]
	if g == nil {
		key.Workspace, key.Namespace = strings.Clone(key.Workspace), strings.Clone(key.Namespace)
		g = &group{of: key, expiresMs: key.ExpiresAtMs(), book: b}
		x.groups[key] = g
		x.endings[g.expiresMs] = append(x.endings[g.expiresMs], g)
	}
	x.last = g
	return g
}

// find returns the cell, or nil if the book does not have it.
func (x *cellIndex) find(name *window.Cell) *cell {
	if g := x.groups[groupOf(*name)]; g != nil {
		return g.cells.find(name.Identifier)
	}
	return nil
}

// findOrAdd returns a group's cell, and adds the cell if there is none.
func (x *cellIndex) findOrAdd(g *group, identifier string, hash uint32) *cell {
	if c := g.cells.findHashed(identifier, hash); c != nil {
		return c
	}
	c := g.cells.add(identifier, hash)
	c.group = g
	x.n++
	return c
}

// own adds an ownCount to a cell that has none.
func (x *cellIndex) own(c *cell) *cell {
	if c.ownCount == nil {
		c.ownCount = &ownCount{}
		c.group.own = append(c.group.own, c)
		x.owns++
	}
	return c
}

// all yields all cells.
func (x *cellIndex) all() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, g := range x.groups {
			for c := range g.cells.all() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// allOwn yields all cells with an ownCount.
func (x *cellIndex) allOwn() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, g := range x.groups {
			for _, c := range g.own {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// tidy forgets the cells that no region uses, and the groups that become empty.
func (x *cellIndex) tidy() {
	x.last = nil
	clear(x.endings)
	for of, g := range x.groups {
		x.count(g, -1)
		g.tidy()
		x.count(g, 1)
		if g.cells.n == 0 {
			delete(x.groups, of)
			continue
		}
		x.endings[g.expiresMs] = append(x.endings[g.expiresMs], g)
	}
}

// drop forgets a group. The caller must remove it from endings.
func (x *cellIndex) drop(g *group) {
	x.count(g, -1)
	x.last = nil
	delete(x.groups, g.of)
}

// cellLocked returns the cell, and adds it if there is none.
func (b *book) cellLocked(name *window.Cell) *cell {
	return b.cells.findOrAdd(b.cells.groupOf(name, b), name.Identifier, hashIdentifier(name.Identifier))
}

// storedLocked returns a cell that MySQL has the own region's count of, or nil if there is no room for another cell.
// Cells that the origin itself holds have no such bound.
func (b *book) storedLocked(name *window.Cell) *cell {
	if b.cells.owns < b.partMax {
		return b.cells.own(b.cellLocked(name))
	}
	if c := b.cells.find(name); c != nil && c.ownCount != nil {
		return c
	}
	return nil
}

// dropLocked forgets a group, and the regions that have no cells left.
func (b *book) dropLocked(g *group) {
	for c := range g.cells.all() {
		b.regions.leave(c)
	}
	b.cells.drop(g)
}
