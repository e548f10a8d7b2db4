package dataplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

func benchLimiter(b *testing.B, entriesMax int) *dataplane.Limiter {
	b.Helper()
	l, err := dataplane.New(dataplane.Config{EntriesMax: entriesMax})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Stop(context.Background()) }) // sends nothing to anybody
	return l
}

func benchRequest(identifier string, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: identifier, Limit: limit, Duration: time.Minute, Cost: 1}
}

// One warm key, allowed and denied.
func BenchmarkHotKey(b *testing.B) {
	ctx := b.Context()
	for name, limit := range map[string]int64{"allowed": 1 << 50, "denied": 0} {
		b.Run(name, func(b *testing.B) {
			l := benchLimiter(b, 0)
			r := benchRequest("user_42", limit)
			l.Allow(ctx, benchRequest("user_42", 1<<50))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow(ctx, r)
				}
			})
		})
	}
}

// 100,000 warm keys, each as likely as any other. The requests come in the order in
// which they lie in memory, as if they had just been read from the wire: what is
// measured is the limiter's own misses.
func BenchmarkWarmKeys(b *testing.B) {
	const keys = 100_000
	ctx := b.Context()
	l := benchLimiter(b, 0)
	requests := make([]dataplane.Request, keys)
	for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(keys) {
		requests[i] = benchRequest(fmt.Sprintf("user_%d", n), 1<<50)
	}
	for n := range keys { // entries lie in another order
		l.Allow(ctx, benchRequest(fmt.Sprintf("user_%d", n), 1<<50))
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := rand.IntN(keys)
		for pb.Next() {
			if i++; i == keys {
				i = 0
			}
			l.Allow(ctx, requests[i])
		}
	})
}

func BenchmarkFirstContact(b *testing.B) {
	ctx := b.Context()
	l := benchLimiter(b, 1<<30)
	names := make([]string, b.N)
	for i := range names {
		names[i] = fmt.Sprintf("user_%d", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, name := range names {
		l.Allow(ctx, benchRequest(name, 100))
	}
}

func BenchmarkBatchOf4(b *testing.B) {
	ctx := b.Context()
	l := benchLimiter(b, 0)
	batch := make([]dataplane.Request, 4)
	for i := range batch {
		batch[i] = benchRequest(fmt.Sprintf("user_%d", i), 1<<50)
	}
	var decisions []dataplane.Decision
	b.ReportAllocs()
	for b.Loop() {
		decisions = l.AppendAllowMany(ctx, decisions[:0], batch).Decisions
	}
}

// A handle on a warm key skips validation, hashing and look-up.
func BenchmarkHandle(b *testing.B) {
	ctx := b.Context()
	l := benchLimiter(b, 0)
	key, err := l.Handle("acme", "api", "user_42", time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key.Allow(ctx, 1<<50, 1)
		}
	})
}

// The same for a caller who knows the time.
func BenchmarkHandleAt(b *testing.B) {
	ctx := b.Context()
	l := benchLimiter(b, 0)
	key, err := l.Handle("acme", "api", "user_42", time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key.AllowAt(ctx, now, 1<<50, 1)
		}
	})
}

// A decision where 100,000 overrides are set, each as likely as any other: without a '*', with one,
// and with several.
func BenchmarkOverrides(b *testing.B) {
	const overrides = 100_000
	for _, c := range []struct{ name, pattern, identifier string }{
		{"exact", "user_%d", "user_%d"},
		{"heads", "user_%d_*", "user_%d_7"},
		{"tails", "*@host%d.example", "7@host%d.example"},
		{"both", "user_%d_*.example", "user_%d_7.example"},
		{"several", "org_%d_*_user_*", "org_%d_7_user_8"},
	} {
		b.Run(c.name, func(b *testing.B) {
			rows := make([]store.OverrideRow, overrides)
			requests := make([]dataplane.Request, overrides)
			for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(overrides) {
				rows[i] = store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf(c.pattern, i), Limit: 1 << 50}
				requests[i] = benchRequest(fmt.Sprintf(c.identifier, n), 10)
			}
			counts := memstore.NewCounts(memstore.CountsOptions{})
			counts.SetOverrides(rows...)
			l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: counts})
			if err != nil {
				b.Fatal(err)
			}
			if err := l.LoadSettings(b.Context()); err != nil {
				b.Fatal(err)
			}
			for i := range requests {
				l.Allow(b.Context(), requests[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d := l.Allow(b.Context(), requests[i%overrides]); d.Limit != 1<<50 {
					b.Fatal(d)
				}
			}
		})
	}
}

// One warm key of a node with an origin: far from its limit, where the node share costs a
// comparison, and past 1/4n of it, where it is looked at.
func BenchmarkFleetHotKey(b *testing.B) {
	ctx := b.Context()
	for name, limit := range map[string]int64{"far": 1 << 50, "near": 4 * 1_000_000_000} {
		b.Run(name, func(b *testing.B) {
			l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{})})
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Start(ctx); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = l.Stop(context.Background()) }()
			r := benchRequest("user_42", limit)
			if name == "near" {
				fill := r
				fill.Cost = limit / 2
				l.Allow(ctx, fill)
			}
			l.Allow(ctx, r)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow(ctx, r)
				}
			})
		})
	}
}

// A warm key's lease, beside a rate decision on a warm key: a lease should cost at most 1.5 decisions.
func BenchmarkAcquireRelease(b *testing.B) {
	b.Run("decision", func(b *testing.B) {
		l, r := acquirer(b, dataplane.Config{}), benchRequest("user_42", 1<<50)
		b.ReportAllocs()
		for b.Loop() {
			l.Allow(b.Context(), r)
		}
	})
	for name, origin := range map[string]bool{"alone": false, "fleet": true} {
		b.Run(name, func(b *testing.B) {
			cfg := dataplane.Config{}
			if origin {
				cfg.Origin, cfg.Region = memstore.NewOrigin(memstore.OriginOptions{}), "eu"
			}
			l := acquirer(b, cfg)
			r := jobs(1 << 40)
			for range 2 { // the second time it takes some to spare
				l.Acquire(b.Context(), r)
			}
			b.ReportAllocs()
			for b.Loop() {
				lease, _ := l.Acquire(b.Context(), r)
				lease.Release()
			}
		})
	}
}
