package held

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A cell has at most store.HoldsMax open holds, of all nodes and callers. From crowdMin on, a node refuses a caller
// that has its share of them through this node (fair.HasRoom). So a caller leaves some for others, however many nodes
// it uses: of 10,000 holds, it leaves 2,500 if it uses a single node, and 853 if it uses ten. Callers without a label
// have no shares.

const (
	crowdMin  = store.HoldsMax / 4 // open holds of a cell from which callers have shares of them
	crowdsMax = 1000               // most cells
	shutFor   = time.Second        // time for which a node refuses a caller that has its share, without a call
)

// ErrShare is an ErrMany for a caller that has its share of a key's holds.
var ErrShare = fmt.Errorf("%w: the caller has its full share of the key's %d open reservations", ErrMany,
	store.HoldsMax)

// crowd is a node's record of a cell with many open holds.
type crowd struct {
	own     map[fair.Caller]int64 // callers' holds that this node keeps: last count, plus those granted since
	untilMs map[fair.Caller]int64 // time until which a caller is refused without a call
}

// crowds are the cells with many open holds. The mutex of their book guards them.
type crowds struct {
	by        map[window.Cell]*crowd
	countedMs int64
}

// shut reports whether the caller of a reservation must be refused without a call, because it was refused its share of
// a cell within shutFor.
func (b *book) shut(id string, r *Record, holds []store.Hold, nowMs int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] != nil {
		return false // the ID is reserved already
	}
	for i := range holds {
		c := b.crowds.by[holds[i].Cell]
		if c != nil && nowMs < c.untilMs[r.By] && c.untilMs[r.By] <= nowMs+shutFor.Milliseconds() {
			return true
		}
	}
	return false
}

// exceeds reports whether the caller of a reservation that the origin has just granted has more than its share of a
// cell's holds. If not, it counts the new holds.
func (b *book) exceeds(r *Record, holds []store.Hold, answers []store.HoldAnswer, nowMs int64) (over bool) {
	if !r.By.Labelled() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var crowded []*crowd
	for i := range answers {
		if answers[i].Open < crowdMin {
			delete(b.crowds.by, holds[i].Cell)
			continue
		}
		c := b.crowds.find(holds[i].Cell, b.kept, nowMs)
		if own := c.own[r.By]; !fair.HasRoom(own, own, store.HoldsMax-answers[i].Open, store.HoldsMax) {
			over, c.untilMs[r.By] = true, nowMs+shutFor.Milliseconds()
		}
		crowded = append(crowded, c)
	}
	for _, c := range crowded {
		if !over {
			c.own[r.By]++
		}
	}
	return over
}

// find returns the crowd of a cell. Its counts are at most a second old; a new crowd may begin without counts.
func (all *crowds) find(of window.Cell, some map[uint64]*kept, nowMs int64) *crowd {
	c := all.by[of]
	if c == nil {
		if all.by == nil || len(all.by) >= crowdsMax {
			all.by = make(map[window.Cell]*crowd)
		}
		c = &crowd{own: make(map[fair.Caller]int64), untilMs: make(map[fair.Caller]int64)}
		all.by[of] = c
	}
	if since := nowMs - all.countedMs; since < 0 || since >= time.Second.Milliseconds() {
		all.countedMs = nowMs
		all.count(some, nowMs)
	}
	return c
}

// count counts the open holds of callers in all crowded cells.
func (all *crowds) count(some map[uint64]*kept, nowMs int64) {
	for _, c := range all.by {
		clear(c.own)
		for by, untilMs := range c.untilMs {
			if untilMs <= nowMs {
				delete(c.untilMs, by)
			}
		}
	}
	for _, k := range some {
		if !k.of.Caller.Labelled() || k.withdraw || !k.record.Open(nowMs) {
			continue
		}
		for i := range k.record.Items {
			if c := all.by[k.record.Items[i].Cell()]; c != nil {
				c.own[k.of.Caller]++
			}
		}
	}
}
