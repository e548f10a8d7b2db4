package tuning_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/shared/tuning"
)

// Nodes of all builds have to agree, so the draw never changes.
func TestTrialShareIsTheSameEverywhere(t *testing.T) {
	for id, want := range map[string]int64{"": 4113176041, "node-1": 328535374, "\xff": 1328395535} {
		if got := tuning.TrialShare(id); got != want {
			t.Errorf("node %q is drawn into %d, want %d", id, got, want)
		}
	}
}

func TestTrialSharesAreEven(t *testing.T) {
	const nodes, tenths = 10_000, 10
	var in [tenths]int
	for i := range nodes {
		in[tuning.TrialShare(fmt.Sprintf("node-%d", i))*tenths/tuning.TrialShares]++
	}
	for i, n := range in {
		if n < 9*nodes/tenths/10 || n > 11*nodes/tenths/10 {
			t.Errorf("%d of %d nodes are drawn into the %d. tenth", n, nodes, i+1)
		}
	}
}
