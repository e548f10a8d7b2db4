package relay

// region is another region that has components in cells of a book.
type region struct {
	name  string
	cells int // number of cells with a component of this region
}

// regionSet holds the other regions that have components in cells of a book. The book's mutex guards it.
type regionSet struct {
	byName map[string]*region
	max    int // most regions
}

func (s *regionSet) init(most int) { s.byName, s.max = make(map[string]*region), most }

// findOrAdd returns a region, or nil if there is no room for another region.
func (s *regionSet) findOrAdd(name string) *region {
	r := s.byName[name]
	if r == nil && len(s.byName) < s.max {
		r = &region{name: name}
		s.byName[name] = r
	}
	return r
}

// leave counts a cell that is forgotten as no cell of its regions, and forgets the regions that have no cells left.
func (s *regionSet) leave(c *cell) {
	for p := range c.parts() {
		if p.of.cells--; p.of.cells == 0 {
			delete(s.byName, p.of.name)
		}
	}
}
