package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// The goroutine with the lead takes all values, also values that arrive while the lead ends. Two goroutines never lead
// at once.
func TestEachValueIsTakenByTheOneWhoLeads(t *testing.T) {
	const callers, each = 8, 500
	var q GroupCommit[int]
	var leading atomic.Int64
	taken, one := 0, func(int) int { return 1 }
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				if !q.Enter(uint16(c), i) {
					continue
				}
				for batch := q.Take(3, one); len(batch) > 0; batch = q.Take(3, one) {
					if leading.Add(1) > 1 || len(batch) > 3 {
						t.Errorf("two lead, or a call has %d values", len(batch))
					}
					taken += len(batch) // only who leads
					leading.Add(-1)
				}
			}
		})
	}
	wg.Wait()
	if taken != callers*each || q.Len() != 0 {
		t.Errorf("%d values were taken, and %d wait", taken, q.Len())
	}
}

// A call takes as many values as have room by their size, at least one. Values that are put back come first. Without
// values the lead ends.
func TestACallTakesWhatHasRoom(t *testing.T) {
	var q GroupCommit[int]
	size := func(n int) int { return n }
	if !q.Enter(1, 9) || q.Enter(1, 2) || q.Enter(1, 3) || q.Enter(1, 1) || q.Lead() {
		t.Fatal("the first value alone gets the lead")
	}
	for _, want := range [][]int{{9}, {2, 3}} { // 9 has no room, and 1 has none with 2 and 3
		if got := q.Take(5, size); !slices.Equal(got, want) {
			t.Fatalf("took %v, want %v", got, want)
		}
	}
	q.PutBack(1, 3)
	q.Enter(2, 7)
	q.Leave(2, func(n int) bool { return n == 7 })
	if got := q.TakeAll(); !slices.Equal(got, []int{3, 1}) {
		t.Fatalf("took %v", got)
	}
	if q.Lead() || !q.Yield() || !q.Lead() || len(q.Take(5, size)) != 0 || !q.Lead() {
		t.Error("the lead ends by Yield or an empty Take, and by nothing else")
	}
	q.Enter(1, 4)
	if q.Yield() || q.Lead() {
		t.Error("the lead ends though a value waits")
	}
}
