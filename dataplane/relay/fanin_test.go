//go:build unix

package relay

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// What one of fifty regions of 200,000 keys, in windows of a minute, tells in an interval: see weir-sim run relay-pair.
const (
	fanInRegions  = 49
	fanInNames    = 746
	fanInCounts   = 1036
	fanInInterval = 200 * time.Millisecond
)

// BenchmarkFanIn is what a relay takes to read 49 regions' news and to tell its origin, an interval at a time, with
// some percent of their keys. Cores are processor time, garbage collection included and the making of the rows not,
// by the time that the rows stand for. Three windows, 900 intervals, reach what it holds at most.
func BenchmarkFanIn(b *testing.B) {
	for _, percent := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(percent, "%"), func(b *testing.B) { fanIn(b, percent) })
	}
}

func fanIn(b *testing.B, percent int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // or idle processors collect garbage, for nothing
	now := time.UnixMilli(28_000_000 * 60_000)
	clock := func() time.Time { return now }
	stores := &stubStores{RelayOrigin: memstore.NewOrigin(memstore.OriginOptions{}), clock: clock}
	r, err := New(Config{Region: "eu", Holder: "node", Origin: stores, News: &stores.news,
		Counts: memstore.NewCounts(memstore.CountsOptions{}), Clock: clock})
	if err != nil {
		b.Fatal(err)
	}
	var tellers [fanInRegions]fanInTeller
	for i := range tellers {
		tellers[i] = fanInTeller{stream: store.Stream{Region: fmt.Sprintf("region-%02d", i)}}
	}
	spent := time.Duration(0)
	for b.Loop() {
		now = now.Add(fanInInterval)
		for i := range tellers {
			stores.news.page.Rows = append(stores.news.page.Rows, tellers[i].row(now, percent))
		}
		before := processTime()
		if err := r.Step(b.Context()); err != nil {
			b.Fatal(err)
		}
		spent += processTime() - before
	}
	cores := spent.Seconds() / (float64(b.N) * fanInInterval.Seconds())
	b.ReportMetric(cores*100, "%core")
	b.ReportMetric(cores*100*100/float64(percent), "%core/full-size")
	b.ReportMetric(float64(heapBytes())/float64(r.shards[0].book.n), "B/cell")
	b.ReportMetric(float64(r.shards[0].book.n), "cells")
	runtime.KeepAlive(&tellers)
}

// BenchmarkLoneCells is what a relay holds of another region's cell that is alone in its namespace and window.
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

// heapBytes is what is on the heap and no garbage.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fanInTeller makes a region's rows: at any moment of a window it has named a part of its cells, and tells more of
// these.
type fanInTeller struct {
	stream   store.Stream
	sequence int64
	window   int64
	named    uint32
}

func (f *fanInTeller) row(now time.Time, percent int) store.NewsRow {
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
	return store.NewsRow{Stream: f.stream, Sequence: f.sequence, Writer: 1, Payload: encode(nil, counts, 0)}
}

// processTime is the processor time of this process.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
