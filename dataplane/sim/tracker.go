package sim

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// tracker records the cells that regions share: the cost that their nodes accepted, the totals of origins, and the
// foreign totals that origins received, each with its time.
//
// A cost has converged when the answers of every other origin have at least the cost that the fleet had accepted when
// the cost was at its own origin. A cost is due when it is at its origin and its relay must publish it at once: once
// the region's total has reached the limit, or a second region uses the cell. A cost that is never due must be less
// than the floor; otherwise it counts as unknown.
type tracker struct {
	floor   float64
	world   *world
	regions int

	mu      sync.Mutex
	watched map[window.Key]*tally // by key: the tally of its group
	groups  groups
	cells   map[window.Cell]*tracked
	convergence
}

// tracked is a cell. Slices are by region.
type tracked struct {
	limit    int64
	accepted []int64 // by the nodes
	counted  []int64 // by the origin; only grows
	foreign  []int64 // applied to the origin
	known    []progress
	marks    []mark
	dated    int // marks before this index have been due
	users    int // number of regions that have counted
	sum      int64
}

func newTracker(w *world, regions int, floor float64) *tracker {
	return &tracker{floor: floor, world: w, regions: regions, watched: make(map[window.Key]*tally),
		groups: make(groups), cells: make(map[window.Cell]*tracked)}
}

// watch starts tracking a key, as a part of a group.
func (t *tracker) watch(group string, key window.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups.of(group)
	g.keys++
	t.watched[key] = g
}

func (t *tracker) cellLocked(name window.Cell) *tracked {
	c := t.cells[name]
	if c == nil && t.watched[name.Key] != nil {
		c = &tracked{accepted: make([]int64, t.regions), counted: make([]int64, t.regions), foreign: make([]int64, t.regions),
			known: make([]progress, t.regions)}
		t.cells[name] = c
	}
	return c
}

// accept records a cost that a node has accepted.
func (t *tracker) accept(region int, name window.Cell, cost, limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.cellLocked(name); c != nil {
		c.limit = limit
		c.accepted[region] += cost
	}
}

// count records the total of a region's origin.
func (t *tracker) count(region int, name window.Cell, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.cellLocked(name)
	if c == nil || total <= c.counted[region] {
		return
	}
	if most := c.accepted[region]; total > most {
		t.world.violate(violationCounted, "the origin of region %d holds %d of %v, cell %d, and %d were accepted", region,
			total, name.Key, name.Sequence, most)
	}
	amount := total - c.counted[region]
	if c.counted[region] == 0 {
		c.users++
	}
	c.counted[region], c.sum = total, c.sum+amount
	c.marks = append(c.marks, mark{region: region, amount: amount, sum: c.sum, missing: t.regions - 1, at: neverUsed,
		hot: float64(c.sum) >= hotShare*float64(c.limit)})
	if c.users > 1 || total >= c.limit {
		for ; c.dated < len(c.marks); c.dated++ {
			c.marks[c.dated].at = time.Since(t.world.began)
		}
	}
}

// applied records a foreign total that was applied to a region's origin.
func (t *tracker) applied(region int, name window.Cell, foreign int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.cellLocked(name)
	if c == nil || foreign <= c.foreign[region] {
		return
	}
	others := int64(0)
	for i, n := range c.accepted {
		if i != region {
			others += n
		}
	}
	if foreign > others {
		t.world.violate(violationPublished,
			"the origin of region %d has %d of %v, cell %d, from others, and they accepted %d", region, foreign, name.Key,
			name.Sequence, others)
	}
	c.foreign[region] = foreign
	c.known[region].advance(c.marks, region, foreign, func(m *mark) {
		if m.missing--; m.missing == 0 && m.at != neverUsed {
			t.convergence.add(m, time.Since(t.world.began)-m.at)
		}
	})
}

// closeBefore audits and removes the cells that have expired. At the end these are all cells. held returns the totals
// of a region's origin.
func (t *tracker) closeBefore(beforeMs int64, held func(region int, cells []window.Cell) []store.Total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var over []window.Cell
	for name := range t.cells {
		if name.ExpiresAtMs() < beforeMs {
			over = append(over, name)
		}
	}
	if len(over) == 0 {
		return
	}
	for region := range t.regions {
		for i, total := range held(region, over) {
			name := &over[i]
			t.watched[name.Key].books.add(t.world.balance(region, name, total.Region, t.cells[*name].accepted[region]))
		}
	}
	for _, name := range over {
		t.closeLocked(t.cells[name], t.watched[name.Key])
		delete(t.cells, name)
	}
}

func (t *tracker) closeLocked(c *tracked, group *tally) {
	for i := range c.marks {
		if m := &c.marks[i]; m.missing > 0 && (m.at != neverUsed || t.isLate(c, m)) {
			t.miss(m)
		}
	}
	accepted := int64(0)
	for _, n := range c.accepted {
		accepted += n
	}
	peak := float64(accepted) / float64(max(1, c.limit))
	group.admitted += accepted
	group.peaked(peak, peak >= 1)
}

// isLate reports whether an origin lacks a floor or more of the total at a mark, in a cell that a single region uses.
func (t *tracker) isLate(c *tracked, m *mark) bool {
	for region, foreign := range c.foreign {
		if region != m.region && float64(m.sum-foreign) >= max(1, t.floor*float64(c.limit)) {
			return true
		}
	}
	return false
}

// watchedOrigin records an origin's totals in the tracker.
type watchedOrigin struct {
	store.FullOrigin
	track  *tracker
	region int
}

// Send implements store.Origin.
func (h *watchedOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := h.FullOrigin.Send(ctx, chunk)
	for i, total := range reply.Totals {
		if total.Err == nil {
			h.track.count(h.region, chunk.Costs[i].Cell, total.Region)
		}
	}
	return reply, err
}

// Apply implements store.Relayed.
func (h *watchedOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	raised, err := h.FullOrigin.Apply(ctx, shard, totals)
	for _, f := range totals {
		if err == nil {
			h.track.applied(h.region, f.Cell, f.Count)
		}
	}
	return raised, err
}
