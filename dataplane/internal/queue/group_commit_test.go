package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Whoever has the lead takes all values, those too that come in while the lead ends; two never lead at once.
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

// A call takes what has room by its size, at least one value; what is put back comes first; with none the lead is over.
func TestACallTakesWhatHasRoom(t *testing.T) {
	var q GroupCommit[int]
	size := func(n int) int { return n }
	if !q.Enter(1, 9) || q.Enter(1, 2) || q.Enter(1, 3) || q.Enter(1, 1) || q.Lead() {
		t.Fatal("the first value alone gets the lead")
	}
	for _, want := range [][]int{{9}, {2, 3}} { // 9 has no room, and 1 none beside 2 and 3
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
}
