package turns

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (t *Turn[K]) hasCome() bool {
	select {
	case <-t.came:
		return true
	default:
		return false
	}
}

// Whoever joins and leaves, in whatever order: the first of each line has its turn, and nobody else has.
func TestExactlyTheFirstOfALineHasItsTurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var lines Lines[int]
		model, limits := map[int][]*Turn[int]{}, map[int]int64{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			key := rapid.IntRange(0, 2).Draw(rt, "key")
			if line := model[key]; len(line) > 0 && rapid.Bool().Draw(rt, "leaves") {
				at := rapid.IntRange(0, len(line)-1).Draw(rt, "at")
				line[at].Leave()
				model[key] = slices.Delete(line, at, at+1)
			} else {
				cost, limit := 0.0, int64(0)
				for _, t := range line {
					cost += t.cost
				}
				if len(line) > 0 {
					limit = limits[key]
				} else {
					limits[key] = 0
				}
				own := rapid.Int64Range(0, 9).Draw(rt, "limit")
				turn, ahead := lines.Join(key, own)
				if want := (Ahead{Any: len(line) > 0, Cost: cost, Limit: limit}); ahead != want {
					rt.Fatalf("ahead are %+v, want %+v", ahead, want)
				}
				limits[key] = max(limits[key], own)
				for range rapid.IntRange(0, 2).Draw(rt, "stays") {
					turn.Stay(7)
				}
				model[key] = append(line, turn)
			}
			waiting := 0
			for key, line := range model {
				for i, turn := range line {
					if turn.hasCome() != (i == 0) {
						rt.Fatalf("line %d: turn %d has come: %v", key, i, turn.hasCome())
					}
				}
				if len(line) > 0 {
					waiting++
				}
			}
			if len(lines.lines) != waiting {
				rt.Fatalf("%d lines are kept, want %d", len(lines.lines), waiting)
			}
		}
	})
}
