package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// stuck is an origin that never answers.
type stuck struct{ store.Origin }

func (s stuck) Shards() int              { return 1 }
func (s stuck) ShardOf(*window.Key) int  { return 0 }
func (s stuck) hang(ctx context.Context) { <-ctx.Done() }
func (s stuck) Read(ctx context.Context, _ []window.Cell) (store.Reply, error) {
	s.hang(ctx)
	return store.Reply{}, ctx.Err()
}

func (s stuck) Send(ctx context.Context, _ store.Chunk) (store.Reply, error) {
	s.hang(ctx)
	return store.Reply{}, ctx.Err()
}

func (s stuck) Listen(ctx context.Context, _ int, _ func([]store.Foreign)) error {
	s.hang(ctx)
	return nil
}

// The estimate mode never does I/O and never waits on the request path, whatever the state (cold, stale, origin
// dead): with an origin that never answers, no time passes.
func TestEstimatesNeverWait(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		synctest.Test(t, func(t *testing.T) {
			counts := memstore.NewCounts(memstore.CountsOptions{})
			counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate", Estimate: knobs})
			l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: stuck{}, Settings: counts, EntriesMax: 300})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // virtual: the settings are read
			for round := range 100 {
				began := time.Now()
				for i := range 10 {
					l.Allow(t.Context(), ask(fmt.Sprint(i), 5, 10))
					l.Allow(t.Context(), ask(fmt.Sprint("once", round, i), 50, 10))
				}
				l.Peek(t.Context(), ask("0", 0, 10))
				l.AllowMany(t.Context(), []dataplane.Request{ask("0", 1, 10), ask(fmt.Sprint("batch", round), 1, 10)})
				if waited := time.Since(began); waited != 0 {
					t.Fatalf("%q: round %d waited for %v", knobs, round, waited)
				}
				time.Sleep(3 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := l.Stop(ctx); err == nil {
				t.Error("nothing was confirmed, and Stop does not say so")
			}
		})
	}
}
