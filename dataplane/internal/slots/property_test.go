package slots_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// At each moment the leases of a key that holders must take for valid are at most its limit, whatever happens to nodes,
// to the origin and between them. When the faults end, no slot is lost for good.
func TestLeasesStayWithinTheLimit(t *testing.T) {
	runs := 600
	if testing.Short() {
		runs = 60
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
}

const historyNodes = 3

// history is a random history of three nodes and a key.
type history struct {
	*testing.T
	rand   *rand.Rand
	limit  int64
	ttl    time.Duration
	origin *memstore.Origin
	nodes  [historyNodes]*node
	paused [historyNodes]bool
	asking sync.WaitGroup
	log    []string

	mu    sync.Mutex
	held  [historyNodes]map[slots.Lease]bool // leases that were not released, of live nodes
	life  [historyNodes]int                  // how often a node was killed
	peaks int64
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{T: t, rand: rand.New(rand.NewPCG(seed, 1))}
	h.limit, h.ttl = 1+h.rand.Int64N(5), time.Duration(1+h.rand.IntN(3))*time.Second
	h.origin = memstore.NewOrigin(memstore.OriginOptions{Shards: 1 + h.rand.IntN(2)})
	for i := range h.nodes {
		h.nodes[i], h.held[i] = nodeOf(t, h.origin, historyNodes), make(map[slots.Lease]bool)
	}
	return h
}

func (h *history) run() {
	for range 150 {
		h.step()
		time.Sleep(time.Duration(h.rand.IntN(120)) * time.Millisecond)
		synctest.Wait()
		if h.check(); h.Failed() {
			break
		}
	}
	h.quiet()
	h.Logf("peak %d of %d, %+v", h.peaks, h.limit, h.nodes[0].Stats())
	for _, n := range h.nodes {
		if err := n.Stop(context.Background()); err != nil {
			h.Error(err)
		}
		n.kill()
	}
	if h.Failed() {
		h.Logf("limit %d, ttl %v: %v", h.limit, h.ttl, h.log)
	}
}

// step takes a random step.
func (h *history) step() {
	at := h.rand.IntN(historyNodes)
	n := h.nodes[at]
	what := h.rand.IntN(40)
	if h.paused[at] && what < 30 {
		return // a paused node does nothing
	}
	h.log = append(h.log, fmt.Sprintf("%v: %d on %d", time.Since(h.nodes[0].base), what, at))
	switch {
	case what < 10:
		h.ask(at, func() slots.Result { return n.try(h.limit, h.ttl) })
	case what < 16:
		within := time.Duration(h.rand.IntN(3000)) * time.Millisecond
		h.ask(at, func() slots.Result { return n.waitFor(within, h.limit, h.ttl) })
	case what < 28:
		h.release(at)
	case what < 29:
		h.kill(at)
	default:
		h.fault(at, what)
	}
}

func (h *history) fault(at, what int) {
	n := h.nodes[at]
	switch what {
	case 29:
		h.origin.Wipe()
	case 30, 31:
		n.way.Faults.LoseReplies(h.rand.IntN(2) == 0)
	case 32:
		n.way.Faults.Fail(nil)
		if h.rand.IntN(3) == 0 {
			n.way.Faults.Fail(fmt.Errorf("it is out"))
		}
	case 33:
		n.way.Faults.Delay(time.Duration(h.rand.IntN(400)) * time.Millisecond)
	case 34:
		n.way.Faults.Delay(0)
	case 35:
		n.way.HoldChunks()
	case 36, 37:
		n.way.DeliverChunks()
	case 38:
		h.again(n)
	case 39:
		if h.paused[at] = !h.paused[at]; h.paused[at] {
			n.pause()
		} else {
			n.resume()
		}
	}
}

// again repeats a recent call of the node.
func (h *history) again(n *node) {
	n.mu.Lock()
	calls := n.sent[max(0, len(n.sent)-5):]
	var call store.GrantCall
	if len(calls) > 0 {
		call = calls[h.rand.IntN(len(calls))]
	}
	n.mu.Unlock()
	if len(call.Asks) > 0 {
		_, _ = h.origin.Grants(context.Background(), h.origin.ShardOf(&call.Asks[0].Key), call)
	}
}

// ask runs an acquisition, and keeps its lease unless the node was killed meanwhile.
func (h *history) ask(at int, acquire func() slots.Result) {
	life := h.life[at]
	h.asking.Go(func() {
		r := acquire()
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.Granted && h.life[at] == life {
			h.held[at][r.Lease] = true
		}
	})
}

func (h *history) release(at int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.held[at] {
		delete(h.held[at], l)
		l.Release()
		l.Release() // does nothing
		return
	}
}

func (h *history) kill(at int) {
	h.mu.Lock()
	h.life[at]++
	clear(h.held[at])
	h.mu.Unlock()
	h.nodes[at].kill()
	h.nodes[at] = nodeOf(h, h.origin, historyNodes)
}

// check counts the leases that are still valid for their holders.
func (h *history) check() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var believed, errs int64
	for i := range h.held {
		if h.paused[i] {
			continue
		}
		for l := range h.held[i] {
			switch done := ended(l); {
			case !done:
				believed++
			case l.Err() == nil:
				h.Error("a lease is done, and has no error")
			}
			if l.Err() == nil {
				errs++
			}
		}
	}
	h.peaks = max(h.peaks, believed)
	if believed > h.limit || errs > h.limit {
		h.Errorf("%d leases are held, %d without an error, the limit is %d", believed, errs, h.limit)
	}
}

// quiet ends all faults, and checks that the whole limit is free.
func (h *history) quiet() {
	for i, n := range h.nodes {
		n.resume()
		h.paused[i] = false
		n.way.DeliverChunks()
		n.way.Faults.LoseReplies(false)
		n.way.Faults.Fail(nil)
		n.way.Faults.Delay(0)
	}
	h.asking.Wait()
	time.Sleep(slots.Margin)
	h.check()
	for i := range h.held {
		for len(h.held[i]) > 0 {
			h.release(i)
		}
	}
	time.Sleep(h.ttl + time.Second)
	for i := range h.limit {
		r := h.nodes[h.rand.IntN(historyNodes)].waitFor(5*time.Second, h.limit, h.ttl)
		if !r.Granted {
			h.Errorf("of %d slots %d are lost for good: %+v", h.limit, h.limit-i, r)
			return
		}
	}
	if r := h.nodes[0].try(h.limit, h.ttl); r.Granted || r.Out || r.Held != h.limit {
		h.Errorf("one more than the limit: %+v", r)
	}
}
