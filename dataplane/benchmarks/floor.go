package benchmarks

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// floor does only the work that no limiter can do without: it finds the identifier's counter, adds to it and reads the
// time. It never denies.
var floor = workload.Limiter{Name: "floor", Floor: true, New: func(int64) (workload.Decide, func()) {
	var counters sync.Map
	return func(identifier string) bool {
		now := time.Now().UnixNano()
		counter, ok := counters.Load(identifier)
		if !ok {
			counter, _ = counters.LoadOrStore(identifier, new(atomic.Int64))
		}
		return counter.(*atomic.Int64).Add(1) > 0 && now > 0
	}, func() {}
}}

// floorLeast does the same with the cheapest parts that Go has: the map in which its keyless rivals are kept, and a
// clock without the time of day. Numbering windows by that clock takes a little more.
var floorLeast = workload.Limiter{Name: "floor-least", Floor: true, New: func(int64) (workload.Decide, func()) {
	counters := lockedMap[*atomic.Int64]{make: func() *atomic.Int64 { return new(atomic.Int64) }}
	started := time.Now()
	return func(identifier string) bool {
		now := time.Since(started)
		return counters.get(identifier).Add(1) > 0 && now >= 0
	}, func() {}
}}
