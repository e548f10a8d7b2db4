package cell

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// overflow counts cost that the table has no room for: cost of keys without an entry, and the counts of entries that
// were evicted before their windows ended. It is a sketch of fixed size (count-min with conservative update). For each
// cell it returns at least the cost that was added, and more if other cells share all of its counters. So it may deny
// keys too early, but never lets a key exceed its limit.
//
// A sketch cannot remove a cell. So cells of similar durations share two generations, each for
// twice the longest of those durations by the steady clock. Cost stays until no decision can depend
// on it, and is dropped with its generation, whatever the wall clock does.
//
// In a flood of new identifiers every decision reads the sketch, and most add to it. So a read takes no lock, and an
// add takes a lock that only the keys of one stripe share. Counters grow by compare-and-swap and never shrink. A cell's
// counters are therefore never below the cost that was added to the cell, provided that adds to the same cell come in
// sequence. The lock of the key's stripe ensures that.
type overflow struct {
	spans   [len(overflowSpans)]overflowSpan
	width   int // places in a row, a power of two; constant
	stripes [overflowStripes]overflowStripe
}

// overflowSpans holds the longest duration of each group of durations that shares generations.
var overflowSpans = [...]time.Duration{time.Minute, time.Hour, 24 * time.Hour, window.DurationMax}

const (
	overflowRows     = 4
	overflowWidthMin = 1 << 14
	overflowWidthMax = 1 << 18 // 8 MiB per generation
	overflowStripes  = 64      // a power of two
)

// overflowStripe is the lock of some keys, on a cache line of its own.
type overflowStripe struct {
	sync.Mutex
	_ [64 - 8]byte
}

// overflowSpan is the two generations of cells of similar durations; nil until something is added.
type overflowSpan struct {
	generations atomic.Pointer[generations]
	mu          sync.Mutex // held to replace generations
}

// generations is immutable, but the counters that it points to are not.
type generations struct {
	newest       int64       // number of newer
	newer, older *generation // older is nil if nothing was added to it
}

// generation has rows of counters, and the range of the cells that were added to them.
type generation struct {
	counts      []atomic.Int64
	first, last atomic.Int64 // starts of the earliest and the latest of these cells, in Unix ms
}

// init sizes the sketch for a table's capacity.
func (o *overflow) init(capacity int) {
	o.width = 1 << bits.Len(uint(min(max(capacity, overflowWidthMin), overflowWidthMax)-1))
}

// spanOf returns the span in which cells of a duration are counted. No duration is longer than the last span's.
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
	g, places := s.open(int64(now)/generationMs, overflowRows*o.width), o.places(id, sequence)
	g.lower(window.Start(sequence, durationMs))
	stripe := &o.stripes[id.a>>48&(overflowStripes-1)]
	stripe.Lock()
	defer stripe.Unlock()
	to := min(g.least(&places)+cost, mergedMax)
	for _, at := range places {
		raise(&g.counts[at], to)
	}
}

// count returns at least the cost that was added to a cell.
func (o *overflow) count(id *Identity, sequence, durationMs int64, now clock.Steady) (count int64) {
	s, generationMs := o.spanOf(durationMs)
	start, places := window.Start(sequence, durationMs), o.places(id, sequence)
	newer, older := s.at(int64(now) / generationMs)
	for _, g := range [...]*generation{newer, older} {
		if g.has(start) {
			count += g.least(&places)
		}
	}
	return min(count, mergedMax)
}

// at returns the generations that a decision during generation number may depend on.
func (s *overflowSpan) at(number int64) (newer, older *generation) {
	g := s.generations.Load()
	switch {
	case g == nil || number > g.newest+1:
		return nil, nil
	case number == g.newest+1:
		return nil, g.newer
	}
	return g.newer, g.older
}

// open returns the generation that cost is added to, and begins it if this is its first cost.
//
// A goroutine can still add to the generation that was the newest when it called open. That generation is the older
// generation now, and is counted. If it is dropped meanwhile too, so much time has passed that no decision depends on
// this cost.
func (s *overflowSpan) open(number int64, counts int) *generation {
	if g := s.generations.Load(); g != nil && number <= g.newest {
		return g.newer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.generations.Load(); g != nil && number <= g.newest {
		return g.newer
	}
	newer := &generation{counts: make([]atomic.Int64, counts)}
	newer.first.Store(math.MaxInt64)
	newer.last.Store(math.MinInt64)
	_, older := s.at(number)
	s.generations.Store(&generations{number, newer, older})
	return newer
}

// lower widens the generation's range to a cell with this start.
func (g *generation) lower(startMs int64) {
	raise(&g.last, startMs)
	for {
		was := g.first.Load()
		if was <= startMs || g.first.CompareAndSwap(was, startMs) {
			return
		}
	}
}

// has reports whether a cell with this start is in the generation's range. A cell outside of the
// range was not added. For example, nothing is added to the next cell unless the clock is set back or
// callers bring times of their own. Without the range, such a cell would seem to have the cost of
// others that share its counters.
func (g *generation) has(startMs int64) bool {
	return g != nil && g.first.Load() <= startMs && startMs <= g.last.Load()
}

// places returns a cell's places, one in each row. An identity is a keyed hash, so an outsider can't find out which
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

func (g *generation) least(places *[overflowRows]uint32) int64 {
	count := g.counts[places[0]].Load()
	for _, at := range places[1:] {
		count = min(count, g.counts[at].Load())
	}
	return count
}
