package cell

import "testing"

// What is merged while a batch holds a cell stays, beside what the batch counts.
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

// What batches count whatever the limit stops where merges do.
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
