package hunt

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// realWindows is an exact log of the cost that lives accepted, outside of the limiters. It compares real windows, which
// are any interval of a limit's duration, with the limits of precise namespaces.
type realWindows struct {
	world *world
	hold  bool // real windows of this plan must stay within their limits
	alone bool // the fleet is a single node
	still bool // that is never started again, and denies nothing that a log would admit for long

	mu      sync.Mutex
	denials []denial
	logs    map[window.Key][]accepted
	void    map[window.Key]bool // a life accepted cost by a clock that was not the origin's
}

// accepted is a cost with its call, which accepted it at some moment from began to ended.
type accepted struct {
	life         *life // nil of a refund that the log has no cost for
	began, ended time.Time
	sequence     int64 // of its cell
	cost         int64 // negative of such a refund
	limit        int64 // by which it was accepted
}

func newRealWindows(w *world) *realWindows {
	p := w.plan
	faults := p.Fails()
	alone := len(p.Fleet.Nodes) == 1 && p.Fleet.Nodes[0] == 1
	restarts, lost := p.Changes(Stop), p.Changes(Cut, Refuse, Mute, RefuseCalls, Wipe)
	r := &realWindows{world: w, alone: alone, logs: make(map[window.Key][]accepted), void: make(map[window.Key]bool)}
	r.hold = p.Clean() && !p.MayFill() && (alone && !(restarts && lost) || !faults)
	r.still = r.hold && alone && !restarts && !p.Claims() && !p.MixesLimits() &&
		!p.Changes(Override, Unset, Refund, Reframe, Rule)
	return r
}

// decided adds a decision's accepted cost, and compares the real window that ends with it with the decision's limit.
func (r *realWindows) decided(l *life, key int, cost int64, d *dataplane.Decision, before, after judged) {
	if !r.hold || !d.Allowed || cost == 0 || l.ended.Load() || before.mode != after.mode || before.mode != window.Exact {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := apiKey(r.world.plan.Fleet.Keys[key].Name, d.Duration)
	r.void[k] = r.void[k] || before.early || after.early
	now := accepted{l, before.at, time.Now(), d.ResetAt.UnixMilli()/d.Duration.Milliseconds() - 1, cost, d.Limit}
	r.logs[k] = append(r.logs[k], now)
	if !before.precise || !after.precise || r.void[k] {
		return
	}
	within := r.within(k, now)
	if most := d.Limit + r.keptBack(key, d.Limit); within > most {
		r.world.record.violate("window",
			"%v accepts a cost after which %d of %d are in a real window of k%d, at most %d may be", l, within, d.Limit, key,
			most)
	}
}

// within returns the cost that was certainly accepted in the real window that ends with a call, and that the life
// certainly counted by then.
func (r *realWindows) within(k window.Key, of accepted) (sum int64) {
	from := of.ended.Add(r.slack() - k.Duration)
	for _, a := range r.logs[k] {
		if a.began.After(from) && r.knows(of, a, k) {
			sum += a.cost
		}
	}
	return sum
}

// knows reports whether the life that decided a call had certainly received another call's cost by then. Of two calls
// at a time, the call with the higher limit may have been decided later.
func (r *realWindows) knows(of, a accepted, k window.Key) bool {
	if a.life == nil || a.life == of.life && (a.limit <= of.limit || !a.ended.After(of.began)) {
		return true
	}
	return a.ended.Before(of.began.Add(-r.knownIn(a.life, of.life, k)))
}

// slack returns how much a node may correct its time by, as it follows its origin's clock.
func (r *realWindows) slack() time.Duration {
	return r.world.plan.Fleet.OriginTrip + 2*time.Millisecond
}

// knownIn returns the time within which a life receives another life's cost. A node sends at its next tick, and reads a
// key that it has not refreshed for Tuning.FreshFor. Another region has the cost within the bound of package relay.
func (r *realWindows) knownIn(of, by *life, k window.Key) time.Duration {
	p, t := r.world.plan, r.world.plan.Slowest()
	ticks := time.Duration(2 * (1 + t.Jitter) * float64(t.ReplayTick.Std()))
	known := t.FreshFor.Std() + ticks + 4*p.Fleet.OriginTrip + readTimeout
	switch {
	case r.alone: // it was stopped since, and has sent all
		return 0
	case of.node.region == by.node.region:
		return known
	case !p.Shares(k.Duration):
		return window.DurationMax
	}
	return known + r.world.bound()
}

// keptBack returns how much of a key relays of other regions may keep unpublished: see relay.Tuning.Floor.
func (r *realWindows) keptBack(key int, limit int64) int64 {
	others := int64(len(r.world.regions) - 1)
	return others * int64(r.world.plan.Slowest().Floor*float64(r.largest(key, limit)))
}

// denial is a denied call.
type denial struct {
	life         *life
	key          window.Key
	began, ended time.Time
	cost, limit  int64
}

// denied records a denial. It is compared with the log in the end, because costs that were accepted at the same moment
// are in the log later.
func (r *realWindows) denied(l *life, key int, cost int64, d *dataplane.Decision, before judged) {
	if !r.still || d.Allowed || !before.precise || before.mode != window.Exact || d.Source.Degraded() || d.Err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := apiKey(r.world.plan.Fleet.Keys[key].Name, d.Duration)
	r.denials = append(r.denials, denial{l, k, before.at, time.Now(), cost, d.Limit})
}

// look compares a node's denials with an exact log. A node may deny for longer by two steps of a history, and by the
// cost of a group at each end.
func (r *realWindows) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.denials {
		group := d.limit/window.MarksMax + d.limit/window.MarksMax/4 + 1
		from, sum := d.began.Add(-d.key.Duration-2*d.key.Duration/window.MarksMax-r.slack()), int64(0)
		for _, a := range r.logs[d.key] {
			if a.ended.After(from) && !a.began.After(d.ended) {
				sum += a.cost
			}
		}
		if !r.void[d.key] && sum+2*group+d.cost <= d.limit {
			r.world.record.violate("admits", "%v denies %d of %s, of which %d of %d were accepted in a window and two steps",
				d.life, d.cost, d.key.Identifier, sum, d.limit)
		}
	}
}

// refund takes returned cost out of the log. It takes the newest cost of the cell, which leaves the least cost in later
// windows. If the log has less, the call has no answer yet, or callers gave the same cost back at two nodes, and both
// nodes credit it. The rest becomes a negative cost at the cell's end, because it pays for any later cost of the cell.
func (r *realWindows) refund(cell window.Cell, cost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := apiKey(cell.Identifier, cell.Duration)
	for i := len(r.logs[k]) - 1; i >= 0 && cost > 0; i-- {
		if a := &r.logs[k][i]; a.sequence == cell.Sequence && a.cost > 0 {
			taken := min(a.cost, cost)
			a.cost, cost = a.cost-taken, cost-taken
		}
	}
	if cost > 0 {
		end := time.UnixMilli(window.Start(cell.Sequence+1, cell.DurationMs()))
		r.logs[k] = append(r.logs[k], accepted{began: end, ended: end, sequence: cell.Sequence, cost: -cost})
	}
}

// largest returns the largest limit that a key ever has, at least a limit.
func (r *realWindows) largest(key int, limit int64) int64 {
	p := r.world.plan
	limit = max(limit, p.Fleet.Keys[key].Limit)
	for _, s := range p.Steps {
		if s.Key == key || s.All {
			limit = max(limit, s.Limit)
		}
	}
	return limit
}
