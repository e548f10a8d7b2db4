package relay_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// hurdles delays or fails the calls of a load: pause is called before each answer, and before each row of an answer.
type hurdles struct {
	pause func(ctx context.Context, call string) error
	calls map[string]int
}

func (h *hurdles) begin(ctx context.Context, call string) error {
	h.calls[call]++
	return h.pause(ctx, call)
}

type hurdledFeed struct {
	store.Feed
	*hurdles
}

func (n hurdledFeed) Own(ctx context.Context, stream store.Stream, yield func(store.FeedRow)) error {
	var rows []store.FeedRow
	err := n.Feed.Own(ctx, stream, func(row store.FeedRow) { rows = append(rows, row) })
	for i := 0; err == nil && i < len(rows); i++ {
		if err = n.pause(ctx, "own"); err == nil {
			yield(rows[i])
		}
	}
	if err == nil {
		err = n.begin(ctx, "own")
	}
	return err
}

type hurdledCounts struct {
	store.CountStore
	*hurdles
}

func (c hurdledCounts) Import(ctx context.Context, nowMs int64, yield func(string, store.Count)) error {
	var counts []store.Count
	err := c.CountStore.Import(ctx, nowMs, func(_ string, n store.Count) { counts = append(counts, n) })
	for i := 0; err == nil && i < len(counts); i++ {
		if err = c.pause(ctx, "import"); err == nil {
			yield("eu", counts[i])
		}
	}
	if err == nil {
		err = c.begin(ctx, "import")
	}
	return err
}

type hurdledOrigin struct {
	store.FullOrigin
	*hurdles
}

func (o hurdledOrigin) Scan(ctx context.Context, shard int, cursor uint64, _ int) ([]store.Change, uint64, error) {
	if err := o.begin(ctx, "scan"); err != nil {
		return nil, 0, err
	}
	return o.FullOrigin.Scan(ctx, shard, cursor, 1)
}

func (o hurdledOrigin) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	if err := o.begin(ctx, "heal"); err != nil {
		return err
	}
	return o.FullOrigin.Healed(ctx, shard, epoch)
}

// over returns a relay of the region whose loads go through h.
func (h *hurdles) over(r *region) *relay.Relay {
	h.calls = make(map[string]int)
	return r.relayOver("late", hurdledOrigin{r.origin.Client(), h}, hurdledFeed{r.feed, h}, hurdledCounts{r.counts, h})
}

// If a statement of a load gets no answer, the load ends after seconds and starts again.
func TestALoadWhoseStatementIsLostBeginsAnew(t *testing.T) {
	for _, lost := range []string{"own", "import", "heal", "scan"} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := live(t, "eu", "us")
				eu, us := w.regions[0], w.regions[1]
				h := &hurdles{}
				h.pause = func(ctx context.Context, call string) error {
					if call != lost || h.calls[call] > 1 {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				cell := eu.cell("k", time.Minute)
				eu.accept(cell, 50, 100)
				start(t, h.over(eu), us.relay)
				began := time.Now()
				for us.total(cell).Foreign < 50 && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
					t.Errorf("known after %v, want 5 to 7 s", took)
				}
			})
		})
	}
}

// A load that is slow but progresses is not given up, however long it takes.
func TestALoadThatProgressesTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu", "us")
		eu, us := w.regions[0], w.regions[1]
		start(t, eu.relay, us.relay)
		cells := make([]window.Cell, 12)
		for i := range cells {
			cells[i] = eu.cell(fmt.Sprint("k", i), time.Hour)
			eu.accept(cells[i], 60, 100)
			time.Sleep(time.Second) // for each row
		}
		time.Sleep(10 * time.Second)
		_ = eu.relay.Stop(context.Background())

		h := &hurdles{pause: func(ctx context.Context, _ string) error {
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		start(t, h.over(eu))
		eu.accept(cells[0], 30, 100)
		began := time.Now()
		for us.total(cells[0]).Foreign < 90 && time.Since(began) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < 2*time.Minute || took > 4*time.Minute {
			t.Errorf("known after %v, want 2 to 4 minutes", took)
		}
		if calls := []int{h.calls["own"], h.calls["import"]}; !slices.Equal(calls, []int{1, 1}) {
			t.Errorf("the own feed and the stored counts were read to their ends %v times, want once each", calls)
		}
	})
}

// A relay whose load fails, and that loses its lease before it tries again, keeps nothing that it has loaded.
func TestARelayWhoseLoadFailedHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu", "us")
		eu := w.regions[0]
		start(t, eu.relay)
		for i := range 5 {
			eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 50, 100)
		}
		time.Sleep(5 * time.Second)
		_ = eu.relay.Stop(context.Background())

		h := &hurdles{}
		h.pause = func(_ context.Context, call string) error {
			if call == "scan" {
				return errDown
			}
			return nil
		}
		late := h.over(eu)
		start(t, late)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if h.calls["scan"] == 0 {
			t.Fatalf("no load came to its scan: %v", h.calls)
		}
		if err := eu.origin.Release(t.Context(), 0, "late"); err != nil {
			t.Fatal(err)
		}
		if _, err := eu.origin.Lease(t.Context(), 0, "another", 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := relay.Sizes(late); s.Cells > 0 {
			t.Errorf("it still holds %+v", s)
		}
	})
}
