package streamed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Meter counts what one stream spends. Its methods never wait for the origin, and may be called at the same time; a nil
// Meter counts nothing.
//
// What is spent after End may be counted, or not.
type Meter struct {
	streams *Streams
	ask     dataplane.ReserveRequest // as it was made first
	ctx     context.Context          // of the calls
	ceiling []int64

	spent  []atomic.Int64 // in all
	taken  []atomic.Int64 // of it, what the goroutine has looked at
	wake   chan struct{}  // of one
	end    sync.Once
	ended  chan struct{}
	ready  chan struct{} // closed when it is settled, or has given up
	result error         // written before ready is closed

	// The goroutine's own:

	id         string  // of the reservation now
	n          int64   // how many have ended before
	open       bool    // it may be changed
	held, said []int64 // reserved by it; said to be spent of it
	counted    []int64 // by reservations that have ended
	extendedAt time.Time
	saidAt     time.Time
	windowEnds time.Time // zero: it is not known
	tick       time.Duration
}

func newMeter(ctx context.Context, s *Streams, r dataplane.ReserveRequest, decisions []dataplane.Decision) *Meter {
	n := len(r.Requests)
	r.Requests = slices.Clone(r.Requests)
	m := &Meter{streams: s, ask: r, ctx: context.WithoutCancel(ctx), ceiling: make([]int64, n),
		spent: make([]atomic.Int64, n), taken: make([]atomic.Int64, n), wake: make(chan struct{}, 1),
		ended: make(chan struct{}), ready: make(chan struct{}),
		id: r.ID, open: true, said: make([]int64, n), counted: make([]int64, n),
		extendedAt: time.Now(), saidAt: time.Now(), tick: min(s.cfg.Every, r.TTL/4)}
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Cost == 0 && !q.ZeroCost {
			m.ceiling[i] = 1
		} else {
			m.ceiling[i] = q.Cost
		}
	}
	m.held = m.ceiling
	m.setWindow(decisions)
	return m
}

// ID is the reservation's, as it was made first.
func (m *Meter) ID() string {
	if m == nil {
		return ""
	}
	return m.ask.ID
}

// Spent adds a cost to what was spent of each request. One below 0 counts nothing.
func (m *Meter) Spent(cost int64) {
	if m == nil {
		return
	}
	for i := range m.spent {
		m.add(i, cost)
	}
}

// SpentOf adds a cost to what was spent of one request, by its place in the reservation. A place that the reservation
// does not have counts nothing.
func (m *Meter) SpentOf(request int, cost int64) {
	if m != nil && request >= 0 && request < len(m.spent) {
		m.add(request, cost)
	}
}

// InAll says what was spent of each request in all, in place of what was added before: where costs are estimated as
// they come, and the truth comes last. Less than others were told already changes nothing.
func (m *Meter) InAll(cost int64) {
	if m == nil {
		return
	}
	cost = min(max(cost, 0), window.LimitMax)
	for i := range m.spent {
		m.spent[i].Store(cost)
		m.rouse(i, cost)
	}
}

func (m *Meter) add(i int, cost int64) {
	cost = min(max(cost, 0), window.LimitMax)
	for {
		was := m.spent[i].Load()
		is := min(was+cost, window.LimitMax)
		if m.spent[i].CompareAndSwap(was, is) {
			m.rouse(i, is)
			return
		}
	}
}

// rouse wakes the goroutine if a share of the ceiling was spent since it has looked.
func (m *Meter) rouse(i int, spent int64) {
	if spent-m.taken[i].Load() < max(1, m.ceiling[i]/int64(m.streams.cfg.Parts)) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// End has the meter settle, and returns at once. It may be called more than once.
func (m *Meter) End() {
	if m != nil {
		m.end.Do(func() { close(m.ended) })
	}
}

// Wait returns when what was spent is counted, after End; the error says why it is not, or is ctx's.
func (m *Meter) Wait(ctx context.Context) error {
	if m == nil {
		return nil
	}
	select {
	case <-m.ready:
		return m.result
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the calls, from Begin until the reservation is settled.
func (m *Meter) run() {
	defer m.streams.leave()
	defer close(m.ready)
	timer := time.NewTimer(m.next())
	defer timer.Stop()
	for {
		select {
		case <-m.ended:
			m.result = m.finish()
			return
		case <-m.streams.stop:
			m.result = m.giveUp(ErrStopped)
			return
		case <-m.wake:
			if wait := gapMin - time.Since(m.saidAt); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		}
		m.step()
		timer.Reset(m.next())
	}
}
