package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// originClockTests are for origins whose clock can be set back: see store.Origin.
var originClockTests = map[string]func(*originTest){
	"has the cells that are ahead forgotten, and no others": testClockForgets,
	"by no more than ClockSetBack has none forgotten": func(h *originTest) {
		c := h.cellAt(time.Second, 0)
		for range 5 {
			h.Step(h, 10*time.Second)
			c.Sequence += 10
			h.send(store.Cost{Cell: c, Add: 3})
			h.Step(h, -store.ClockSetBack)
			h.wantRegions([]window.Cell{c}, 3)
			h.send(store.Cost{Cell: c, Add: 1})
			h.wantRegions([]window.Cell{c}, 4)
		}
	},
	"has all counts or none of cells that were over while it was ahead": func(h *originTest) {
		for _, d := range []time.Duration{time.Minute, time.Hour, 12 * time.Hour} {
			c := h.cellAt(d, 0)
			h.send(store.Cost{Cell: c, Add: 5})
			h.send(store.Cost{Cell: c, Add: 2, AtMost: 7})
			h.wasAhead(2*d + 2*time.Minute)
			has := regions(h.getEach([]window.Cell{c}))[0]
			if has != 0 && has != 7 {
				h.Errorf("%v has %d, want 0 or 7", c, has)
			}
			h.send(store.Cost{Cell: c, Add: 3})
			for range 2 {
				h.send(store.Cost{Cell: c, Add: 1, AtMost: has + 4})
			}
			h.wantRegions([]window.Cell{c}, has+4)
		}
	},
	"leaves no count in cells that are ahead, until it has caught up": func(h *originTest) {
		for _, d := range []time.Duration{time.Second, time.Minute, time.Hour} {
			h.wasAhead(3 * time.Hour)
			late, next := h.cellAt(d, 2*time.Hour), h.cellAt(d, min(d, store.AheadMax))
			for _, c := range []window.Cell{late, next} {
				h.send(store.Cost{Cell: c, Add: 2, Limit: 9})
				h.send(store.Cost{Cell: c, Add: 1, Limit: 9, AtMost: 9})
			}
			h.wantRegions([]window.Cell{late, next}, 0, 3)
			h.Step(h, 2*time.Hour)
			h.wantRegions([]window.Cell{late}, 0)
			h.send(store.Cost{Cell: late, Add: 4})
			h.wantRegions([]window.Cell{late}, 4)
			h.Step(h, time.Hour+2*time.Second)
			later := h.cellAt(d, 2*time.Hour)
			h.send(store.Cost{Cell: later, Add: 5})
			h.wantRegions([]window.Cell{later}, 5)
		}
	},
}

// originClockMailboxTests are about settings.
var originClockMailboxTests = map[string]func(*originTest){
	"leaves settings as old as they are": func(h *originTest) {
		h.Step(h, time.Hour)
		h.storeSettings(fullSettings())
		h.Step(h, 20*time.Second)
		for shard := range h.Shards() { // each reads its clock
			if _, err := h.Changes(h.Context(), shard, 1); err != nil {
				h.Fatal(err)
			}
		}
		for _, back := range []time.Duration{30 * time.Second, time.Hour - 10*time.Second} {
			h.setBack(back)
			rows, err := h.Settings(h.Context(), "eu")
			if err != nil || rows.Age < 18*time.Second || rows.Age > 40*time.Second {
				h.Errorf("%v back, settings of 20 s before are %v old: %v", back, rows.Age, err)
			}
		}
		h.storeSettings(fullSettings())
		if rows, err := h.Settings(h.Context(), "eu"); err != nil || rows.Age > 10*time.Second {
			h.Errorf("settings that were just stored are %v old: %v", rows.Age, err)
		}
	},
}

// originClockRelayedTests are about the counts that a relay carries.
var originClockRelayedTests = map[string]func(*originTest){
	"has relays find no cell that was forgotten": func(h *originTest) {
		h.Step(h, time.Hour)
		c := h.cellAt(time.Minute, 0)
		h.send(store.Cost{Cell: c, Add: 3, Limit: 9})
		h.applyOne(store.Foreign{Cell: c, Count: 5}, 1)
		h.wantChanges(store.Change{Cell: c, Total: 3, Limit: 9})
		h.setBack(time.Hour)
		h.wantChanges()
		for cursor := uint64(0); ; {
			cells, next, err := h.Scan(h.Context(), h.shard(), cursor, 100)
			if err != nil || len(cells) > 0 {
				h.Fatalf("a scan finds %+v: %v", cells, err)
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
		if got := get(h, h, c)[0]; got.Region != 0 || got.Foreign != 0 {
			h.Errorf("%+v", got)
		}
		h.applyOne(store.Foreign{Cell: c, Count: 6}, 0)
		epoch := h.changes(1).Epoch
		if err := h.Raise(h.Context(), h.shard(), epoch, []store.Change{{Cell: c, Total: 7, Limit: 9}}); err != nil {
			h.Fatal(err)
		}
		if got := get(h, h, c)[0]; got.Region != 0 || got.Foreign != 0 {
			h.Errorf("while the cell is ahead: %+v", got)
		}
		h.Step(h, time.Hour)
		h.applyOne(store.Foreign{Cell: c, Count: 1}, 1)
		h.send(store.Cost{Cell: c, Add: 2, Limit: 9})
		if got := get(h, h, c)[0]; got.Region != 2 || got.Foreign != 1 {
			h.Errorf("when the cell has begun: %+v", got)
		}
		h.wantChanges(store.Change{Cell: c, Total: 2, Limit: 9})
	},
	"has a lease end in time": func(h *originTest) {
		h.Step(h, time.Hour)
		h.lease("a", time.Minute, "a", time.Minute)
		h.setBack(time.Hour)
		h.lease("b", time.Minute, "a", time.Minute+2*time.Second)
		h.lease("a", time.Minute, "a", time.Minute+2*time.Second)
		h.Step(h, time.Minute+2*time.Second)
		h.lease("b", time.Minute, "b", time.Minute)
	},
}

// originClockGranterTests cover grants that end.
var originClockGranterTests = map[string]func(*holdTest){
	"has a hold and a record end in time": func(h *holdTest) {
		h.Step(h, time.Hour)
		c := h.cellSince(2 * time.Hour)
		h.hold(lasting(time.Minute, opens("a", c, 40, 100)))
		made := record("id", "x")
		made.TTL = time.Minute
		h.record(made)
		h.setBack(time.Hour)
		left := func() time.Duration { return time.UnixMilli(h.record(made).EndsMs).Sub(h.Clock(h)) }
		if left := left(); left < 50*time.Second || left > time.Minute+2*time.Second {
			h.Errorf("the record ends in %v, want a minute", left)
		}
		h.refuse(opens("b", c, 61, 100))
		h.Step(h, time.Minute+2*time.Second)
		h.hold(opens("b", c, 100, 100))
		if left := left(); left > 0 {
			h.Errorf("the record ends in %v, and has ended", left)
		}
	},
	"has the holds of a cell forgotten with it": func(h *holdTest) {
		h.Step(h, time.Hour)
		c := h.cellAt(time.Minute, 0)
		h.hold(opens("a", c, 40, 100))
		h.setBack(time.Hour)
		h.refuse(opens("b", c, 1, 100)) // as of a cell that has expired
		h.wantHeld(states("a", c, 40, 3), false)
		h.Step(h, time.Hour)
		h.hold(opens("c", c, 100, 100))
		h.wantRegions([]window.Cell{c}, 100)
	},
	"has slots and leases end in time": func(h *holdTest) {
		g := newGrantTest(h.originTest)
		h.Step(h, time.Hour)
		g.wantGrant(1, 1, wants(g.key, 5, 0, 3), 3, 0)
		g.wantLease(acquires(g.key, "a", 5), true, 4)
		h.setBack(time.Hour)
		g.wantGrant(2, 1, wants(g.key, 5, 0, 5), 1, 4)
		h.Step(h, grantTTL+2*time.Second)
		g.wantGrant(3, 1, wants(g.key, 5, 0, 5), 5, 0)
		g.wantLease(acquires(g.key, "b", 5), false, 5)
	},
	"keeps an emptied origin from granting for no longer than a time to live": func(h *holdTest) {
		h.Step(h, time.Hour)
		h.Wipe(h)
		g := newGrantTest(h.originTest)
		g.grantsOf(1, 1, wants(g.key, 5, 3, 0))
		h.setBack(time.Hour)
		h.Step(h, grantTTL+2*time.Second)
		g.wantGrant(2, 1, wants(g.key, 5, 0, 5), 5, 0)
	},
}

// cellAt returns the cell of a duration that the servers' clock will show after some time.
func (h *originTest) cellAt(d, in time.Duration) window.Cell {
	c := h.cell
	c.Duration = d
	for i := 0; h.ShardOf(&c.Key) != h.shard(); i++ {
		c.Identifier = fmt.Sprint("id-", i)
	}
	c.Sequence = window.Sequence(h.Clock(h).Add(in).UnixMilli(), c.DurationMs())
	return c
}

// cellSince returns a current cell that began at least so long ago, whatever the time of day.
func (h *originTest) cellSince(ago time.Duration) (c window.Cell) {
	now := h.Clock(h)
	for d := 48 * time.Hour; ; d -= time.Hour {
		if c = h.cellAt(d, 0); now.UnixMilli()-window.Start(c.Sequence, c.DurationMs()) >= ago.Milliseconds() {
			return c
		}
	}
}

// setBack sets the servers' clock back, and has the shard of the tests' cells find it.
func (h *originTest) setBack(by time.Duration) {
	h.Helper()
	h.Step(h, -by)
	get(h, h, h.cell)
}

// wasAhead sets the servers' clock ahead and back.
func (h *originTest) wasAhead(by time.Duration) {
	h.Helper()
	h.Step(h, by)
	get(h, h, h.cell)
	h.setBack(by)
}

func (h *originTest) applyOne(f store.Foreign, want int) {
	h.Helper()
	raised, err := h.Apply(h.Context(), h.ShardOf(&f.Cell.Key), []store.Foreign{f})
	if err != nil || raised != want {
		h.Errorf("apply %+v: raised %d, want %d: %v", f, raised, want, err)
	}
}

// testClockForgets sets the clock ahead by little and by much, and back. In between it counts in cells of several
// durations: the previous cell, the current and the next.
func testClockForgets(h *originTest) {
	for _, by := range []time.Duration{5 * time.Second, 61 * time.Second, 10 * time.Minute, time.Hour, 25 * time.Hour} {
		h.Step(h, by)
		var cells []window.Cell
		for _, d := range []time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			for next := int64(-1); next <= 1; next++ {
				c := h.cellAt(d, 0)
				c.Sequence += next
				cells = append(cells, c)
			}
		}
		before := regions(h.getEach(cells))
		for _, c := range cells {
			h.send(store.Cost{Cell: c, Add: 3})
		}
		h.setBack(by)
		nowMs := h.Clock(h).UnixMilli()
		want := make([]int64, len(cells))
		for i, c := range cells {
			if !store.Ahead(&c, nowMs) {
				want[i] = before[i] + 3
			}
		}
		if got := regions(h.getEach(cells)); !slices.Equal(got, want) {
			h.Errorf("%v back, right after:\n%v have\n%v, want\n%v", by, cells, got, want)
		}
		h.Step(h, by+2*time.Second) // the same when their time has come, except for expired cells
		for i, got := range regions(h.getEach(cells)) {
			if got != 0 && got != want[i] {
				h.Errorf("%v back, when its time has come: %v has %d, want %d", by, cells[i], got, want[i])
			}
		}
	}
}

func (h *originTest) getEach(cells []window.Cell) (totals []store.Total) {
	for _, c := range cells {
		totals = append(totals, get(h, h, c)[0])
	}
	return totals
}
