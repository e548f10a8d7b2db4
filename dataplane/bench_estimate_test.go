package dataplane_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// BenchmarkHotKeyOfAFleet compares the cost of a warm key in the exact mode, whose origin has just been read, and in
// the estimate mode, with every layer configured.
func BenchmarkHotKeyOfAFleet(b *testing.B) {
	for _, c := range []struct{ name, mode, settings string }{
		{"exact", "exact", ""}, {"estimate", "estimate", ""}, {"posthog", "estimate", posthog},
	} {
		for outcome, limit := range map[string]int64{"allowed": 1 << 50, "denied": 10} {
			b.Run(c.name+"/"+outcome, func(b *testing.B) {
				counts := memstore.NewCounts(memstore.CountsOptions{})
				counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: c.mode, Estimate: c.settings})
				l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: memstore.NewOrigin(memstore.OriginOptions{}), Settings: counts})
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				defer func() { _ = l.Stop(b.Context()) }()
				if err := l.LoadSettings(b.Context()); err != nil {
					b.Fatal(err)
				}
				ctx := b.Context()
				r := ask("user_42", 1, limit)
				r.Duration = time.Hour
				for range 20 {
					l.Allow(ctx, r)
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						l.Allow(ctx, r)
					}
				})
			})
		}
	}
}
