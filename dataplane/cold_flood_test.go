package dataplane_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// serialOrigin processes one call at a time, as Redis does, also calls whose callers have given up.
type serialOrigin struct {
	store.FullOrigin
	mu   sync.Mutex
	busy time.Time // busy until then
}

// The time that a slow Redis needs for a call, and for each of its cells.
const (
	serialCall = 500 * time.Microsecond
	serialCell = 5 * time.Microsecond
)

func (o *serialOrigin) work(ctx context.Context, cells int) error {
	o.mu.Lock()
	now := time.Now()
	if o.busy.Before(now) {
		o.busy = now
	}
	o.busy = o.busy.Add(serialCall + time.Duration(cells)*serialCell)
	answered := time.NewTimer(o.busy.Sub(now))
	o.mu.Unlock()
	defer answered.Stop()
	select {
	case <-answered.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *serialOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	if err := o.work(ctx, len(cells)); err != nil {
		return store.Reply{}, err
	}
	return o.FullOrigin.Read(ctx, cells)
}

func (o *serialOrigin) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	if err := o.work(ctx, len(c.Costs)); err != nil && !c.Bounded() { // claims that were sent are applied all the same
		return store.Reply{}, err
	}
	return o.FullOrigin.Send(ctx, c)
}

// A caller's flood of new keys keeps Redis busy all the time. It doesn't open the breaker that the reads of all
// namespaces share, and it delays other namespaces' costs by no more than some short calls. So another namespace's
// limit holds on two nodes as it does without the flood.
func TestAFloodOfColdKeysLeavesOthersTheirLimit(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprintf("in batches %v", many), func(t *testing.T) {
			quiet, opened := acceptedBesideColdKeys(t, 0, many)
			if opened != 0 {
				t.Errorf("the breaker opened without a flood")
			}
			callers := 400
			if raced {
				callers = 100
			}
			flooded, opened := acceptedBesideColdKeys(t, callers, many)
			if opened != 0 {
				t.Errorf("the breaker was open at %d of the victim's requests", opened)
			}
			if flooded > quiet+quiet/100 {
				t.Errorf("%d were accepted of a limit of 100 beside the flood, and %d without it", flooded, quiet)
			}
		})
	}
}

// acceptedBesideColdKeys returns the cost of a key that two nodes accept, and the number of requests that found the
// breaker open, while some callers send requests for cold keys to each of the nodes.
func acceptedBesideColdKeys(t *testing.T, callers int, many bool) (accepted int, opened int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		origin := &serialOrigin{FullOrigin: memstore.NewOrigin(memstore.OriginOptions{})}
		ctx, stop := context.WithCancel(t.Context())
		var nodes []*dataplane.Limiter
		var flood sync.WaitGroup
		for n := range 2 {
			l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: fmt.Sprint("n", n), RegionNodes: 2, Origin: origin,
				EntriesMax: 1_000_000})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, l)
			for c := range callers {
				flood.Go(func() { askCold(ctx, l, fmt.Sprint(n, "-", c), many) })
			}
		}
		time.Sleep(500 * time.Millisecond)
		for i := range 300 {
			l := nodes[i%2]
			if l.Allow(t.Context(), dataplane.Request{Workspace: "victim", Namespace: "api", Identifier: "key", Limit: 100,
				Duration: time.Minute, Cost: 1}).Allowed {
				accepted++
			}
			opened += l.Health().BreakersOpen
			time.Sleep(5 * time.Millisecond)
		}
		stop()
		flood.Wait()
		for _, l := range nodes {
			if err := l.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return accepted, opened
}

// askCold sends requests for new keys, in turn or three at a time, until ctx ends.
func askCold(ctx context.Context, l *dataplane.Limiter, name string, many bool) {
	for i := 0; ctx.Err() == nil; i++ {
		requests := make([]dataplane.Request, 0, 3)
		for k := range cap(requests) {
			requests = append(requests, dataplane.Request{Workspace: "flood", Namespace: "api",
				Identifier: fmt.Sprint(name, "-", i, "-", k), Limit: 5, Duration: time.Minute, Cost: 1})
		}
		if many {
			l.AllowMany(ctx, requests)
		} else {
			l.Allow(ctx, requests[0])
		}
		time.Sleep(20 * time.Millisecond) // a decision from memory takes no virtual time
	}
}
