package relay

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue has the items that were pushed, less those that were dropped.
func TestAQueueIsFirstInFirstOut(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q queue[int]
		var want []int
		for i := range 5000 {
			switch r.IntN(40) {
			case 0:
				n := r.IntN(q.len() + 1)
				q.drop(n)
				want = want[n:]
			case 1:
				gone := func(item int) bool { return item%7 == i%7 }
				q.remove(gone)
				want = slices.DeleteFunc(slices.Clone(want), gone)
			default:
				q.push(i)
				want = append(want, i)
			}
			if !slices.Equal(q.all(), want) || q.len() != len(want) {
				t.Fatalf("seed %d, step %d: %v, want %v", seed, i, q.all(), want)
			}
		}
	}
}

// A queue that is emptied again and again allocates nothing. A queue that was very long frees its memory.
func TestAQueueUsesItsMemoryAgain(t *testing.T) {
	var q queue[int]
	fill := func(n int) {
		for i := range n {
			q.push(i)
		}
		for q.len() > 0 {
			q.drop(min(q.len(), 10))
		}
	}
	fill(1000)
	if n := testing.AllocsPerRun(10, func() { fill(1000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if fill(2 * queueKept); cap(q.items) != 0 {
		t.Errorf("it keeps room for %d", cap(q.items))
	}
}
