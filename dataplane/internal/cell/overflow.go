package cell

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// overflow counts what the table has no room for: cost of keys without an entry, and the counts of
// entries that were evicted before their windows ended. It is a sketch of fixed size (count-min
// with conservative update). For each cell it returns at least the cost that was added, and more if
// other cells share all of its counters. So it may deny keys too early, but never lets a key exceed
// its limit.
//
// A sketch cannot remove a cell. So cells of similar durations share two generations, each for
// twice the longest of those durations by the steady clock. Cost stays until no decision can depend
// on it, and is erased when its generation is used again, whatever the wall clock does.
type overflow struct {
	spans [len(overflowSpans)]overflowSpan
	width int // places in a row, a power of two; constant
}

// overflowSpans are the longest durations of those that share generations.
var overflowSpans = [...]time.Duration{time.Minute, time.Hour, 24 * time.Hour, window.DurationMax}

const (
	overflowRows     = 4
	overflowWidthMin = 1 << 14
	overflowWidthMax = 1 << 18 // 8 MiB per generation
)

// overflowSpan is the two generations of cells of similar durations. Each is allocated when
// something is added to it.
type overflowSpan struct {
	used        atomic.Bool
	mu          sync.Mutex // of what follows; held for some memory accesses
	newest      int64      // number of the newer generation
	generations [2][]int64 // by number mod 2
}

// init sizes the sketch for a table's capacity.
func (o *overflow) init(capacity int) {
	o.width = 1 << bits.Len(uint(min(max(capacity, overflowWidthMin), overflowWidthMax)-1))
}

// spanOf is where cells of a duration are counted. No duration is longer than the last span's.
func (o *overflow) spanOf(durationMs int64) (span *overflowSpan, generationMs int64) {
	i := 0
	for i < len(overflowSpans)-1 && durationMs > overflowSpans[i].Milliseconds() {
		i++
	}
	return &o.spans[i], 2 * overflowSpans[i].Milliseconds()
}

// add counts cost in a cell.
func (o *overflow) add(id *Identity, sequence, durationMs, cost int64, now clock.Steady) {
	s, generationMs := o.spanOf(durationMs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked(int64(now) / generationMs)
	places := o.places(id, sequence)
	counts := s.generations[s.newest&1]
	if counts == nil {
		counts = make([]int64, overflowRows*o.width)
		s.generations[s.newest&1] = counts
	}
	least := least(counts, &places)
	to := min(least+cost, mergedMax)
	for _, at := range places {
		counts[at] = max(counts[at], to)
	}
}

// count is at least what was added to a cell.
func (o *overflow) count(id *Identity, sequence, durationMs int64, now clock.Steady) (count int64) {
	s, generationMs := o.spanOf(durationMs)
	if !s.used.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked(int64(now) / generationMs)
	places := o.places(id, sequence)
	for i := range s.generations {
		count += least(s.generations[i], &places)
	}
	return min(count, mergedMax)
}

// turnLocked makes a generation the newest, and erases the generation that it replaces.
func (s *overflowSpan) turnLocked(generation int64) {
	if !s.used.Load() {
		s.newest = generation
		s.used.Store(true)
	}
	if generation <= s.newest {
		return
	}
	clear(s.generations[generation&1])
	if generation > s.newest+1 {
		clear(s.generations[(generation-1)&1]) // which nothing was added to
	}
	s.newest = generation
}

// places are a cell's, one in each row. An identity is a keyed hash, so an outsider cannot know which
// cells share a place.
func (o *overflow) places(id *Identity, sequence int64) (places [overflowRows]uint32) {
	a := (id.a ^ uint64(sequence)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	b := (id.b + uint64(sequence)*0xd6e8feb86659fd93) * 0xc4ceb9fe1a85ec53
	for row := range places {
		at := (a ^ a>>32) + uint64(row)*(b>>20|1)
		places[row] = uint32(row*o.width) + uint32(at&uint64(o.width-1))
	}
	return places
}

func least(counts []int64, places *[overflowRows]uint32) int64 {
	if counts == nil {
		return 0
	}
	count := counts[places[0]]
	for _, at := range places[1:] {
		count = min(count, counts[at])
	}
	return count
}
