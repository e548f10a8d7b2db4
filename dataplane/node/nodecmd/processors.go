package nodecmd

import (
	"os"
	"runtime"
)

// threadsMin is the minimal number of threads that run Go code at the same time. If every thread always has a goroutine
// to run, Go checks only every 10 ms for data that has arrived on connections. With four threads, a caller that keeps
// one or two processors busy leaves a thread idle, which can check immediately. The kernel runs that thread soon,
// because it prefers threads that have slept.
const threadsMin = 4

// spareThreads makes Go use at least threadsMin threads, also on a machine with fewer processors,
// and returns a function that undoes it. If the environment variable GOMAXPROCS is set,
// spareThreads changes nothing.
func spareThreads() (end func()) {
	before := runtime.GOMAXPROCS(0)
	n := threadsFor(before, runtime.NumCPU())
	if n == before || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(n)
	return runtime.SetDefaultGOMAXPROCS
}

// threadsFor returns how many threads a node should use if Go's default is byGo. If a container's
// quota makes Go use fewer threads than there are processors, threadsFor keeps Go's default: more
// threads would use up the quota early in each period, and the kernel would then stop all of them
// until the next period.
func threadsFor(byGo, processors int) int {
	if byGo < processors {
		return byGo
	}
	return max(byGo, threadsMin)
}
