package attack

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Memory is the most memory that the process has taken from the system since Watch.
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

// Small ends the measurement. It fails the test if the process had more than most bytes more at any moment than at
// first. Under the race detector it only logs the number, because the detector takes memory of its own, and slows the
// collector down.
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

// Mapped returns how much memory Go has taken from the system and not given back: the main part of the process's
// resident memory.
func Mapped() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}
