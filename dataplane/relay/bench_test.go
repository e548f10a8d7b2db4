package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	benchCells   = 200_000
	benchRegions = 50
)

// stubStores take no time, so that a benchmark measures the relay's own work.
type stubStores struct {
	store.FullOrigin
	cells   []store.Change
	changed []store.Change // returned by Changes until acknowledged
	feed    stubFeed
	applied int              // number of cells passed to Apply
	clock   func() time.Time // nil: 28,000,000 minutes after 1970
}

type stubFeed struct {
	page  store.FeedPage
	bytes int // of all rows
}

func (s *stubStores) Changes(context.Context, int, int) (store.Changes, error) {
	now := time.UnixMilli(28_000_000 * 60_000)
	if s.clock != nil {
		now = s.clock()
	}
	return store.Changes{Cells: s.changed, Epoch: 1, Healed: true, Now: now}, nil
}

func (s *stubStores) Ack(context.Context, int, []store.Change) error {
	s.changed = nil
	return nil
}

func (s *stubStores) Scan(context.Context, int, uint64, int) ([]store.Change, uint64, error) {
	return s.cells, 0, nil
}

func (s *stubStores) Apply(_ context.Context, _ int, cells []store.Foreign) (int, error) {
	s.applied += len(cells)
	return 0, nil
}

func (s *stubFeed) Append(_ context.Context, row store.FeedRow) error {
	s.bytes += len(row.Payload)
	return nil
}

func (s *stubFeed) Own(context.Context, store.Stream, func(store.FeedRow)) error { return nil }

func (s *stubFeed) Prune(context.Context, store.Stream, int64, int) (int, error) { return 0, nil }

func (s *stubFeed) Read(context.Context, store.FeedQuery) (store.FeedPage, error) {
	page := s.page
	s.page = store.FeedPage{}
	return page, nil
}

func benchCell(i int) window.Cell {
	c := minuteCell(fmt.Sprintf("user-%08x", uint32(i)*2654435761))
	c.Namespace = fmt.Sprint("api-", i%20)
	return c
}

// benchRelay returns a relay that leads a shard of benchCells cells, and has published them.
func benchRelay(b *testing.B) (*Relay, *stubStores, time.Time) {
	stores := &stubStores{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{})}
	for i := range benchCells {
		stores.cells = append(stores.cells, store.Change{Cell: benchCell(i), Total: 500, Limit: 1000})
	}
	now := time.Now()
	r, err := New(Config{Region: "eu", Holder: "node", Origin: stores, Feed: &stores.feed, Counts: memstore.NewCounts(memstore.CountsOptions{}),
		Clock: func() time.Time { return now }})
	if err != nil {
		b.Fatal(err)
	}
	s := r.shards[0]
	if err := s.lease.renew(b.Context(), now); err != nil {
		b.Fatal(err)
	}
	for len(s.book.due) > 0 || !s.own.ready {
		if err := s.take(b.Context(), now); err != nil {
			b.Fatal(err)
		}
	}
	return r, stores, now
}

// BenchmarkApplyForeign measures the relay's work for publishing a changed cell among 200,000 live cells.
func BenchmarkApplyForeign(b *testing.B) {
	r, stores, now := benchRelay(b)
	s, n := r.shards[0], 0
	stores.feed.bytes = 0
	for total := int64(600); b.Loop(); total++ {
		b.StopTimer()
		changed := make([]store.Change, changesMax)
		for i := range changed {
			changed[i] = store.Change{Cell: stores.cells[(n+i)%benchCells].Cell, Total: total, Limit: 1000}
		}
		stores.changed = changed
		b.StartTimer()
		if err := s.take(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		n += changesMax
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cell")
	b.ReportMetric(float64(stores.feed.bytes)/float64(n), "B/cell")
}

// BenchmarkRead measures the relay's work for reading a count and applying it to its origin. There are 50 regions with
// 4,000 cells each.
func BenchmarkRead(b *testing.B) {
	r, stores, now := benchRelay(b)
	const each, n = benchCells / benchRegions, benchCells
	counts, done := make([]counted, each), 0
	for total := int64(1); b.Loop(); total++ {
		b.StopTimer()
		for region := range benchRegions {
			for i := range counts {
				counts[i] = counted{cell: benchCell(region*each + i), total: total}
			}
			row := store.FeedRow{Stream: store.Stream{Region: fmt.Sprint("r", region)}, Sequence: total, Payload: encode(counts, 0)}
			stores.feed.page.Rows = append(stores.feed.page.Rows, row)
		}
		b.StartTimer()
		if err := r.reader.read(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		if err := r.shards[0].applyForeign(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		done += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/cell")
}

// BenchmarkPayload measures the bytes and the time of a count in a row of 4,000.
func BenchmarkPayload(b *testing.B) {
	counts := benchCounts()
	ignore, plain := func(counted) {}, encodePlain(slices.Clone(counts))
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			_ = encodePlain(slices.Clone(counts))
		}
		perCell(b, len(counts), len(plain))
	})
	b.Run("deflate", func(b *testing.B) {
		for b.Loop() {
			_ = encode(slices.Clone(counts), 0)
		}
		perCell(b, len(counts), len(encode(slices.Clone(counts), 0)))
	})
	packed := encode(slices.Clone(counts), 0)
	for name, payload := range map[string][]byte{"decode": plain, "inflate and decode": packed} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := decodeOnly(payload, ignore); err != nil {
					b.Fatal(err)
				}
			}
			perCell(b, len(counts), len(payload))
		})
	}
}

func benchCounts() []counted {
	counts := make([]counted, 4000)
	for i := range counts {
		counts[i] = counted{cell: benchCell(i), number: uint32(i + 1), total: rand.Int64N(1000)}
	}
	return counts
}

func perCell(b *testing.B, cells, bytes int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells), "ns/cell")
	b.ReportMetric(float64(bytes)/float64(cells), "B/cell")
}
