package nodecmd

import (
	"os"
	"runtime"
)

// garbageBytes is how much garbage the process lets lie about beyond what Go would.
// Higher: more memory, fewer collections. Go collects when the heap has doubled, or
// reached 4 MiB: a node that holds few keys would do so a hundred times a second, and
// spend a sixth of its CPU on it, as calls leave some kilobytes each.
const garbageBytes = 32 << 20

// leaveGarbage makes Go count garbageBytes more than there are, until the function that
// it returns is called. They are never touched, so that the system gives no memory for
// them: what grows is the garbage, by as much. GOGC or GOMEMLIMIT, if set,
// take its place.
func leaveGarbage() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, garbageBytes)
	return func() { runtime.KeepAlive(room) }
}
