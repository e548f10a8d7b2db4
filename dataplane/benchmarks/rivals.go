package benchmarks

import (
	"sync"
	"time"

	sliding "github.com/mennanov/limiters"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

var goLimiter = workload.Limiter{Name: "go-limiter", Rival: true, New: func(limit int64) (workload.Decide, func()) {
	store := must(memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: time.Hour}))
	return func(identifier string) bool {
		_, _, _, ok, err := store.Take(background, identifier)
		return ok && err == nil
	}, func() { _ = store.Close(background) } // always nil
}}

var xtime = workload.Limiter{Name: "x-time-rate", Rival: true, New: func(limit int64) (workload.Decide, func()) {
	limiters := lockedMap[*rate.Limiter]{make: func() *rate.Limiter {
		return rate.NewLimiter(rate.Limit(float64(limit)/time.Hour.Seconds()), int(limit))
	}}
	return func(identifier string) bool { return limiters.get(identifier).Allow() }, func() {}
}}

// GCRA cannot count an hour's 2^40 units: at most one a nanosecond. Its store has no bound on identifiers here, because
// its bounded store takes an exclusive lock each time.
var throttledGCRA = workload.Limiter{Name: "throttled", Rival: true, New: func(limit int64) (workload.Decide, func()) {
	quota := throttled.RateQuota{
		MaxRate:  throttled.PerDuration(1, max(1, time.Hour/time.Duration(limit))),
		MaxBurst: int(min(limit, 1e9)) - 1,
	}
	l := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(0)), quota))
	return func(identifier string) bool {
		limited, _, err := l.RateLimitCtx(background, identifier, 1)
		return !limited && err == nil // it gives up after losing ten races
	}, func() {}
}}

var mennanov = workload.Limiter{Name: "mennanov-sliding", Rival: true,
	New: func(limit int64) (workload.Decide, func()) {
		clock := sliding.NewSystemClock()
		limiters := lockedMap[*sliding.SlidingWindow]{make: func() *sliding.SlidingWindow {
			return sliding.NewSlidingWindow(limit, time.Hour, sliding.NewSlidingWindowInMemory(), clock, 1e-9)
		}}
		return func(identifier string) bool {
			_, err := limiters.get(identifier).Limit(background)
			return err == nil
		}, func() {}
	}}

var ulule = workload.Limiter{Name: "ulule", Rival: true, New: func(limit int64) (workload.Decide, func()) {
	l := ululelimiter.New(ululememory.NewStore(), ululelimiter.Rate{Period: time.Hour, Limit: limit})
	return func(identifier string) bool {
		answer, err := l.Get(background, identifier)
		return !answer.Reached && err == nil
	}, func() {}
}}

// lockedMap is the map that users usually write around a limiter without keys.
type lockedMap[T any] struct {
	make func() T

	mu sync.RWMutex
	of map[string]T
}

func (m *lockedMap[T]) get(identifier string) T {
	m.mu.RLock()
	v, ok := m.of[identifier]
	m.mu.RUnlock()
	if ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok = m.of[identifier]; ok {
		return v
	}
	if m.of == nil {
		m.of = map[string]T{}
	}
	v = m.make()
	m.of[identifier] = v
	return v
}
