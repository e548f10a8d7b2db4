package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A table behaves like a map whose cells never move, whatever is added and dropped.
func TestATableIsAMap(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		var cells table
		model := make(map[string]*cell)
		names := 1 + r.IntN(1000)
		for range 3000 {
			switch name := fmt.Sprint("user_", r.IntN(names)); {
			case r.IntN(500) == 0:
				unused := func(c *cell) bool { return c.sent%3 == int64(seed%3) }
				cells.tidy(unused)
				maps.DeleteFunc(model, func(_ string, c *cell) bool { return unused(c) })
			case model[name] == nil:
				if c := cells.find(name); c != nil {
					t.Fatalf("seed %d: %s is found, and was not added", seed, name)
				}
				model[name] = cells.add(name, hashIdentifier(name))
				model[name].sent = r.Int64N(100)
			case cells.find(name) != model[name]:
				t.Fatalf("seed %d: %s is not found", seed, name)
			}
		}
		wantCells(t, &cells, model)
	}
}

func wantCells(t *testing.T, cells *table, want map[string]*cell) {
	t.Helper()
	all := slices.Collect(cells.all())
	if len(all) != len(want) || cells.n != len(want) {
		t.Errorf("%d cells, and it counts %d; want %d", len(all), cells.n, len(want))
	}
	for _, c := range all {
		if want[c.identifier] != c {
			t.Errorf("%s is there, and should not be", c.identifier)
		}
	}
}

// Blocks without cells hold no memory.
func TestATableGivesBlocksBack(t *testing.T) {
	var cells table
	for i := range 10_000 {
		cells.add(fmt.Sprint(i), hashIdentifier(fmt.Sprint(i)))
	}
	kept := cells.find("5000")
	cells.tidy(func(c *cell) bool { return c != kept })
	blocks := 0
	for _, block := range cells.blocks {
		if block != nil {
			blocks++
		}
	}
	if blocks > 2 || cells.find("5000") != kept || cells.find("5001") != nil {
		t.Errorf("%d blocks are left for one cell", blocks)
	}
}
