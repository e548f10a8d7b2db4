package storetest

import (
	"sync"
	"sync/atomic"
)

// errOf returns the error of a call whose answer does not matter.
func errOf[T any](_ T, err error) error { return err }

// atOnce makes calls at the same time, and expects how much is granted to all of them.
func (h *originTest) atOnce(calls int, want int64, call func(i int) (granted int64, err error)) {
	h.Helper()
	var sum atomic.Int64
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			granted, err := call(i)
			if err != nil {
				h.Error(err)
			}
			sum.Add(granted)
		})
	}
	if all.Wait(); sum.Load() != want {
		h.Errorf("%d were granted to %d calls, want %d", sum.Load(), calls, want)
	}
}

// granted returns 1 if a call got all that it requested.
func granted(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
