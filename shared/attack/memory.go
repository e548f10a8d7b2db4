package attack

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Memory is the most that the process had of the system since Watch.
type Memory struct {
	idle, most uint64
	over       atomic.Bool
	watching   sync.WaitGroup
}

// Watch measures until Small is called.
func Watch() *Memory {
	debug.FreeOSMemory()
	m := &Memory{idle: Mapped()}
	m.watching.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !m.over.Load() {
			m.most = max(m.most, Mapped())
			<-tick.C
		}
	})
	return m
}

// Small ends measuring, and fails the test if there were more than most bytes more at once than at first. Under the
// race detector it only shows how many: that takes memory of its own, and slows the collector down.
func (m *Memory) Small(t testing.TB, most int64) {
	t.Helper()
	m.over.Store(true)
	m.watching.Wait()
	peak := int64(m.most) - int64(m.idle)
	t.Logf("%d MiB more than when idle", peak>>20)
	if !raced && peak > most {
		t.Errorf("%d MiB more than when idle, want at most %d", peak>>20, most>>20)
	}
}

// Mapped is what Go has of the system and has not given back: what the process's resident memory is made of.
func Mapped() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}
