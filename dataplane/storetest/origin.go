package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// Origin is an origin under test, with the failures of its servers and the network.
type Origin struct {
	// Origin is tested with all optional parts that it has: see store.Granter, store.Mailbox and store.Relayed.
	store.Origin

	// Client opens another way to the same servers, as another process would have. An origin without servers can return
	// itself.
	Client func(t testing.TB) store.Origin

	// Lose, if set, makes the replies to all calls get lost, after the servers have acted, until it is called with
	// false. Leave it nil if there is no network that could lose a reply: then the tests discard replies instead.
	Lose func(lose bool)

	// Wipe empties the servers, as a restart without their data does.
	Wipe func(t testing.TB)

	// State, if set, copies the servers' data, for example of a Redis primary. rollback puts the data back, as if a
	// replica was promoted that had not received later writes. Leave it nil if the servers lose everything or nothing:
	// then no failover is tested.
	State func(t testing.TB) (rollback func(t testing.TB))

	// Grow, if set, makes servers that were just emptied as old as they need to be to grant slots: see
	// store.ErrRecovering.
	Grow func(t testing.TB)

	// Clock reads the servers' clock.
	Clock func(t testing.TB) time.Time

	// Pass, if set, sets the servers' clock forward. Leave it nil if it cannot be set: then nothing is tested that takes
	// longer than some milliseconds.
	Pass func(t testing.TB, d time.Duration)

	// Histories means that the origin keeps histories of cells: see store.Total.
	Histories bool

	// Step, if set, sets the servers' clock forward, or back if d is below 0. Servers that use it need not drop data that
	// has expired meanwhile. Leave it nil if the clock can't be set back: then the suite does not test an origin's
	// reaction to that.
	Step func(t testing.TB, d time.Duration)
}

// TestOrigin runs the contract of store.Origin, and the contract of each optional part, against the origin that open
// returns. It fails if the origin has only some of a part's methods, or if it embeds an origin with a part that it
// hides. To make sure that a part is there at all, assert it next to the origin's type:
//
//	var _ store.Granter = (*Origin)(nil)
//
// An origin must be empty when open returns it. open is called once to find the parts, and once for each subtest, or
// each history that a subtest draws. No two run at once, so it can return the same server again and again, emptied.
func TestOrigin(t *testing.T, open func(t testing.TB) Origin) {
	subject := open(t)
	has := partsOf(subject.Origin)
	group := func(name string, tests ...map[string]func(*originTest)) {
		t.Run(name, func(t *testing.T) {
			all := make(map[string]func(*originTest))
			for _, some := range tests {
				maps.Copy(all, some)
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				t.Run(name, func(t *testing.T) { all[name](newOriginTest(t, open(t))) })
			}
		})
	}
	// of returns tests that need another part.
	of := func(has bool, tests map[string]func(*originTest)) map[string]func(*originTest) {
		if !has {
			return nil
		}
		return tests
	}
	group("parts", originPartTests)
	group("Get", originGetTests)
	group("Send", originSendTests)
	group("an epoch", originEpochTests)
	group("Send up to AtMost", originClaimTests, of(has.Relayed != nil, originClaimForeignTests))
	if has.Granter != nil {
		group("GroupOf", testsOf(newHoldTest, originGroupTests))
		_, groups := strangerTo(has.Granter, suite.LiveCell("w", "id-0"))
		timed := subject.Pass != nil
		held := func(tests map[string]func(*holdTest)) map[string]func(*originTest) {
			return testsOf(newHoldTest, tests)
		}
		group("a call", held(originHoldCallTests), of(groups, held(originHoldGroupsTests)),
			of(timed, held(originHoldCallTimeTests)))
		group("Hold", held(originHoldTests), of(has.Relayed != nil, held(originHoldForeignTests)),
			of(timed, held(originHoldTimeTests)))
		group("Record", held(originRecordTests), of(timed, held(originRecordTimeTests)))
		group("a failover of a group", of(subject.State != nil, held(originHoldFailoverTests)))
		group("Grants to nodes", testsOf(newGrantTest, originGrantsTests),
			of(timed, testsOf(newGrantTest, originGrantsTimeTests)))
		group("Grants to leases", testsOf(newGrantTest, originLeasesTests))
	}
	if has.Relayed != nil {
		group("Changes", originChangesTests)
		group("Apply", originApplyTests)
		group("Raise", originRaiseTests)
		group("Lease", originLeaseTests)
	}
	if has.Mailbox != nil && has.Relayed != nil {
		group("Settings", originSettingsTests)
		group("Heartbeats", originHeartbeatTests)
	}
	if subject.State != nil {
		bare := open
		open = func(t testing.TB) Origin { return keeping(bare(t)) }
		group("a failover", originFailoverTests)
		open = bare
	}
	if subject.Step != nil {
		group("a clock that is set back", originClockTests, of(has.Relayed != nil, originClockRelayedTests),
			of(has.Granter != nil, testsOf(newHoldTest, originClockGranterTests)),
			of(has.Mailbox != nil && has.Relayed != nil, originClockMailboxTests))
	}
	if subject.Histories {
		group("Histories", originHistoryTests, of(has.Relayed != nil, originHistoryForeignTests))
	}
	group("cells", originCellTests)
	t.Run("all methods obey ctx", func(t *testing.T) { testOriginContext(newOriginTest(t, open(t))) })
	t.Run("an emptied origin ends between what is left and what was accepted", func(t *testing.T) {
		testOriginIsRestored(t, open)
	})
}

// testsOf makes subtests about a part of an origin subtests like others.
func testsOf[T any](begin func(*originTest) T, of map[string]func(T)) map[string]func(*originTest) {
	tests := make(map[string]func(*originTest))
	for name, test := range of {
		tests[name] = func(h *originTest) { test(begin(h)) }
	}
	return tests
}

// originTest is a subtest's origin with its own stream.
type originTest struct {
	*testing.T
	Origin
	parts
	stream sender.Stream
	cell   window.Cell // the first of cells
}

func newOriginTest(t *testing.T, h Origin) *originTest {
	if h.Grow != nil {
		h.Grow(t)
	}
	return &originTest{T: t, Origin: h, parts: partsOf(h.Origin), stream: sender.NewStream(),
		cell: suite.LiveCell("w", "id-0")}
}

// lost makes a call whose reply is lost.
func (h *originTest) lost(what string, call func() error) {
	h.Helper()
	if h.Lose == nil {
		_ = call()
		return
	}
	h.Lose(true)
	defer h.Lose(false)
	if call() == nil {
		h.Fatalf("%s, with the reply lost: there was a reply", what)
	}
}

// cells returns n live cells of a shard.
func (h *originTest) cells(n int) []window.Cell { return originCells(h, "w", n) }

func originCells(h store.Origin, workspace string, n int) []window.Cell {
	first := suite.LiveCell(workspace, "id-0")
	cells := []window.Cell{first}
	for i := 1; len(cells) < n; i++ {
		if c := suite.LiveCell(workspace, fmt.Sprint("id-", i)); h.ShardOf(&c.Key) == h.ShardOf(&first.Key) {
			cells = append(cells, c)
		}
	}
	return cells
}

func (h *originTest) shard() int { return h.ShardOf(&h.cell.Key) }

// send expects chunks with costs to be answered, and each of their cells too.
func (h *originTest) send(costs ...store.Cost) (totals []store.Total) {
	h.Helper()
	for some := range slices.Chunk(costs, store.ChunkMax) {
		totals = append(totals, sendTo(h, h, h.stream.Chunk(h, some...))...)
	}
	return totals
}

func sendTo(t suite.Reporter, h store.Origin, chunk store.Chunk) []store.Total {
	t.Helper()
	totals := sendAny(t, h, chunk)
	for i, total := range totals {
		if total.Err != nil {
			t.Fatalf("send %+v: %v", chunk.Costs[i], total.Err)
		}
	}
	return totals
}

// sendAny expects a chunk to be answered.
func sendAny(t suite.Reporter, h store.Origin, chunk store.Chunk) []store.Total {
	t.Helper()
	reply, err := h.Send(t.Context(), chunk)
	if err != nil || len(reply.Totals) != len(chunk.Costs) || reply.Now.IsZero() {
		t.Fatalf("send chunk %d of %d costs: %d totals, clock %v: %v",
			chunk.Number, len(chunk.Costs), len(reply.Totals), reply.Now, err)
	}
	return reply.Totals
}

// sendLost sends a chunk whose reply is lost.
func (h *originTest) sendLost(chunk store.Chunk) {
	h.Helper()
	h.lost("send", func() error {
		err := sendErr(h.Send(h.Context(), chunk))
		if errors.Is(err, store.ErrNotApplied) {
			h.Errorf("send, with the reply lost: %v", err)
		}
		return err
	})
}

func get(t suite.Reporter, h store.Origin, cells ...window.Cell) []store.Total {
	t.Helper()
	reply, err := h.Read(t.Context(), cells)
	if err != nil || len(reply.Totals) != len(cells) {
		t.Fatalf("get %d cells: %d totals: %v", len(cells), len(reply.Totals), err)
	}
	return reply.Totals
}

func regions(totals []store.Total) []int64 {
	counts := make([]int64, len(totals))
	for i, t := range totals {
		counts[i] = t.Region
	}
	return counts
}

func (h *originTest) wantRegions(cells []window.Cell, want ...int64) {
	h.Helper()
	if got := regions(get(h, h, cells...)); !slices.Equal(got, want) {
		h.Errorf("region totals are %v, want %v", got, want)
	}
}

// epoch returns the cell's epoch, as the servers have it now.
func (h *originTest) epoch(c window.Cell) store.Epoch { h.Helper(); return get(h, h, c)[0].Epoch }

// adds returns costs that belong to the current epoch.
func (h *originTest) adds(cells []window.Cell, add ...int64) []store.Cost {
	h.Helper()
	costs := make([]store.Cost, len(add))
	for i, total := range get(h, h, cells[:len(add)]...) {
		costs[i] = store.Cost{Cell: cells[i], Epoch: total.Epoch, Add: add[i]}
	}
	return costs
}

var originGetTests = map[string]func(*originTest){
	"answers for all cells in their order, an unknown cell with no cost": func(h *originTest) {
		c := h.cells(4)
		h.send(store.Cost{Cell: c[2], Add: 30}, store.Cost{Cell: c[0], Add: 1})
		h.wantRegions(c, 1, 0, 30, 0)
		h.wantRegions([]window.Cell{c[3], c[2], c[2], c[0]}, 0, 30, 30, 1)
		h.wantRegions(nil)
	},
	"creates nothing": func(h *originTest) {
		c := h.cells(1)
		h.wantRegions(c, 0)
		if got := h.send(store.Cost{Cell: c[0], Add: 5}); got[0].Region != 5 {
			h.Errorf("total after a get and 5: %+v", got[0])
		}
		h.wantChanges()
	},
	"answers for as many cells as a batch may ask for": func(h *originTest) {
		cells := h.cells(2000)
		h.send(store.Cost{Cell: cells[0], Add: 1}, store.Cost{Cell: cells[1999], Add: 2})
		want := make([]int64, len(cells))
		want[0], want[1999] = 1, 2
		h.wantRegions(cells, want...)
	},
	"reports the shard's clock": func(h *originTest) {
		before := h.Clock(h)
		reply, err := h.Read(h.Context(), h.cells(1))
		if after := h.Clock(h); err != nil || reply.Now.Before(before) || reply.Now.After(after) {
			h.Errorf("clock %v, between %v and %v: %v", reply.Now, before, after, err)
		}
	},
}

func testOriginContext(h *originTest) {
	suite.EndedContexts(h, func(ended string, ctx context.Context, want error) {
		for method, err := range callOrigin(h, ctx) {
			if !errors.Is(err, want) && (method != "Listen" || err != nil) {
				h.Errorf("%s with %s: %v", method, ended, err)
			}
		}
	})
	h.wantRegions(h.cells(2), 0, 0)
}

// callOrigin calls each method once.
func callOrigin(h *originTest, ctx context.Context) map[string]error {
	c, shard := h.cells(2), h.shard()
	errs := make(map[string]error)
	_, errs["Get"] = h.Read(ctx, c)
	_, errs["Send"] = h.Send(ctx, h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 1}))
	_, errs["Send of nothing"] = h.Send(ctx, store.Chunk{Shard: shard, Stream: 1, Number: 1})
	errs["Send of bounded costs"] = sendErr(h.Send(ctx, h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 1, AtMost: 9})))
	errs["Listen"] = h.Listen(ctx, shard, func([]store.Foreign) {})
	if h.Granter != nil {
		callGranter(h, ctx, errs)
	}
	if h.Relayed != nil {
		callRelayed(h, ctx, errs)
	}
	if h.Mailbox != nil {
		callMailbox(h, ctx, errs)
	}
	return errs
}

func callGranter(h *originTest, ctx context.Context, errs map[string]error) {
	held := newHoldTest(h)
	_, errs["Hold"] = h.Hold(ctx, held.callOf(opens("a", h.cells(1)[0], 1, 9)))
	_, errs["Hold of a record"] = h.Hold(ctx, held.recordCall(record("a", "x")))
	_, errs["Hold of nothing"] = h.Hold(ctx, store.HoldCall{Group: h.cell.Key, Stream: 1})
	key := newGrantTest(h).key
	_, errs["Grants"] = h.Grants(ctx, h.shard(), store.GrantCall{Node: 1, Number: 1,
		Asks: []store.GrantAsk{wants(key, 1, 0, 1), acquires(key, "id", 1)}})
}

func callRelayed(h *originTest, ctx context.Context, errs map[string]error) {
	c, shard := h.cells(1)[0], h.shard()
	change := []store.Change{{Cell: c, Total: 1, Limit: 1}}
	_, errs["Lease"] = h.Lease(ctx, shard, "a", time.Second)
	errs["Release"] = h.Release(ctx, shard, "a")
	_, errs["Changes"] = h.Changes(ctx, shard, 1)
	errs["Ack"] = h.Ack(ctx, shard, change)
	_, _, errs["Scan"] = h.Scan(ctx, shard, 0, 1)
	_, errs["Apply"] = h.Apply(ctx, shard, []store.Foreign{{Cell: c, Count: 1}})
	errs["Raise"] = h.Raise(ctx, shard, 1, change)
	errs["Healed"] = h.Healed(ctx, shard, 1)
}

func callMailbox(h *originTest, ctx context.Context, errs map[string]error) {
	_, errs["Settings"] = h.Settings(ctx, "eu")
	errs["StoreSettings"] = h.StoreSettings(ctx, h.shard(), "a", store.SettingsRows{}, time.Time{})
	errs["Heartbeat"] = h.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "a", Region: "eu"})
	_, errs["Heartbeats"] = h.Heartbeats(ctx, h.shard(), 1)
	errs["AckHeartbeats"] = h.AckHeartbeats(ctx, h.shard(),
		[]store.StoredHeartbeat{{Heartbeat: heartbeat.Heartbeat{NodeID: "a"}, Mark: 1}})
}
