package hunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// slotsNamespace has the keys of leases. No operator changes it.
	slotsNamespace = "slots"

	// freeWithin is how much longer than its time to live a slot without a holder may stay taken.
	freeWithin = time.Second
)

// holders lists the holders of leases by their own reckoning, and the slots that nodes hold by their origins' answers.
type holders struct {
	world *world

	mu    sync.Mutex
	all   []*holder
	taken map[slotOf]taken
	fails map[*region]time.Time // time of its origin's last failover
}

// holder holds one lease, or waits for a lease.
type holder struct {
	name   string
	region *region
	key    int
	life   *life // of its process: nil of a holder with an id

	lease dataplane.Lease

	token    string
	until    time.Time // with an id: the end of its lease, by the answers it received
	asked    time.Time // when a call for it was made last
	heard    bool      // all of these calls were answered
	released bool

	waits   bool
	began   time.Time
	granted time.Time
}

// slotOf names the slots that a life holds of a key.
type slotOf struct {
	life *life
	key  window.Key
}

type taken struct {
	slots int64
	heard time.Time // when the call arrived
}

func (h *holders) request(key int, name string) dataplane.ConcurrencyRequest {
	s := h.world.plan.Fleet.Slots[key]
	return dataplane.ConcurrencyRequest{
		Workspace: workspace, Namespace: slotsNamespace, Identifier: s.Name, Limit: s.Limit, TTL: s.TTL, Holder: name,
	}
}

// acquire holds a lease in a node's process.
func (h *holders) acquire(l *life, s Step) {
	holder := &holder{name: s.Name(), region: l.node.region, key: s.Key, life: l, waits: s.Delay > 0,
		began: time.Now()}
	h.add(holder)
	over, ask := h.world.record.wait(l), l.Limiter.Acquire
	if s.Delay > 0 {
		over, ask = func() {}, l.Limiter.AcquireWait
	}
	ctx, leave := patience(s.Delay)
	defer leave()
	lease, d := ask(ctx, h.request(s.Key, holder.name))
	over()
	h.answered(l, holder, &d, func() bool { holder.lease = lease; return lease != (dataplane.Lease{}) })
	if holder.granted.IsZero() {
		return
	}
	if s.After < plan.ForGood {
		time.Sleep(s.After)
		h.leave(holder)
	}
}

// patience returns the context of a caller who waits for a lease up to a delay, if at all.
func patience(delay time.Duration) (context.Context, context.CancelFunc) {
	if delay > 0 {
		return context.WithTimeout(context.Background(), delay)
	}
	return context.WithCancel(context.Background())
}

func (h *holders) add(holder *holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, holder)
}

// leave releases the lease of a holder in a node's process.
func (h *holders) leave(holder *holder) {
	h.mu.Lock()
	holder.released = true
	h.mu.Unlock()
	if !holder.life.ended.Load() {
		holder.lease.Release()
	}
}

// answered records a decision. It calls take if the decision is a grant. take stores the grant, and reports whether it
// is a slot.
func (h *holders) answered(l *life, holder *holder, d *dataplane.ConcurrencyDecision, take func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.world.record.note("%v  %s of s%d: %t, %d held, lasts %v (%v, %v)", l, holder.name, holder.key, d.Allowed, d.Held,
		d.TTL, d.Source, d.Err)
	if d.Err != nil && !l.node.isBusy(d.Err) {
		h.world.record.violate("error", "%v gives no lease of s%d: %v", l, holder.key, d.Err)
	}
	if l.ended.Load() {
		holder.released = holder.life != nil
		return // its caller gets no answer
	}
	if holder.waits {
		h.turns(l, holder)
	}
	if !d.Allowed || !take() {
		return
	}
	holder.granted = time.Now()
	h.count(holder.region, holder.key)
}

// turns checks that a node serves its waiting callers in their order. The mutex is held.
func (h *holders) turns(l *life, last *holder) {
	for _, other := range h.all {
		if other != last && other.waits && other.life == l && other.key == last.key && last.began.Before(other.began) &&
			!other.granted.IsZero() && other.granted.Before(time.Now()) {
			h.world.record.violate("turn", "%v serves %s before %s, which has waited for longer", l, other.name, last.name)
		}
	}
}

// holds reports whether a holder's lease has not ended, by the holder's own reckoning.
func (holder *holder) holds() bool {
	switch {
	case holder.granted.IsZero() || holder.released:
		return false
	case holder.life == nil:
		return time.Now().Before(holder.until)
	}
	return !holder.life.ended.Load() && holder.lease.Err() == nil
}

// count checks that no more holders have leases of a key than its limit. The mutex is held.
//
// An origin that has failed over may lack its last grants. A holder finds out with its next renewal, or its lease ends
// within its time to live.
func (h *holders) count(r *region, key int) {
	slot, names := h.world.plan.Fleet.Slots[key], []string(nil)
	for _, holder := range h.all {
		if holder.region == r && holder.key == key && holder.holds() {
			names = append(names, holder.name)
		}
	}
	if int64(len(names)) > slot.Limit && time.Since(h.fails[r]) > slot.TTL {
		h.world.record.violate("slots", "%d hold leases of s%d in %s, at most %d may: %v", len(names), key, r.name,
			slot.Limit, names)
	}
}

// of returns the holder of an id. The mutex is held.
func (h *holders) of(s Step) *holder {
	for _, holder := range h.all {
		if holder.name == s.Name() {
			return holder
		}
	}
	holder := &holder{name: s.Name(), region: h.world.regions[s.Region], key: s.Key, heard: true}
	h.all = append(h.all, holder)
	return holder
}

// byID requests a lease by id, unless the lease has been released.
func (h *holders) byID(l *life, s Step) {
	h.mu.Lock()
	holder, began := h.of(s), time.Now()
	holder.asked = began
	released := holder.released
	h.mu.Unlock()
	if released {
		return
	}
	ctx, leave := patience(s.Delay)
	defer leave()
	token, d := l.Limiter.AcquireToken(ctx, h.request(s.Key, holder.name), holder.name, s.Delay > 0)
	h.hears(l, holder, began)
	h.answered(l, holder, &d, func() bool {
		if token == "" {
			return false
		}
		holder.token, holder.until = token, latest(holder.until, began.Add(d.TTL))
		return true
	})
}

// hears records whether all calls about a lease were answered.
func (h *holders) hears(l *life, holder *holder, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	holder.heard = holder.heard && l.answersSince(began)
	holder.asked = time.Now()
}

// renew renews the lease of a holder with an id.
func (h *holders) renew(l *life, s Step) {
	h.mu.Lock()
	holder, began := h.of(s), time.Now()
	holder.asked = began
	token := holder.token
	h.mu.Unlock()
	if token == "" {
		return
	}
	err := l.Limiter.RenewTokens(context.Background(), 0, token)[0]
	h.hears(l, holder, began)
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.ended.Load() {
		return
	}
	h.world.record.note("%v  %s renews its lease: %v", l, holder.name, err)
	switch {
	case err == nil && holder.holds(): // a lease that has ended by the holder's clock stays ended
		holder.until = latest(holder.until, began.Add(h.world.plan.Fleet.Slots[holder.key].TTL))
	case errors.Is(err, dataplane.ErrLeaseLost):
		if holder.holds() && holder.heard && !h.world.ledger.forgets(holder.region) {
			h.world.record.violate("slots", "%v says that %s has lost its lease, which lasts for another %v", l, holder.name,
				time.Until(holder.until))
		}
		holder.until = time.Now()
	}
}

// release releases the lease of a holder with an id.
func (h *holders) release(l *life, s Step) {
	h.mu.Lock()
	holder, began := h.of(s), time.Now()
	token := holder.token
	if token == "" {
		h.mu.Unlock()
		return
	}
	holder.asked, holder.released = began, true
	h.mu.Unlock()
	err := l.Limiter.ReleaseTokens(context.Background(), token)[0]
	h.hears(l, holder, began)
	h.world.record.note("%v  %s releases its lease: %v", l, holder.name, err)
}

// failedOver records when a region's origin has failed over.
func (h *holders) failedOver(r *region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails[r] = time.Now()
}

// Grants implements store.Granter.
func (o watchedOrigin) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	h := &o.world.holders
	h.mu.Lock()
	defer h.mu.Unlock()
	reply, err := o.FullOrigin.Grants(ctx, shard, call)
	for i := range reply.Answers {
		a := &reply.Answers[i]
		if call.Asks[i].Lease == "" && (a.Err == nil || errors.Is(a.Err, store.ErrRecovering)) {
			h.taken[slotOf{o.life, call.Asks[i].Key}] = taken{a.Held, time.Now()}
		}
	}
	return reply, err
}

// died checks that a dead life's leases become free in time.
func (h *holders) died(l *life) {
	for key := range h.world.plan.Fleet.Slots {
		h.world.steps.Go(func() {
			time.Sleep(h.world.plan.Fleet.Slots[key].TTL + freeWithin)
			h.free(l.node.region, key)
		})
	}
}

// free checks how many slots of a key an origin counts as taken. Slots may be taken by lives, unless they ended long
// ago, and by holders with an id, unless they made their last call long ago. A call that the network has delayed counts
// from its arrival.
func (h *holders) free(r *region, key int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slot := h.world.plan.Fleet.Slots[key]
	if time.Since(h.fails[r]) <= slot.TTL+freeWithin {
		return
	}
	name, most := store.SlotsKey(workspace, slotsNamespace, slot.Name), int64(0)
	for of, is := range h.taken {
		if of.life.node.region == r && of.key == name &&
			(!of.life.ended.Load() || time.Since(is.heard) < slot.TTL+freeWithin) {
			most += is.slots
		}
	}
	for _, holder := range h.all {
		if holder.region != r || holder.key != key || holder.life != nil || holder.asked.IsZero() {
			continue
		}
		lasts := slot.TTL + freeWithin
		if !holder.heard {
			lasts += 4 * time.Second
		}
		if time.Since(holder.asked) < lasts {
			most++
		}
	}
	origin := r.client()
	reply, err := origin.Grants(context.Background(), origin.ShardOf(&name), store.GrantCall{
		Node: probeNode, Number: time.Now().UnixNano() >> 10,
		Asks: []store.GrantAsk{{Key: name, Limit: slot.Limit, TTL: time.Millisecond}},
	})
	if err != nil || reply.Answers[0].Err != nil {
		h.world.record.violate("error", "probe s%d: %v, %+v", key, err, reply)
		return
	}
	if others := reply.Answers[0].Others; others > most {
		h.world.record.violate("free", "%s has %d slots of s%d taken, and %d may be", r.name, others, key, most)
	}
}

// probeNode is no life's.
const probeNode = 1

// rest releases all leases or waits for their end, and then acquires all leases of each limit at a single node.
func (h *holders) rest() {
	slots := h.world.plan.Fleet.Slots
	if len(slots) == 0 {
		return
	}
	longest := time.Duration(0)
	for _, s := range slots {
		longest = max(longest, s.TTL)
	}
	for _, holder := range slices.Clone(h.all) {
		if holder.life != nil {
			h.leave(holder)
		}
	}
	time.Sleep(longest + freeWithin)
	for _, r := range h.world.regions {
		for key := range slots {
			h.free(r, key)
			h.whole(r.nodes[0].life.Load(), key)
		}
	}
}

// whole acquires all leases of a key, and releases them.
func (h *holders) whole(l *life, key int) {
	var all sync.WaitGroup
	slot := h.world.plan.Fleet.Slots[key]
	got := make([]*holder, slot.Limit)
	for i := range got {
		got[i] = &holder{name: fmt.Sprint("rest ", i), region: l.node.region, key: key, life: l}
		h.add(got[i])
		all.Go(func() {
			ctx, leave := context.WithTimeout(context.Background(), slot.TTL+freeWithin)
			defer leave()
			lease, d := l.Limiter.AcquireWait(ctx, h.request(key, got[i].name))
			h.answered(l, got[i], &d, func() bool { got[i].lease = lease; return lease != (dataplane.Lease{}) })
		})
	}
	all.Wait()
	for _, holder := range got {
		if holder.granted.IsZero() {
			h.world.record.violate("rest", "%v gets no lease of s%d within %v, and nothing holds it", l, key,
				slot.TTL+freeWithin)
		}
		h.leave(holder)
	}
}
