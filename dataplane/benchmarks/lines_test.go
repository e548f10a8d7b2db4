package benchmarks

import (
	"sync/atomic"
	"testing"
)

// line is a count that has a cache line, and the adjacent line that is fetched with it, to itself.
type line struct {
	count atomic.Uint64
	_     [120]byte
}

const lineHeld = 1 << 63

// BenchmarkLines is the least that decisions about the same keys cost a machine. It counts on a shared line, and once
// more on a line of its own. It also holds four lines, counts on each, and lets go, as a batch does. Run it with -cpu
// 1,2.
func BenchmarkLines(b *testing.B) {
	b.Run("one", func(b *testing.B) {
		var shared line
		b.RunParallel(func(pb *testing.PB) {
			for own := new(line); pb.Next(); own.count.Add(1) {
				for n := shared.count.Load(); !shared.count.CompareAndSwap(n, n+1); n = shared.count.Load() {
				}
			}
		})
	})
	b.Run("four", func(b *testing.B) {
		var shared [4]line
		b.RunParallel(func(pb *testing.PB) {
			for own := new(line); pb.Next(); own.count.Add(1) {
				for i := range shared {
					for n := shared[i].count.Load(); n&lineHeld != 0 || !shared[i].count.CompareAndSwap(n, n|lineHeld); n = shared[i].count.Load() {
					}
				}
				for i := range shared {
					shared[i].count.Add(lineHeld + 1)
				}
			}
		})
	})
}
