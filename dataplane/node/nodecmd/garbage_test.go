package nodecmd

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// A node with next to nothing in memory collects when there is garbage worth it, and not
// at Go's 4 MiB, unless the operator has set another target.
func TestLeaveGarbage(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := goal()

	end := leaveGarbage()
	if got := goal(); got < before+garbageBytes {
		t.Errorf("the next collection is at %d bytes of heap, was %d: want at least %d more", got, before, garbageBytes)
	}
	end()
	t.Setenv("GOMEMLIMIT", "100MiB")
	end = leaveGarbage()
	if got := goal(); got >= before+garbageBytes {
		t.Errorf("with a memory limit: the next collection is at %d bytes of heap, was %d", got, before)
	}
	end()
}
