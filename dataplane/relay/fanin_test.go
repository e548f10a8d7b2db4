//go:build unix

package relay

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The counts that each of fifty regions with 200,000 keys, in windows of a minute, publishes in an interval: see
// weir-sim run relay-pair.
const (
	fanInRegions  = 49
	fanInNames    = 746
	fanInCounts   = 1036
	fanInInterval = 200 * time.Millisecond
)

// BenchmarkFanIn measures a relay that reads the rows of 49 regions and applies their counts to its origin, one
// interval at a time. In the cases named by a percentage, rows have that percentage of the counts above, of keys that
// only their region uses. In the "hot keys" cases, all regions use the same keys and publish them at every interval.
//
// %core is processor time divided by the time that the rows stand for. It includes garbage collection, and leaves out
// making the rows. p99-ms is the 99th percentile of the time that an interval's rows take until the last of their
// counts is applied. Run at least three windows (900 intervals) to reach the largest memory.
func BenchmarkFanIn(b *testing.B) {
	for _, percent := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(percent, "%"), func(b *testing.B) {
			cores := fanIn(b, func(f *fanInPublisher, now time.Time) store.FeedRow { return f.row(now, percent) })
			b.ReportMetric(cores*100*100/float64(percent), "%core/full-size")
		})
	}
	for _, keys := range []int{1000, changesMax} {
		b.Run(fmt.Sprint(keys, " hot keys"), func(b *testing.B) {
			var hot hotRows
			fanIn(b, func(f *fanInPublisher, now time.Time) store.FeedRow { return hot.row(f, now, keys) })
		})
	}
}

func fanIn(b *testing.B, row func(*fanInPublisher, time.Time) store.FeedRow) (cores float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // with more processors, idle ones would collect garbage all the time
	now := time.UnixMilli(28_000_000 * 60_000)
	clock := func() time.Time { return now }
	stores := &stubStores{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{}), clock: clock}
	r, err := New(Config{Region: "eu", Holder: "node", Origin: stores, Feed: &stores.feed,
		Counts: memstore.NewCounts(memstore.CountsOptions{}), Clock: clock})
	if err != nil {
		b.Fatal(err)
	}
	var publishers [fanInRegions]fanInPublisher
	for i := range publishers {
		publishers[i] = fanInPublisher{stream: store.Stream{Region: fmt.Sprintf("region-%02d", i)}}
	}
	var steps []time.Duration
	for b.Loop() {
		now = now.Add(fanInInterval)
		for i := range publishers {
			stores.feed.page.Rows = append(stores.feed.page.Rows, row(&publishers[i], now))
		}
		before := processTime()
		if err := r.Step(b.Context()); err != nil {
			b.Fatal(err)
		}
		steps = append(steps, processTime()-before)
	}
	b.ReportMetric(float64(stores.applied)/(float64(len(steps))*fanInInterval.Seconds()), "applied-cells/s")
	b.ReportMetric(float64(heapBytes())/float64(r.shards[0].book.cells.n), "B/cell")
	b.ReportMetric(float64(r.shards[0].book.cells.n), "cells")
	runtime.KeepAlive(&publishers)
	return reportSteps(b, steps)
}

// reportSteps reports how long the intervals took.
func reportSteps(b *testing.B, steps []time.Duration) (cores float64) {
	spent := time.Duration(0)
	for _, took := range steps {
		spent += took
	}
	slices.Sort(steps)
	cores = spent.Seconds() / (float64(len(steps)) * fanInInterval.Seconds())
	b.ReportMetric(cores*100, "%core")
	b.ReportMetric(float64(steps[len(steps)*99/100].Microseconds())/1000, "p99-ms")
	return cores
}

// hotRows makes rows with the same keys for every region: with names when a window begins, and with a new count at
// every interval.
type hotRows struct {
	at      time.Time
	window  int64
	payload []byte
}

func (h *hotRows) row(f *fanInPublisher, now time.Time, keys int) store.FeedRow {
	if !now.Equal(h.at) {
		w := window.Sequence(now.UnixMilli(), time.Minute.Milliseconds())
		h.at, h.payload = now, hotPayload(w, w != h.window, keys, now.UnixMilli()%60_000)
		h.window = w
	}
	f.sequence++
	return store.FeedRow{Stream: f.stream, Sequence: f.sequence, Writer: 1, Payload: h.payload}
}

func hotPayload(window int64, named bool, keys int, total int64) []byte {
	cell := minuteCell("")
	cell.Sequence = window
	counts := make([]counted, keys)
	for i := range counts {
		if named {
			cell.Identifier = fmt.Sprintf("hot/user_%d", i)
		}
		counts[i] = counted{cell, uint32(i + 1), total}
	}
	return encode(counts, 0)
}

// BenchmarkLoneCells measures the memory of another region's cell that is alone in its namespace and window.
func BenchmarkLoneCells(b *testing.B) {
	const cells = 200_000
	var held float64
	for b.Loop() {
		book := &newTestRelay(b).shards[0].book
		before := heapBytes()
		for i := range cells {
			c := minuteCell("user_12345678")
			c.Workspace = fmt.Sprintf("workspace_%08d", i)
			mergeOne(book, "us", counted{cell: c, total: 5}, time.Time{})
		}
		held = float64(heapBytes()-before) / cells
		runtime.KeepAlive(book)
	}
	b.ReportMetric(held, "B/cell")
}

// heapBytes returns the live bytes on the heap.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fanInPublisher makes a region's rows. At any moment of a window it has named a part of its cells, and publishes more
// counts of these.
type fanInPublisher struct {
	stream   store.Stream
	sequence int64
	window   int64
	named    uint32
}

func (f *fanInPublisher) row(now time.Time, percent int) store.FeedRow {
	f.sequence++
	if w := window.Sequence(now.UnixMilli(), time.Minute.Milliseconds()); w != f.window {
		f.window, f.named = w, 0
	}
	cell := minuteCell("")
	cell.Sequence = f.window
	var counts []counted
	seen := make(map[uint32]bool)
	for range fanInCounts * percent / 100 {
		if f.named == 0 {
			break
		}
		if n := 1 + rand.Uint32N(f.named); !seen[n] {
			seen[n] = true
			counts = append(counts, counted{cell, n, 10 + 10*rand.Int64N(10)})
		}
	}
	for range fanInNames * percent / 100 {
		f.named++
		cell.Identifier = fmt.Sprintf("%s/user_%d", f.stream.Region, rand.Uint32N(1<<24))
		counts = append(counts, counted{cell, f.named, 5})
	}
	return store.FeedRow{Stream: f.stream, Sequence: f.sequence, Writer: 1, Payload: encode(counts, 0)}
}

// processTime returns the processor time of this process.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
