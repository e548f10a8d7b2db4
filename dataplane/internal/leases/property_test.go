package leases_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
)

// At each moment the holders of leases of a key, by id or in a node's process, are at most its limit by their own
// reckoning, whatever happens between them and the origin. In the end no slot is lost for good.
func TestLeasesByIDStayWithinTheLimit(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 40
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
}

// history is a random history of three nodes and a single key.
type history struct {
	*testing.T
	rand   *rand.Rand
	limit  int64
	ttl    time.Duration
	origin *memstore.Origin
	nodes  []*leases.Book
	n      int
	calls  sync.WaitGroup

	mu   sync.Mutex
	held map[string]*holder   // by id
	here map[slots.Lease]bool // of nodes
}

// holder counts its lease as held until ttl after it has sent the last call with a positive answer.
type holder struct {
	lease leases.Lease
	until time.Time
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{T: t, rand: rand.New(rand.NewPCG(seed, 2)), held: make(map[string]*holder),
		here: make(map[slots.Lease]bool)}
	h.limit, h.ttl = 1+h.rand.Int64N(4), time.Duration(1+h.rand.IntN(3))*time.Second
	h.origin = memstore.NewOrigin(memstore.OriginOptions{Shards: 1 + h.rand.IntN(2)})
	for range 3 {
		b := book(t, h.origin)
		to := b.Origin.(way)
		to.tries, to.within = 2, 250*time.Millisecond
		b.Origin = to
		h.nodes = append(h.nodes, b)
	}
	return h
}

func (h *history) run() {
	for range 200 {
		h.step()
		time.Sleep(time.Duration(h.rand.IntN(120)) * time.Millisecond)
		if h.check(); h.Failed() {
			break
		}
	}
	for _, b := range h.nodes {
		faults := &b.Origin.(way).Faults
		faults.Fail(nil)
		faults.Delay(0)
		faults.LoseReplies(false)
	}
	h.calls.Wait()
	for l := range h.here {
		l.Release()
	}
	time.Sleep(h.ttl + time.Second)
	for i := range h.limit {
		ctx, cancel := context.WithTimeout(h.Context(), 5*time.Second)
		a := h.ask()
		if r := h.nodes[i%3].Acquire(ctx, a, true); !r.Granted {
			h.Errorf("of %d slots %d are lost for good: %+v", h.limit, h.limit-i, r)
		}
		cancel()
	}
	if r := h.nodes[0].Acquire(h.Context(), h.ask(), false); r.Granted {
		h.Errorf("one more than the limit: %+v", r)
	}
}

func (h *history) ask() *leases.Ask {
	h.n++
	a := ask(fmt.Sprint(h.n), h.limit)
	a.TTL = h.ttl
	return a
}

func (h *history) step() {
	b := h.nodes[h.rand.IntN(3)]
	faults := &b.Origin.(way).Faults
	switch what := h.rand.IntN(40); {
	case what < 10:
		h.acquire(b, h.ask(), h.rand.IntN(3) == 0)
	case what < 20:
		h.renew(b)
	case what < 26:
		h.release(b)
	case what < 30:
		h.node(b)
	case what < 31:
		h.origin.Wipe()
	case what < 33:
		faults.LoseReplies(h.rand.IntN(2) == 0)
	case what < 35:
		faults.Delay(time.Duration(h.rand.IntN(900)) * time.Millisecond)
	case what < 36:
		faults.Fail(errors.New("away"))
	default:
		faults.Fail(nil)
		faults.Delay(0)
	}
}

func (h *history) acquire(b *leases.Book, a *leases.Ask, wait bool) {
	h.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if r := b.Acquire(ctx, a, wait); r.Granted {
			h.believe(a.Lease(), a.Sent)
		}
	})
}

func (h *history) believe(l leases.Lease, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := sent.Add(l.TTL); time.Now().Before(until) {
		h.held[l.ID] = &holder{l, until}
	}
}

// one returns any of the held leases. If the holder goes, its lease no longer counts as held.
func (h *history) one(goes bool) (is *holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, is := range h.held {
		if goes {
			delete(h.held, id)
		}
		return is
	}
	return nil
}

func (h *history) renew(b *leases.Book) {
	is := h.one(false)
	if is == nil {
		return
	}
	h.calls.Go(func() {
		sent := time.Now()
		err := b.Renew(context.Background(), []leases.Lease{is.lease}, 0)[0]
		h.mu.Lock()
		defer h.mu.Unlock()
		switch now := time.Now(); {
		case h.held[is.lease.ID] != is || now.After(is.until):
		case err == nil:
			is.until = sent.Add(is.lease.TTL)
		case errors.Is(err, slots.ErrLost):
			delete(h.held, is.lease.ID)
		}
	})
}

func (h *history) release(b *leases.Book) {
	if is := h.one(true); is != nil {
		h.calls.Go(func() { b.Release(context.Background(), []leases.Lease{is.lease}) })
	}
}

// node takes or releases a lease that the node renews.
func (h *history) node(b *leases.Book) {
	h.mu.Lock()
	for l := range h.here {
		delete(h.here, l)
		h.mu.Unlock()
		l.Release()
		return
	}
	h.mu.Unlock()
	h.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		a := slots.Ask{Name: ask("", 0).Name, Limit: h.limit, TTL: h.ttl}
		if r := b.Table.Try(ctx, &a); r.Granted {
			h.mu.Lock()
			h.here[r.Lease] = true
			h.mu.Unlock()
		}
	})
}

func (h *history) check() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var believed int64
	now := time.Now()
	for id, is := range h.held {
		if now.After(is.until) {
			delete(h.held, id)
			continue
		}
		believed++
	}
	for l := range h.here {
		if l.Err() == nil {
			believed++
		}
	}
	if believed > h.limit {
		h.Errorf("%d leases are held, the limit is %d", believed, h.limit)
	}
}
