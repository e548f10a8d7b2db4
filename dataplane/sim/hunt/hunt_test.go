package hunt

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func seeds() []uint64 {
	var list []uint64
	if one, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		return []uint64{one}
	}
	n, _ := strconv.Atoi(os.Getenv("SEEDS"))
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	for i := range max(40, n) {
		list = append(list, uint64(from+i))
	}
	return list
}

func TestSeedsHold(t *testing.T) { holds(t, Draw) }

// R2, in histories without faults: they converge within a bound.
func TestR2WithoutFaultsSeedsConvergeInTime(t *testing.T) {
	holds(t, func(seed uint64) Plan {
		p := Draw(seed)
		p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Do.IsFault() })
		return p
	})
}

func holds(t *testing.T, draw func(seed uint64) Plan) {
	t.Helper()
	for _, seed := range seeds() {
		r, err := Play(draw(seed))
		if err != nil {
			t.Fatal(seed, err)
		}
		if len(r.Violations) > 0 {
			t.Errorf("seed %d: %v", seed, r.Violations)
			if testing.Verbose() {
				t.Log(strings.Join(r.Lines, "\n"))
			}
		}
	}
}
