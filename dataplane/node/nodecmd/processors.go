package nodecmd

import (
	"os"
	"runtime"
)

// threadsMin is the least number of threads that run Go code at once. While each of them has a goroutine to run, Go
// looks for bytes that have arrived only every 10 ms. With four, a caller who keeps one or two processors busy leaves a
// thread to look at once, and the kernel, which prefers threads that have slept, runs it.
const threadsMin = 4

// spareThreads lets Go use at least threadsMin threads, also on a machine with fewer processors, and returns a function
// that undoes it. If GOMAXPROCS is set in the environment, spareThreads does nothing.
func spareThreads() (end func()) {
	before := runtime.GOMAXPROCS(0)
	n := threadsFor(before, runtime.NumCPU())
	if n == before || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(n)
	return runtime.SetDefaultGOMAXPROCS
}

// threadsFor returns how many threads a node uses, where Go would use some by itself. Go uses fewer than there are
// processors if a container's quota allows no more. More threads would then use up the quota early in each period, and
// the kernel would stop them all until the next one.
func threadsFor(byGo, processors int) int {
	if byGo < processors {
		return byGo
	}
	return max(byGo, threadsMin)
}
