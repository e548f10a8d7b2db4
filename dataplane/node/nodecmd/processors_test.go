package nodecmd

import (
	"runtime"
	"testing"
)

// A node has threads to spare on a machine with few processors, but no more than a container's quota of processors.
func TestANodeOnFewProcessorsHasThreadsToSpare(t *testing.T) {
	for _, c := range []struct{ byGo, processors, want int }{
		{1, 1, threadsMin},
		{2, 2, threadsMin},
		{4, 4, 4},
		{64, 64, 64},
		{1, 2, 1}, // by a quota
		{2, 64, 2},
	} {
		if got := threadsFor(c.byGo, c.processors); got != c.want {
			t.Errorf("%d threads where Go uses %d of %d processors, want %d", got, c.byGo, c.processors, c.want)
		}
	}
}

// An operator who sets GOMAXPROCS in the environment decides.
func TestGOMAXPROCSIsLeftAsItIs(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	before := runtime.GOMAXPROCS(0)
	defer spareThreads()()
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("%d threads, were %d", n, before)
	}
}
