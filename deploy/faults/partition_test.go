package faults

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// A region is cut off from a server: packets are sent and nothing comes back. Its callers do not wait, and after the
// partition nothing is missing.
func TestSoakPartition(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakPartition)
}

func testSoakPartition(t *testing.T) {
	t.Parallel()
	for name, ways := range map[string]func(*region, func(*servers.Proxy)){
		"Redis": (*region).toRedis,
		"MySQL": (*region).toMySQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, plan{})
			f.exhaust()
			before := f.granted()
			l := load{perSecond: 300, keys: 700}
			stop, stopVictims := l.start(t, f.regions...), victims.start(t, f.regions...)
			stopWatch := f.watch()
			pause(t.Context(), time.Second)
			ways(f.region("eu"), func(p *servers.Proxy) { p.BlackHole(true) })
			pause(t.Context(), soak(3*time.Second, time.Minute))
			f.decidesOn()
			took := f.recovered(f.heal(), 0)
			stop()
			stopVictims()
			stopWatch()
			if more := f.granted() - before; more != 0 {
				t.Errorf("keys at their limit were given %d more", more)
			}
			f.settle("partition of a region from its "+name+soak(", 3 s", ", 1 min"), took, allowance{})
		})
	}
}
