package nodecmd

import (
	"os"
	"runtime"
)

// garbageBytes is how much garbage the process lets accumulate beyond what Go would.
// Higher: more memory, fewer collections. Go collects when the heap has doubled, or
// reached 4 MiB: a node that holds few keys would do so a hundred times a second, and
// spend a sixth of its CPU on it, as calls leave some kilobytes each.
const garbageBytes = 32 << 20

// leaveGarbage makes Go count garbageBytes more than the heap has, until the returned
// function is called. These bytes are never touched, so they take no memory: only the
// garbage may grow by as much. If GOGC or GOMEMLIMIT is set, leaveGarbage does nothing.
func leaveGarbage() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, garbageBytes)
	return func() { runtime.KeepAlive(room) }
}
