package leases_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
)

// waitsMax is how long a request waits at most while a slot is free: 2 s, which another node may keep the slot for its
// own callers, and half a second for slow answers and the pause between two calls.
const waitsMax = 2500 * time.Millisecond

// Two nodes grant leases of the same key, by ID and to holders in the process, to requests that wait and to requests
// that do not. In any history, at most the limit is held, and a free slot is granted to a request that waits within
// waitsMax. T + 1 s after the last holder has ended, another node grants the whole limit at once, even if both nodes
// were killed.
func TestAFreeSlotIsGrantedInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(1, 3).Draw(rt, "limit")
		ttl := time.Duration(rapid.IntRange(1, 2).Draw(rt, "ttl")) * time.Second
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 20, 80).Draw(rt, "steps")
		kills := rapid.Bool().Draw(rt, "both nodes are killed in the end")
		var failed error
		synctest.Test(t, func(t *testing.T) { failed = playTurns(t, limit, ttl, steps, kills) })
		if failed != nil {
			rt.Fatal(failed)
		}
	})
}

// step is an action at one of the nodes, the action's holder if it has one, and the pause after it.
type step struct {
	do           string
	node, holder int
	pause        time.Duration
}

func drawStep(rt *rapid.T) step {
	return step{
		do: rapid.SampledFrom([]string{"try", "try by ID", "wait", "wait by ID", "wait", "wait by ID", "again", "renew",
			"renew", "release", "release", "kill", "slow", "fast"}).Draw(rt, "do"),
		node: rapid.IntRange(0, 1).Draw(rt, "node"), holder: rapid.IntRange(0, 5).Draw(rt, "holder"),
		pause: time.Duration(rapid.SampledFrom([]int{0, 0, 10, 100, 400, 900}).Draw(rt, "ms")) * time.Millisecond,
	}
}

// turns is a history.
type turns struct {
	*testing.T
	limit  int64
	ttl    time.Duration
	origin *memstore.Origin
	nodes  [2]*turnsNode
	calls  sync.WaitGroup
	ids    int

	mu       sync.Mutex
	holders  []*turnsHolder
	lost     []time.Time // until when a slot may be taken without a holder, an entry for each slot
	waiting  map[int]time.Time
	waits    int
	released map[string]bool
	taken    time.Time // when all slots were taken last
	failed   error
}

type turnsNode struct {
	*leases.Book
	faults *memstore.Faults
	cancel func()
	dead   bool // under turns.mu
}

// turnsHolder has a lease of its node, or by ID until some time.
type turnsHolder struct {
	node  *turnsNode
	lease slots.Lease
	byID  leases.Lease
	until time.Time
}

func (h *turns) start() *turnsNode {
	n := &turnsNode{Book: &leases.Book{SteadyMs: func() int64 { return time.Now().UnixMilli() }}}
	client := h.origin.Client()
	n.faults, n.Origin = &client.Faults, way{client, 1, time.Hour}
	n.Table = slots.New(slots.Config{Ended: n.Ended, Origin: client, Nodes: func() int64 { return 2 }})
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.Table.Run(ctx, h.calls.Go)
	return n
}

func playTurns(t *testing.T, limit int64, ttl time.Duration, steps []step, kills bool) error {
	h := &turns{T: t, limit: limit, ttl: ttl, origin: memstore.NewOrigin(memstore.OriginOptions{}),
		waiting: make(map[int]time.Time), released: make(map[string]bool), taken: time.Now()}
	h.nodes = [2]*turnsNode{h.start(), h.start()}
	for _, s := range steps {
		h.do(s)
		if h.pass(s.pause); h.failed != nil {
			break
		}
	}
	h.end(kills)
	for _, n := range h.nodes {
		n.cancel()
	}
	h.calls.Wait()
	return h.failed
}

func (h *turns) do(s step) {
	n := h.nodes[s.node]
	switch s.do {
	case "try", "wait":
		h.acquire(n, "", s.do == "wait")
	case "try by ID", "wait by ID":
		h.ids++
		h.acquire(n, fmt.Sprint(h.ids), s.do == "wait by ID")
	case "again":
		if is := h.holder(s.holder); is != nil && is.byID.ID != "" {
			h.acquire(n, is.byID.ID, false)
		}
	case "renew":
		h.renew(n, h.holder(s.holder))
	case "release":
		h.release(n, h.holder(s.holder))
	case "kill":
		h.kill(s.node)
	case "slow":
		n.faults.Delay(100 * time.Millisecond)
	case "fast":
		n.faults.Delay(0)
	}
}

// pass lets time pass.
func (h *turns) pass(d time.Duration) {
	for ; d >= 0 && h.failed == nil; d -= 50 * time.Millisecond {
		synctest.Wait()
		h.check()
		time.Sleep(min(max(d, time.Millisecond), 50*time.Millisecond))
	}
}

func (h *turns) holder(i int) *turnsHolder {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holders) == 0 {
		return nil
	}
	return h.holders[i%len(h.holders)]
}

func (h *turns) acquire(n *turnsNode, id string, waits bool) {
	h.mu.Lock()
	h.waits++
	wait := h.waits
	if waits {
		h.waiting[wait] = time.Now()
	}
	h.mu.Unlock()
	h.calls.Go(func() {
		a := ask(id, h.limit)
		a.TTL, a.Drawn = h.ttl, false
		ctx, cancel := context.WithTimeout(fair.With(context.Background(), fmt.Sprint(wait%3)), 4*time.Second)
		defer cancel()
		var r slots.Result
		if id == "" {
			a.Unattended = false
			n.Table.Acquire(ctx, &a.Ask, waits, &r)
		} else {
			r = n.Acquire(ctx, a, waits)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting, wait)
		switch {
		case n.dead:
		case r.Granted && id == "":
			h.holders = append(h.holders, &turnsHolder{node: n, lease: r.Lease})
		case r.Granted && h.released[id]: // while it was acquired again
			h.lost = append(h.lost, time.Now().Add(h.ttl+time.Second))
		case r.Granted:
			h.hold(a.Lease(), a.Sent)
		case id != "" && ctx.Err() != nil: // its last call may have been granted the lease
			h.lost = append(h.lost, time.Now().Add(h.ttl+time.Second))
		}
	})
}

// hold records a lease by ID that was acquired or renewed by a call at some time.
func (h *turns) hold(l leases.Lease, sent time.Time) {
	i := slices.IndexFunc(h.holders, func(is *turnsHolder) bool { return is.byID.ID == l.ID })
	if i < 0 {
		i = len(h.holders)
		h.holders = append(h.holders, &turnsHolder{byID: l})
	}
	if until := sent.Add(h.ttl); until.After(h.holders[i].until) {
		h.holders[i].until = until
	}
}

func (h *turns) renew(n *turnsNode, is *turnsHolder) {
	if is == nil || is.byID.ID == "" {
		return
	}
	h.calls.Go(func() {
		sent := time.Now()
		err := n.Renew(context.Background(), []leases.Lease{is.byID}, 0)[0]
		h.mu.Lock()
		defer h.mu.Unlock()
		if slices.Contains(h.holders, is) && !n.dead {
			switch {
			case err == nil:
				h.hold(is.byID, sent)
			case errors.Is(err, slots.ErrLost) && sent.Before(is.until):
				h.failed = fmt.Errorf("a lease by ID that is held for %v is lost", time.Until(is.until))
			}
		}
	})
}

func (h *turns) release(n *turnsNode, is *turnsHolder) {
	if is == nil {
		return
	}
	h.mu.Lock()
	h.released[is.byID.ID] = true
	h.holders = slices.DeleteFunc(h.holders, func(o *turnsHolder) bool { return o == is })
	h.lost = append(h.lost, time.Now().Add(h.ttl+time.Second)) // until it is released
	lost := len(h.lost) - 1
	h.mu.Unlock()
	h.calls.Go(func() {
		if is.byID.ID == "" {
			is.lease.Release()
		} else {
			n.Release(context.Background(), []leases.Lease{is.byID})
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if is.byID.ID == "" || !n.dead {
			h.lost[lost] = time.Now()
		}
	})
}

// kill ends a node without a call, and starts another node in its place.
func (h *turns) kill(i int) {
	n := h.nodes[i]
	h.mu.Lock()
	n.dead = true
	h.holders = slices.DeleteFunc(h.holders, func(is *turnsHolder) bool { return is.node == n })
	for range h.limit { // it may have had all slots
		h.lost = append(h.lost, time.Now().Add(h.ttl+time.Second))
	}
	h.mu.Unlock()
	n.faults.Fail(errors.New("the node is dead"))
	n.Table.End()
	n.cancel()
	h.nodes[i] = h.start()
}

// check counts the held leases, and checks the requests that wait.
func (h *turns) check() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var held, taken int64
	h.holders = slices.DeleteFunc(h.holders, func(is *turnsHolder) bool {
		return is.byID.ID == "" && is.lease.Err() != nil || is.byID.ID != "" && now.After(is.until.Add(slots.Margin))
	})
	for _, is := range h.holders {
		if is.byID.ID == "" || !now.After(is.until) {
			held++
		}
	}
	taken = int64(len(h.holders))
	for _, until := range h.lost {
		if now.Before(until) {
			taken++
		}
	}
	if taken >= h.limit {
		h.taken = now
	}
	if held > h.limit {
		h.failed = fmt.Errorf("%d leases are held, the limit is %d", held, h.limit)
	}
	for _, since := range h.waiting {
		if free := min(now.Sub(h.taken), now.Sub(since)); free > waitsMax {
			h.failed = fmt.Errorf("a request waits, and %d of %d are taken for %v", taken, h.limit, free)
		}
	}
}

// end ends all holders, and checks that another node gets the whole limit T + 1 s later.
func (h *turns) end(kills bool) {
	for _, n := range h.nodes {
		n.faults.Delay(0)
	}
	h.pass(5 * time.Second) // none waits any more
	for i := range h.nodes {
		if kills {
			h.kill(i)
		}
	}
	for is := h.holder(0); is != nil; is = h.holder(0) {
		h.release(h.nodes[0], is)
	}
	h.pass(h.ttl + time.Second)
	last := h.start()
	defer last.cancel()
	for i := range h.limit + 1 {
		a := ask(fmt.Sprint("last", i), h.limit)
		r := last.Acquire(context.Background(), a, false)
		if r.Granted != (i < h.limit) && h.failed == nil {
			h.failed = fmt.Errorf("request %d of a node that finds %d free: %+v", i, h.limit, r)
		}
	}
}
