package dataplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
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
	b.Cleanup(func() { _ = l.Stop(context.Background()) }) // sends nothing
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

// 100,000 warm keys are equally likely. The requests come in the order in which they lie in memory, as if they had
// just been read from the wire. So only the limiter's own cache misses are measured.
func BenchmarkWarmKeys(b *testing.B) {
	const keys = 100_000
	ctx := b.Context()
	l := benchLimiter(b, 0)
	requests := make([]dataplane.Request, keys)
	for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(keys) {
		requests[i] = benchRequest(fmt.Sprintf("user_%d", n), 1<<50)
	}
	for n := range keys { // so that entries lie in another order
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

// The same for a caller that passes the time.
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

// A decision with 100,000 overrides, all equally likely: without a '*', with a single '*', and with several.
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

// A warm key of a node with an origin: far from its limit, where the node share costs a comparison, and past 1/4n of
// it, where the share is computed.
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

// A lease of a warm key, compared with a rate decision on a warm key: a lease should cost at most 1.5 decisions.
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
			for range 2 { // the second acquisition takes spare slots
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

// A reservation of a key is made and settled: in this process, and at an origin in memory. Reservations are kept for
// a minute, so a longer run keeps more of them.
func BenchmarkReserveAndSettle(b *testing.B) {
	for name, origin := range map[string]store.Origin{
		"process": nil,
		"origin":  memstore.NewOrigin(memstore.OriginOptions{}),
	} {
		b.Run(name, func(b *testing.B) {
			l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, ReadTimeout: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = l.Stop(context.Background()) })
			ctx := b.Context()
			r := dataplane.ReserveRequest{Requests: []dataplane.Request{benchRequest("user_42", 1<<50)}, TTL: time.Hour}
			r.Requests[0].Cost = 500
			b.ReportAllocs()
			for b.Loop() {
				got := l.Reserve(ctx, r)
				if _, err := l.Settle(ctx, got.ID, 120); err != nil || !got.Allowed {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// A warm key with each kind of window, with cost in the previous cell: far from its limit, and within a limit that a
// step of the window may deny.
func BenchmarkWindows(b *testing.B) {
	ctx := b.Context()
	for _, window := range []store.Window{store.WindowCells, store.WindowPrecise} {
		b.Run(string(window), func(b *testing.B) {
			start := time.Now().Truncate(time.Minute)
			var passed atomic.Int64
			clock := func() time.Time { return start.Add(time.Duration(passed.Load())) }
			counts := memstore.NewCounts(memstore.CountsOptions{Clock: clock})
			counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Window: window})
			l, err := dataplane.New(dataplane.Config{Region: "r1", Settings: counts, Clock: clock})
			if err != nil {
				b.Fatal(err)
			}
			if err := l.LoadSettings(ctx); err != nil {
				b.Fatal(err)
			}
			const limit = 1 << 40
			r := benchRequest("user_42", limit)
			for i := range int64(28) { // a history with a mark in each step
				passed.Store(int64(time.Minute) / 28 * i)
				r.Cost = limit / 28
				l.Allow(ctx, r)
			}
			passed.Store(int64(90 * time.Second))
			r.Cost = 1
			if d := l.Allow(ctx, r); !d.Allowed {
				b.Fatal("denied")
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Allow(ctx, r)
			}
		})
	}
}
