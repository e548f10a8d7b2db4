package rollout

import (
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
)

// The database's clock has jumped if it gains more on the rollout's own clock than a quarter of the age at which a node
// is silent. Each node then has that age to send a heartbeat. After that time, or at a time before the jump, nothing is
// unsure.
func TestWhatIsAJumpOfTheClock(t *testing.T) {
	const live, own, database = 30_000, 1_000_000, 9_000_000
	for _, c := range []struct {
		gained int64
		jumped bool
	}{{0, false}, {-600_000, false}, {live / 4, false}, {live/4 + 1, true}, {600_000, true}} {
		var clocks fleet.Clocks
		first := fleet.Look{AtMs: database, LiveMs: live} // far ahead of the rollout's own clock, which is not a jump
		if clocks.See(first, own); clocks.JumpedMs != 0 || clocks.Unsure(first, own) {
			t.Errorf("the first look is a jump: %+v", clocks)
		}
		next := fleet.Look{AtMs: database + 5000 + c.gained, LiveMs: live}
		clocks.See(next, own+5000)
		for after, unsure := range map[int64]bool{0: c.jumped, live - 1: c.jumped, live: false, -1: false} {
			if got := clocks.Unsure(next, own+5000+after); got != unsure {
				t.Errorf("%d ms after a gain of %d: unsure is %v", after, c.gained, got)
			}
		}
	}
}
