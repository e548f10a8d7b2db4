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

// Meter counts the cost of a stream. Its methods never wait for the origin, and are safe for concurrent use. A nil
// Meter counts nothing.
//
// Cost that is reported after End may be counted, or not.
type Meter struct {
	streams *Streams
	ask     dataplane.ReserveRequest // the first request
	ctx     context.Context          // of the calls
	ceiling []int64

	spent  []atomic.Int64 // in all
	taken  []atomic.Int64 // the part of spent that the goroutine has looked at
	wake   chan struct{}  // of one element
	end    sync.Once
	ended  chan struct{}
	ready  chan struct{} // closed when the meter has settled, or has given up
	result error         // written before ready is closed

	// The goroutine's own:

	id         string  // of the reservation now
	n          int64   // how many reservations have ended before
	open       bool    // it may be changed
	held, said []int64 // reserved by it; reported as its spent cost
	counted    []int64 // by reservations that have ended
	extendedAt time.Time
	saidAt     time.Time
	windowEnds time.Time // zero if unknown
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

// ID returns the ID of the stream's first reservation.
func (m *Meter) ID() string {
	if m == nil {
		return ""
	}
	return m.ask.ID
}

// Spent adds a cost to the spent cost of each request. A negative cost counts nothing.
func (m *Meter) Spent(cost int64) {
	if m == nil {
		return
	}
	for i := range m.spent {
		m.add(i, cost)
	}
}

// SpentOf adds a cost to the spent cost of a single request, by its place in the reservation. With a place that the
// reservation does not have it counts nothing.
func (m *Meter) SpentOf(request int, cost int64) {
	if m != nil && request >= 0 && request < len(m.spent) {
		m.add(request, cost)
	}
}

// InAll sets the total spent cost of each request, in place of the costs added before. Use it if costs are estimated
// while the stream goes on, and the exact cost is certain only at its end. For example, call Spent(1) for each piece of
// an answer, and InAll with the model's own figure. A total below the reported cost changes nothing.
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

// rouse wakes the goroutine if a part of the ceiling was spent since the goroutine last looked.
func (m *Meter) rouse(i int, spent int64) {
	if spent-m.taken[i].Load() < max(1, m.ceiling[i]/int64(m.streams.cfg.Parts)) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// End makes the meter settle, and returns at once. You can call it more than once.
func (m *Meter) End() {
	if m != nil {
		m.end.Do(func() { close(m.ended) })
	}
}

// Wait returns when the spent cost is counted, after End. The error is the reason why it is not, or ctx's.
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
