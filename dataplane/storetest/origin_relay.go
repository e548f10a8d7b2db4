package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/window"
)

func (h *originTest) apply(totals ...store.Foreign) (raised int) {
	h.Helper()
	raised, err := h.Apply(h.Context(), h.shard(), totals)
	if err != nil {
		h.Fatalf("apply %d totals: %v", len(totals), err)
	}
	return raised
}

func (h *originTest) changes(max int) store.Changes {
	h.Helper()
	changes, err := h.Changes(h.Context(), h.shard(), max)
	if err != nil || len(changes.Cells) > max || changes.Epoch == 0 || changes.Now.IsZero() {
		h.Fatalf("changes: %+v, %v", changes, err)
	}
	slices.SortFunc(changes.Cells, func(a, b store.Change) int { return a.Cell.Compare(b.Cell) })
	return changes
}

func (h *originTest) ack(cells ...store.Change) {
	h.Helper()
	if err := h.Ack(h.Context(), h.shard(), cells); err != nil {
		h.Fatalf("ack %d cells: %v", len(cells), err)
	}
}

// wantChanges expects these changes. An origin that is not Relayed has none that could be seen.
func (h *originTest) wantChanges(want ...store.Change) {
	h.Helper()
	if h.Relayed == nil {
		return
	}
	slices.SortFunc(want, func(a, b store.Change) int { return a.Cell.Compare(b.Cell) })
	if got := h.changes(500); !slices.Equal(got.Cells, want) || got.More {
		h.Errorf("changes are %+v, want %+v", got, want)
	}
}

var originChangesTests = map[string]func(*originTest){
	"are cells with a Limit whose region total has changed, with the lowest": func(h *originTest) {
		c := h.cells(5)
		h.wantChanges()
		h.send(store.Cost{Cell: c[0], Add: 1, Limit: 100}, store.Cost{Cell: c[1], Add: 2},
			store.Cost{Cell: c[2], Restore: 3, Limit: 50},
			store.Cost{Cell: c[3], Limit: 10}, store.Cost{Cell: c[4], Known: 5, Limit: 9})
		h.send(store.Cost{Cell: c[0], Add: 1, Limit: 20}, store.Cost{Cell: c[2], Add: 1, Limit: 200}, store.Cost{Cell: c[4]})
		want := []store.Change{
			{Cell: c[0], Total: 2, Limit: 20}, {Cell: c[2], Total: 4, Limit: 50}, {Cell: c[4], Total: 5, Limit: 9},
		}
		for range 2 { // "Without Ack they stay"
			h.wantChanges(want...)
		}
	},
	"come from bounded costs too": func(h *originTest) {
		c := h.cells(2)
		h.claim([]store.Cost{
			{Cell: c[0], Add: 2, AtMost: 9, Limit: 9}, {Cell: c[1], Add: 2, AtMost: 9},
		}, yes(2), yes(2))
		h.wantChanges(store.Change{Cell: c[0], Total: 2, Limit: 9})
	},
	"that are told are taken off until the next one":             testAck,
	"that changed meanwhile stay when they are told":             testAckMeanwhile,
	"begin with a Limit, also where there was a total before it": testLateLimit,
	"are at most max, and More says that there are others":       testManyChanges,
	"are as many as max where there are that many":               testFullChanges,
	"that stay come in turn":                                     testChangesInTurn,
	"of foreign totals are none": func(h *originTest) {
		h.apply(store.Foreign{Cell: h.cell, Count: 5})
		h.wantChanges()
		h.send(store.Cost{Cell: h.cell, Add: 1, Limit: 10})
		h.ack(store.Change{Cell: h.cell, Total: 1, Limit: 10})
		h.apply(store.Foreign{Cell: h.cell, Count: 6})
		h.wantChanges()
	},
	"and the scan find cells of any name, in any shard": testScan,
	"of a repeated chunk are none": func(h *originTest) {
		c := h.cells(1)
		chunk := h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 1, Limit: 10})
		sendTo(h, h, chunk)
		h.ack(store.Change{Cell: c[0], Total: 1, Limit: 10})
		sendTo(h, h, chunk)
		h.wantChanges()
	},
}

func testAck(h *originTest) {
	c := h.cells(2)
	h.send(store.Cost{Cell: c[0], Add: 1, Limit: 10}, store.Cost{Cell: c[1], Add: 2, Limit: 10})
	h.ack(store.Change{Cell: c[0], Total: 1, Limit: 10}, store.Change{Cell: h.cells(3)[2], Total: 1, Limit: 1})
	h.wantChanges(store.Change{Cell: c[1], Total: 2, Limit: 10})
	h.ack(store.Change{Cell: c[1], Total: 2, Limit: 10})
	h.wantChanges()
	h.send(store.Cost{Cell: c[0], Add: 1}) // it has a Limit already
	h.wantChanges(store.Change{Cell: c[0], Total: 2, Limit: 10})
}

func testAckMeanwhile(h *originTest) {
	c := h.cells(2)
	h.send(store.Cost{Cell: c[0], Add: 1, Limit: 10}, store.Cost{Cell: c[1], Add: 1, Limit: 10})
	h.send(store.Cost{Cell: c[0], Add: 1, Limit: 10}, store.Cost{Cell: c[1], Limit: 5})
	h.ack(store.Change{Cell: c[0], Total: 1, Limit: 10}, store.Change{Cell: c[1], Total: 1, Limit: 10})
	h.wantChanges(store.Change{Cell: c[0], Total: 2, Limit: 10}, store.Change{Cell: c[1], Total: 1, Limit: 5})
}

func testLateLimit(h *originTest) {
	c := h.cells(1)
	h.send(store.Cost{Cell: c[0], Add: 4})
	h.wantChanges()
	h.send(store.Cost{Cell: c[0], Limit: 9})
	h.wantChanges(store.Change{Cell: c[0], Total: 4, Limit: 9})
}

// sendEach adds 1 to each of n cells.
func (h *originTest) sendEach(n int) []window.Cell {
	h.Helper()
	cells := h.cells(n)
	h.send(suite.Numbered(cells, func(c window.Cell, _ int64) store.Cost {
		return store.Cost{Cell: c, Add: 1, Limit: 10}
	})...)
	return cells
}

// Every change is returned within a number of calls that grows with the number of changes, even if no change is ever
// removed. On a Cluster a call takes a change of each part, and the parts have different numbers of changes.
func testChangesInTurn(h *originTest) {
	const cells, each, calls = 1500, 200, 30
	h.sendEach(cells)
	seen := make(map[window.Cell]bool)
	for range calls {
		for _, c := range h.changes(each).Cells {
			seen[c.Cell] = true
		}
	}
	if len(seen) != cells {
		h.Errorf("%d calls for %d changes have brought %d of %d", calls, each, len(seen), cells)
	}
}

// A relay's row holds a single batch of changes, so an origin that returns fewer changes than it could slows down the
// region's counts.
func testFullChanges(h *originTest) {
	const cells = 3*store.ChangesPage + 100
	h.sendEach(cells)
	for _, max := range []int{2*store.ChangesPage + 300, cells - 1, cells, 2 * cells} {
		changes := h.changes(max)
		distinct := make(map[window.Cell]bool)
		for _, c := range changes.Cells {
			distinct[c.Cell] = true
		}
		if want := min(max, cells); len(changes.Cells) != want || len(distinct) != want || changes.More != (max < cells) {
			h.Errorf("of %d changes at most %d: %d, %d of them distinct, more is %t", cells, max, len(changes.Cells),
				len(distinct), changes.More)
		}
	}
}

func testManyChanges(h *originTest) {
	cells := h.sendEach(1200)
	seen := make(map[window.Cell]bool)
	for range len(cells) {
		changes := h.changes(100)
		if len(changes.Cells) == 0 && !changes.More {
			break
		}
		for _, c := range changes.Cells {
			if seen[c.Cell] || c.Total != 1 || c.Limit != 10 {
				h.Fatalf("change %+v, seen %v", c, seen[c.Cell])
			}
			seen[c.Cell] = true
		}
		h.ack(changes.Cells...)
	}
	if len(seen) != len(cells) {
		h.Errorf("%d of %d changes came", len(seen), len(cells))
	}
}

func testScan(h *originTest) {
	cells := append(append(suite.LookalikeCells("w"), suite.LongestCells("w")...), originCells(h, "w2", 300)...)
	want := make(map[window.Cell]store.Change)
	byShard := make(map[int][]store.Cost)
	for i, c := range cells {
		cost := store.Cost{Cell: c, Add: int64(i + 1), Restore: int64(i % 5), Known: int64(i % 7), Limit: int64(i % 3)}
		byShard[h.ShardOf(&c.Key)] = append(byShard[h.ShardOf(&c.Key)], cost)
		if cost.Limit > 0 {
			want[c] = store.Change{Cell: c, Total: cost.Add + max(cost.Restore, cost.Known), Limit: cost.Limit}
		}
	}
	changed, scanned := make(map[window.Cell]store.Change), make(map[window.Cell]store.Change)
	for shard := range h.Shards() {
		for costs := range slices.Chunk(byShard[shard], store.ChunkMax) {
			s := sender.NewStream()
			sendTo(h, h, s.Chunk(h, costs...))
		}
		h.drain(shard, changed)
		for cursor, pages := uint64(0), 0; ; pages++ {
			page, next, err := h.Scan(h.Context(), shard, cursor, 50)
			if err != nil || pages > 10_000 {
				h.Fatalf("scan page %d: %v", pages, err)
			}
			for _, c := range page {
				scanned[c.Cell] = c
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	for c, change := range want {
		if changed[c] != change || scanned[c] != change {
			h.Errorf("%v: changed %+v, scanned %+v, want %+v", c, changed[c], scanned[c], change)
		}
	}
	if len(changed) != len(want) || len(scanned) != len(want) {
		h.Errorf("%d cells with a limit: %d changed, %d scanned", len(want), len(changed), len(scanned))
	}
}

// drain takes all changes of a shard.
func (h *originTest) drain(shard int, into map[window.Cell]store.Change) {
	h.Helper()
	for {
		changes, err := h.Changes(h.Context(), shard, 200)
		if err != nil {
			h.Fatal(err)
		}
		for _, c := range changes.Cells {
			into[c.Cell] = c
		}
		if err := h.Ack(h.Context(), shard, changes.Cells); err != nil {
			h.Fatal(err)
		}
		if !changes.More {
			return
		}
	}
}

var originApplyTests = map[string]func(*originTest){
	"lifts foreign totals, before and after the region's own cost, and never lowers them": func(h *originTest) {
		c := h.cells(3)
		h.apply(store.Foreign{Cell: c[0], Count: 7}, store.Foreign{Cell: c[1], Count: 1}, store.Foreign{Cell: c[0], Count: 5})
		h.send(store.Cost{Cell: c[0], Add: 2}, store.Cost{Cell: c[2], Add: 3})
		h.apply(store.Foreign{Cell: c[0], Count: 6}, store.Foreign{Cell: c[1], Count: 4},
			store.Foreign{Cell: c[2], Count: 1 << 60},
			store.Foreign{Cell: c[2], Count: -1}, store.Foreign{Cell: c[1], Count: 0})
		want := []store.Total{{Region: 2, Foreign: 7}, {Foreign: 4}, {Region: 3, Foreign: store.CountMax}}
		sent := h.send(store.Cost{Cell: c[0]}, store.Cost{Cell: c[1]}, store.Cost{Cell: c[2]})
		for i, got := range get(h, h, c...) {
			want[i].Epoch = got.Epoch
			if got != want[i] || sent[i] != want[i] {
				h.Errorf("cell %d: got %+v, sent %+v, want %+v", i, got, sent[i], want[i])
			}
		}
	},
	"returns how many cells it has raised": func(h *originTest) {
		c := h.cells(2)
		expired := c[0]
		expired.Sequence = 0
		for i, step := range []struct {
			totals []store.Foreign
			want   int
		}{
			{[]store.Foreign{{Cell: c[0], Count: 7}, {Cell: c[1], Count: 1}}, 2},
			{[]store.Foreign{{Cell: c[0], Count: 7}, {Cell: c[1], Count: 1}}, 0},
			{[]store.Foreign{{Cell: c[0], Count: 6}, {Cell: c[1], Count: 2}, {Cell: expired, Count: 9}}, 1},
		} {
			if got := h.apply(step.totals...); got != step.want {
				h.Errorf("step %d: raised %d, want %d", i, got, step.want)
			}
		}
	},
	"takes as many cells as it is given": func(h *originTest) {
		cells := h.cells(1300)
		if raised := h.apply(suite.Numbered(cells, foreignOf)...); raised != len(cells) {
			h.Errorf("raised %d of %d", raised, len(cells))
		}
		for i, total := range get(h, h, cells...) {
			if total.Foreign != int64(i+1) {
				h.Fatalf("cell %d: %+v", i, total)
			}
		}
	},
	"is heard by listeners of the shard": testListen,
}

// announcedTotals counts how often a listener has received a total.
type announcedTotals struct {
	mu    sync.Mutex
	times map[store.Foreign]int
}

func (l *announcedTotals) add(totals []store.Foreign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range totals {
		l.times[f]++
	}
}

func (l *announcedTotals) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times) > 0
}

func (l *announcedTotals) of(f store.Foreign) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times[f]
}

func testListen(h *originTest) {
	cells := append(suite.LookalikeCells("w"), h.cells(2)...)
	cells = slices.DeleteFunc(cells, func(c window.Cell) bool { return h.ShardOf(&c.Key) != h.shard() })
	last := cells[len(cells)-1]
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 2)
	listeners := []*announcedTotals{{times: make(map[store.Foreign]int)}, {times: make(map[store.Foreign]int)}}
	for i, way := range []store.Origin{h, h.Client(h)} {
		go func() { ended <- way.Listen(ctx, h.shard(), listeners[i].add) }()
	}
	next := store.Foreign{Cell: last}
	await.True(h, "both listen", func() bool {
		next.Count++
		h.apply(next)
		return listeners[0].any() && listeners[1].any()
	})
	totals := suite.Numbered(cells[:len(cells)-1], foreignOf)
	h.apply(totals...)
	h.apply(totals...) // raises nothing
	next.Count++
	h.apply(next)
	for _, l := range listeners { // messages of a Cluster's servers come in any order
		await.True(h, "all was heard", func() bool {
			return l.of(next) > 0 && !slices.ContainsFunc(totals, func(f store.Foreign) bool { return l.of(f) == 0 })
		})
		for _, f := range totals {
			if n := l.of(f); n != 1 {
				h.Errorf("%+v was heard %d times", f, n)
			}
		}
	}
	cancel()
	for range listeners {
		if err := <-ended; err != nil {
			h.Errorf("Listen ended with %v", err)
		}
	}
}

var originRaiseTests = map[string]func(*originTest){
	"lifts Known, and does nothing in a shard that is healed": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 2, Restore: 3})
		h.raiseOrigin(store.Change{Cell: c[0], Total: 10, Limit: 50}, store.Change{Cell: c[1], Total: 4, Limit: 40})
		h.raiseOrigin(store.Change{Cell: c[0], Total: 9, Limit: 50})
		h.wantRegions(c, 12, 4)
		h.wantChanges(store.Change{Cell: c[0], Total: 12, Limit: 50}, store.Change{Cell: c[1], Total: 4, Limit: 40})
		if h.changes(1).Healed {
			h.Error("it is healed before Healed was called")
		}
		h.healed()
		h.raiseOrigin(store.Change{Cell: c[0], Total: 100, Limit: 1})
		h.wantRegions(c, 12, 4)
		if !h.changes(1).Healed {
			h.Error("it is not healed")
		}
	},
	"in another epoch than that of Changes is refused, and so is Healed": func(h *originTest) {
		c := h.cells(1)
		h.healed()
		epoch := h.changes(1).Epoch
		h.Wipe(h)
		err := h.Raise(h.Context(), h.shard(), epoch, []store.Change{{Cell: c[0], Total: 5, Limit: 5}})
		healed := h.Healed(h.Context(), h.shard(), epoch)
		if !errors.Is(err, store.ErrEpoch) || !errors.Is(healed, store.ErrEpoch) {
			h.Errorf("after the origin was emptied: raise %v, healed %v", err, healed)
		}
		h.wantRegions(c, 0)
		if changes := h.changes(1); changes.Healed || changes.Epoch == epoch {
			h.Errorf("after the origin was emptied: %+v", changes)
		}
		h.raiseOrigin(store.Change{Cell: c[0], Total: 5, Limit: 5})
		h.wantRegions(c, 5)
	},
	"takes as many cells as it is given": func(h *originTest) {
		cells := h.cells(1300)
		h.raiseOrigin(suite.Numbered(cells, func(c window.Cell, n int64) store.Change {
			return store.Change{Cell: c, Total: n, Limit: 1}
		})...)
		for i, total := range get(h, h, cells...) {
			if total.Region != int64(i+1) {
				h.Fatalf("cell %d: %+v", i, total)
			}
		}
	},
}

func (h *originTest) raiseOrigin(totals ...store.Change) {
	h.Helper()
	if err := h.Raise(h.Context(), h.shard(), h.changes(1).Epoch, totals); err != nil {
		h.Fatalf("raise %d cells: %v", len(totals), err)
	}
}

func (h *originTest) healed() {
	h.Helper()
	if err := h.Healed(h.Context(), h.shard(), h.changes(1).Epoch); err != nil {
		h.Fatalf("healed: %v", err)
	}
}

var originLeaseTests = map[string]func(*originTest){
	"makes holder the shard's relay unless another one is": func(h *originTest) {
		h.lease("a", time.Hour, "a", time.Hour)
		h.lease("b", 2*time.Hour, "a", time.Hour)
		h.lease("a", time.Minute, "a", time.Hour) // "or longer if it is already"
		h.lease("a", 2*time.Hour, "a", 2*time.Hour)
		for shard := range h.Shards() {
			lease, err := h.Lease(h.Context(), shard, "c", time.Hour)
			if want := shard != h.shard(); err != nil || (lease.Holder == "c") != want {
				h.Errorf("shard %d: %+v, %v", shard, lease, err)
			}
		}
	},
	"is taken over after ttl, and renewed before": func(h *originTest) {
		h.lease("a", 50*time.Millisecond, "a", 50*time.Millisecond)
		await.True(h, "the lease has ended", func() bool {
			lease, err := partsOf(h.Client(h)).Lease(h.Context(), h.shard(), "b", time.Hour)
			if err != nil || lease.Holder == "a" && lease.Left > 50*time.Millisecond {
				h.Fatalf("%+v, %v", lease, err)
			}
			return lease.Holder == "b"
		})
		h.lease("a", time.Hour, "b", time.Hour)
	},
	"ends with its holder's Release and no other's": func(h *originTest) {
		h.lease("a", time.Hour, "a", time.Hour)
		for holder, want := range map[string]string{"b": "a", "": "a"} {
			h.release(holder)
			h.lease("c", time.Hour, want, time.Hour)
		}
		h.release("a")
		h.lease("c", time.Hour, "c", time.Hour)
	},
	"refuses a holder without a name and a ttl that is none": func(h *originTest) {
		refused := func(holder string, ttl time.Duration) {
			if err := errOf(h.Lease(h.Context(), h.shard(), holder, ttl)); err == nil {
				h.Errorf("a lease of %v for a holder of %d bytes", ttl, len(holder))
			}
		}
		refused("", time.Hour)
		refused(strings.Repeat("x", store.HolderBytesMax+1), time.Hour)
		refused("a", 0)
		h.lease("b", time.Hour, "b", time.Hour)
	},
}

func (h *originTest) release(holder string) {
	h.Helper()
	if err := h.Release(h.Context(), h.shard(), holder); err != nil {
		h.Fatalf("release %q: %v", holder, err)
	}
}

// lease expects a holder after the call, for about so long.
func (h *originTest) lease(holder string, ttl time.Duration, want string, left time.Duration) {
	h.Helper()
	lease, err := h.Lease(h.Context(), h.shard(), holder, ttl)
	if err != nil || lease.Holder != want || lease.Left > left || lease.Left <= left-30*time.Minute {
		h.Errorf("lease of %s for %v: %+v, %v; want %s for %v", holder, ttl, lease, err, want, left)
	}
}

// foreignOf is for suite.Numbered.
func foreignOf(c window.Cell, n int64) store.Foreign { return store.Foreign{Cell: c, Count: n} }
