package cell

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Cost that is merged while a batch holds a cell stays, in addition to the cost that the batch counts.
func TestAHeldCellKeepsWhatIsMerged(t *testing.T) {
	e := ledgerEntry() // of 20
	for _, cost := range []int64{0, 3} {
		if _, alive := e.Hold(anyTime, ledgerMs(), e.DurationMs()); !alive {
			t.Fatal("not alive")
		}
		e.counter.add(slotOf(ledgerSeq), 5)
		e.Release(cost)
	}
	if got := e.LookAt(ledgerSeq).Counted; got != 20+5+5+3 {
		t.Errorf("%d are counted, want the 20 of before, 10 that were merged and 3 of the batches", got)
	}
}

// Cost that batches count whatever the limit stops at the same bound as merges.
func TestBatchesStopWhereMergesDo(t *testing.T) {
	e := ledgerEntry()
	for range 2 {
		if _, alive := e.Hold(anyTime, ledgerMs(), e.DurationMs()); !alive {
			t.Fatal("not alive")
		}
		e.Release(mergedMax - 10)
	}
	if got := e.LookAt(ledgerSeq).Counted; got != mergedMax {
		t.Errorf("%d are counted, want it to stop at %d", got, int64(mergedMax))
	}
}

// A call that holds the entry's lock waits for a batch without sleeping. In a bubble of synctest, a sleep there would
// never end, because the clock stands still while another goroutine waits for the lock.
func TestAWaitForABatchDoesNotSleep(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		const often = 10_000
		e := ledgerEntry()
		e.Hold(anyTime, ledgerMs(), e.DurationMs())
		var calls sync.WaitGroup
		locked := make(chan struct{})
		calls.Go(func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			close(locked)
			e.counter.awaitRelease(slotOf(ledgerSeq))
		})
		<-locked
		calls.Go(func() { e.LookAt(ledgerSeq) })
		for range often {
			runtime.Gosched()
		}
		e.Release(0)
		calls.Wait()
	})
}
