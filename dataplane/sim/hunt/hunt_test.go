package hunt

import (
	"os"
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
	for i := range max(40, n) {
		list = append(list, uint64(i))
	}
	return list
}

func TestSeedsHold(t *testing.T) {
	for _, seed := range seeds() {
		r, err := Play(Draw(seed))
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
