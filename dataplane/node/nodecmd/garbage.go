package nodecmd

import (
	"os"
	"runtime"
)

// garbageBytes is the garbage that the process accumulates in addition to Go's default. A higher value takes more
// memory and needs fewer collections. By default Go collects when the heap has doubled, or has reached 4 MiB. A node
// with few keys would do so a hundred times a second, and spend a sixth of its CPU on it, because each call leaves some
// kilobytes.
const garbageBytes = 32 << 20

// leaveGarbage makes Go count garbageBytes more than the heap has, until the returned function is called. These bytes
// are never touched, so they take no memory, and only the garbage can grow by that amount. If GOGC or GOMEMLIMIT is
// set, leaveGarbage does nothing.
func leaveGarbage() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, garbageBytes)
	return func() { runtime.KeepAlive(room) }
}
