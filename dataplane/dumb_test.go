package dataplane_test

import (
	"math/big"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// restoring is the cost that a node sends again to an origin that has lost a cell.
type restoring struct{ own, known int64 }

// dumbKey is the state of one node about one key, in maps from sequence to cost from which nothing is ever deleted,
// and with decisions in rational numbers. It is a limiter that is too slow to use but easy to understand. It takes
// one request at a time, and the test passes it the answers of the origin and the other regions.
type dumbKey struct {
	durationMs int64
	latest     int64 // the open cell; earlier cells are closed for good

	own     map[int64]int64 // cost that this node has accepted
	sent    map[int64]int64 // the part of own that needs no sending: the origin has confirmed it, or has it restored
	way     map[int64]int64 // the part of own that is in flight; there is an entry during a send
	first   map[int64]bool  // the last send, in flight or not, had no epoch
	others  map[int64]int64 // cost of the region's other nodes, by the answers so far
	foreign map[int64]int64 // cost of the other regions, by the answers so far
	carried map[int64]int64 // from cells that had not begun when the clock was set back
	lowest  map[int64]int64 // lowest limit that cost was accepted against
	reached map[int64]bool  // a request has reached its limit there, or was denied

	epoch   map[int64]store.Epoch // of the origin's last answer
	restore map[int64]restoring   // cost that the origin has lost, and that must be sent again

	// By the steady clock, which starts late enough that 0 means never.
	refreshedMs int64 // last answer about the open cell
	strictMs    int64 // until then, every decision reads the origin first
	restMs      int64 // until then, the origin is not read, after a failure
}

func newDumbKey(durationMs, nowMs int64) *dumbKey {
	return &dumbKey{
		durationMs: durationMs, latest: window.Sequence(nowMs, durationMs),
		own: map[int64]int64{}, sent: map[int64]int64{}, others: map[int64]int64{}, foreign: map[int64]int64{},
		carried: map[int64]int64{},
		way:     map[int64]int64{}, first: map[int64]bool{}, lowest: map[int64]int64{}, reached: map[int64]bool{},
		epoch: map[int64]store.Epoch{}, restore: map[int64]restoring{},
	}
}

func (k *dumbKey) reach(nowMs int64) { k.latest = max(k.latest, window.Sequence(nowMs, k.durationMs)) }

func (k *dumbKey) regional(sequence int64) int64 { return k.own[sequence] + k.others[sequence] }
func (k *dumbKey) total(sequence int64) int64 {
	return k.regional(sequence) + k.foreign[sequence] + k.carried[sequence]
}
func (k *dumbKey) settled(sequence int64) int64 { return k.sent[sequence] + k.way[sequence] }
func (k *dumbKey) unsent(sequence int64) int64  { return k.own[sequence] - k.settled(sequence) }

// absorb merges an answer of the origin, and returns the epoch that it has lost, or 0. All cost that is not this
// node's own, sent or in flight, belongs to the other nodes.
func (k *dumbKey) absorb(sequence int64, total store.Total) (lost store.Epoch) {
	if was := k.epoch[sequence]; total.Epoch != 0 && total.Epoch != was {
		if was != 0 {
			k.begin(sequence)
			lost = was
		}
		k.epoch[sequence] = total.Epoch
	}
	if total.Err == nil {
		k.others[sequence] = max(k.others[sequence], total.Region-k.settled(sequence))
		k.applyForeign(sequence, total.Foreign)
	}
	return lost
}

func (k *dumbKey) applyForeign(sequence, foreign int64) {
	k.foreign[sequence] = max(k.foreign[sequence], foreign)
}

// begin starts a new epoch of a cell: all accepted cost is restored, and answers to earlier sends don't count. Cost
// that was sent without an epoch belongs to the epoch of its answer.
func (k *dumbKey) begin(sequence int64) {
	known, own := k.settled(sequence)+k.others[sequence], k.own[sequence]
	if way, sending := k.way[sequence]; sending && k.first[sequence] {
		known, own = known-way, own-way
	}
	if !k.first[sequence] {
		delete(k.way, sequence)
	}
	if k.sent[sequence] = own; own > 0 || known > 0 {
		k.restore[sequence] = restoring{own, known}
	}
}

// renew starts the new epoch of the cells that are still in lost epochs.
func (k *dumbKey) renew(sequence int64, gone lost) {
	if next, ok := gone[k.epoch[sequence]]; ok {
		k.begin(sequence)
		k.epoch[sequence] = next
	}
}

// load marks the unsent cost of a cell as in flight, and returns it; ok is false if there is none, or if a send is
// already in flight.
func (k *dumbKey) load(sequence int64) (c store.Cost, ok bool) {
	r, restores := k.restore[sequence]
	if _, sending := k.way[sequence]; sending || k.unsent(sequence) == 0 && !restores {
		return c, false
	}
	c = store.Cost{Epoch: k.epoch[sequence], Add: k.unsent(sequence), Limit: k.lowest[sequence]}
	c.Restore, c.Known = r.own, r.known
	k.way[sequence], k.first[sequence] = c.Add, c.Epoch == 0
	return c, true
}

// confirm merges the answer to a cell's send.
func (k *dumbKey) confirm(sent store.Cost, total store.Total) (lost store.Epoch) {
	s := sent.Cell.Sequence
	lost = k.absorb(s, total)
	way, sending := k.way[s]
	switch {
	case !sending: // a new epoch has begun since
	case total.Err != nil: // sent without an epoch, and refused for a lost epoch
		k.sent[s] += way
		k.restore[s] = restoring{k.restore[s].own + way, k.restore[s].known}
		delete(k.way, s)
	default:
		k.sent[s] += way
		delete(k.way, s)
		if sent.Restore > 0 || sent.Known > 0 {
			delete(k.restore, s)
		}
	}
	return lost
}

// giveUp drops the unsent cost of a cell that can no longer influence a decision.
func (k *dumbKey) giveUp(sequence int64) (cost int64) {
	cost = k.unsent(sequence)
	k.sent[sequence] += cost
	delete(k.restore, sequence)
	return cost
}

// used returns current + floor(previous*weight) at a time, with extra cost in the open cell.
func (k *dumbKey) used(atMs, extra int64) int64 {
	sequence := window.Sequence(atMs, k.durationMs)
	count := func(s int64) int64 {
		if s == k.latest {
			return k.total(s) + extra
		}
		return k.total(s)
	}
	carried := big.NewRat((sequence+1)*k.durationMs-atMs, k.durationMs)
	carried.Mul(carried, big.NewRat(count(sequence-1), 1))
	return new(big.Int).Quo(carried.Num(), carried.Denom()).Int64() + count(sequence)
}

func (k *dumbKey) fits(atMs, extra, cost, limit int64) bool {
	return k.used(atMs, extra)+cost <= limit
}

// opinion has the expected fields of a decision.
type opinion struct {
	allowed         bool
	refused         bool    // by the outage policy
	current         float64 // with before and cost
	remainingBefore int64   // without before and cost
	remainingAfter  int64   // with both
	retryAfterMs    int64
	resetMs         int64
}

// judge answers a request at nowMs as if before had been counted in the open cell. If the clock has stepped back, it
// stands at the start of the open cell.
func (k *dumbKey) judge(nowMs, limit, before, cost int64) opinion {
	atMs := max(nowMs, k.latest*k.durationMs)
	o := opinion{
		allowed: k.fits(atMs, before, cost, limit),
		current: float64(k.used(atMs, before+cost)), resetMs: (k.latest + 1) * k.durationMs,
		remainingBefore: k.remaining(atMs, 0, limit), remainingAfter: k.remaining(atMs, before+cost, limit),
	}
	if !o.allowed && before+cost <= limit { // both must pass together
		o.retryAfterMs = min(k.passesAt(atMs, before+cost, limit)-nowMs, 2*k.durationMs)
	}
	return o
}

// remaining returns limit - used, never negative.
func (k *dumbKey) remaining(atMs, extra, limit int64) int64 {
	return max(0, limit-k.used(atMs, extra))
}

// passesAt returns the first millisecond at which cost fits. A cost that fits once fits from then on, so a binary
// search finds it.
func (k *dumbKey) passesAt(fromMs, cost, limit int64) int64 {
	low, high := fromMs, (k.latest+2)*k.durationMs
	for low < high {
		if middle := low + (high-low)/2; k.fits(middle, 0, cost, limit) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

// wantsOrigin reports whether a decision should read the origin first: on a cold key, on a key that was not read for
// five seconds, and in strict mode.
func (k *dumbKey) wantsOrigin(steadyMs int64) bool {
	return steadyMs-k.refreshedMs >= 5000 || steadyMs < k.strictMs
}

// isAhead reports whether the open cell begins later than a time, by more than the difference of clock readings.
func (k *dumbKey) isAhead(nowMs int64) bool { return k.latest*k.durationMs > nowMs+200 }

// setRight returns the key after its clock was set back to before its open cell: cost that still counts moves to the
// clock's current cell. An origin already has that cell if it is the previous cell.
func (k *dumbKey) setRight(nowMs int64, origin bool) *dumbKey {
	next := newDumbKey(k.durationMs, nowMs)
	to := next.latest
	next.carried[to] = k.total(k.latest) + k.total(k.latest-1)
	if origin && to == k.latest-1 {
		next.carried[to] = k.total(k.latest) + k.carried[to]
		next.own[to], next.sent[to], next.others[to], next.epoch[to] = k.own[to], k.own[to], k.others[to], k.epoch[to]
		next.foreign[to] = k.foreign[to]
	}
	for _, s := range k.alive() {
		if limit, ok := k.lowest[s]; ok && (next.lowest[to] == 0 || limit < next.lowest[to]) {
			next.lowest[to] = limit
		}
		next.reached[to] = next.reached[to] || k.reached[s]
	}
	next.strictMs, next.restMs = k.strictMs, k.restMs
	return next
}

func (k *dumbKey) accept(limit, cost int64) {
	if cost == 0 {
		return
	}
	if lowest, ok := k.lowest[k.latest]; !ok || limit < lowest {
		k.lowest[k.latest] = limit
	}
	k.own[k.latest] += cost
	k.reached[k.latest] = k.reached[k.latest] || k.total(k.latest) >= limit
}

// deny makes the key strict for one duration, unless the cost alone causes the denial.
func (k *dumbKey) deny(steadyMs, limit, cost int64) {
	if cost <= limit {
		k.strictMs = max(k.strictMs, steadyMs+k.durationMs)
		k.reached[k.latest] = true
	}
}

// over reports whether a cell can no longer influence a decision.
func (k *dumbKey) over(sequence, nowMs int64) bool { return (sequence+2)*k.durationMs <= nowMs }

// alive returns the two cells that a decision uses.
func (k *dumbKey) alive() []int64 { return []int64{k.latest - 1, k.latest} }

// mayGo reports whether the key can be dropped: it is not strict (which does not matter for a node without an
// origin), nothing must be sent to the origin, and its cells have expired or no request has reached a limit in them.
func (k *dumbKey) mayGo(seenFromMs, steadyMs int64, origin bool) bool {
	if k.strictMs > steadyMs && origin {
		return false
	}
	for _, s := range k.alive() {
		if origin && k.pending(s) || k.reached[s] && !k.over(k.latest, seenFromMs) {
			return false
		}
	}
	return true
}

// pending reports whether cost of a cell must be sent to the origin, or is in flight.
func (k *dumbKey) pending(sequence int64) bool {
	_, sending := k.way[sequence]
	_, restores := k.restore[sequence]
	return sending || restores || k.unsent(sequence) != 0
}
