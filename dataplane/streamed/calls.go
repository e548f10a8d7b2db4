package streamed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Calls of a meter's goroutine. If a call returns an error, it must be made again.

// step reports the spent cost and extends the reservation, or makes another in its place, as far as either is due. A
// call that fails stays due.
func (m *Meter) step() {
	m.saidAt = time.Now()
	m.look() // a failed call is not due before the next share, or tick
	for range 2 {
		if !m.open && m.again(false) != nil {
			return
		}
		switch costs := m.look(); {
		case m.windowOver():
			if m.roll(costs) != nil {
				return
			}
		case m.unsaid(costs):
			_, _ = m.say(costs, m.streams.cfg.Reservations.Spend)
		}
		if m.open && time.Since(m.extendedAt) >= m.ask.TTL/2 {
			m.extend()
		}
		if m.open {
			return
		}
	}
}

// unsaid reports whether costs exceed the reported costs.
func (m *Meter) unsaid(costs []int64) bool {
	for i := range costs {
		if costs[i] > m.said[i] {
			return true
		}
	}
	return false
}

// look returns the cost spent so far that no ended reservation counts.
func (m *Meter) look() []int64 {
	costs := make([]int64, len(m.spent))
	for i := range m.spent {
		spent := m.spent[i].Load()
		m.taken[i].Store(spent)
		costs[i] = max(0, spent-m.counted[i])
	}
	return costs
}

// say reports the cost spent of the reservation. If the report came too late, the reservation is not open afterwards.
func (m *Meter) say(costs []int64,
	by func(context.Context, string, ...int64) (dataplane.Settlement, error)) (done bool, err error) {
	s, err := m.call(func(ctx context.Context) (dataplane.Settlement, error) { return by(ctx, m.id, costs...) })
	if err != nil {
		return false, err
	}
	if m.open {
		m.said = costs
	}
	return m.open && s.Settled, nil
}

// windowOver reports whether the first of the reservation's windows has ended. Later cost belongs to the next window.
func (m *Meter) windowOver() bool {
	return !m.windowEnds.IsZero() && !time.Now().Before(m.windowEnds)
}

// setWindow records the end of the first of the windows in which the reservation was made, by the origin's clock.
func (m *Meter) setWindow(decisions []dataplane.Decision) {
	m.windowEnds = time.Time{}
	var shortest time.Duration
	for i := range decisions {
		d := &decisions[i]
		if ends := d.ResetAt.Add(gapMin); !d.ResetAt.IsZero() && (m.windowEnds.IsZero() || ends.Before(m.windowEnds)) {
			m.windowEnds, shortest = ends, d.Duration
		}
	}
	if now := time.Now(); !m.windowEnds.IsZero() && !m.windowEnds.After(now) { // the origin's clock is late
		m.windowEnds = now.Add(max(shortest, m.streams.cfg.Every))
	}
}

// next returns the time until the next step is due. Cost may make it due earlier.
func (m *Meter) next() time.Duration {
	if left := time.Until(m.windowEnds); m.open && left > 0 {
		return min(m.tick, left)
	}
	return m.tick
}

// roll settles the reservation, so that another can take its place.
func (m *Meter) roll(costs []int64) error {
	s, err := m.call(func(ctx context.Context) (dataplane.Settlement, error) {
		return m.streams.cfg.Reservations.Settle(ctx, m.id, costs...)
	})
	if err == nil && m.open && len(s.Spent) == len(costs) {
		m.over(s.Spent, true)
	}
	return err
}

func (m *Meter) extend() {
	began := time.Now()
	_, err := m.call(func(ctx context.Context) (dataplane.Settlement, error) {
		return m.streams.cfg.Reservations.Extend(ctx, m.id, m.ask.TTL)
	})
	if err == nil {
		m.extendedAt = began
	}
}

// call makes a call about the reservation, and records if the reservation has ended.
func (m *Meter) call(do func(context.Context) (dataplane.Settlement, error)) (dataplane.Settlement, error) {
	ctx, cancel := context.WithTimeout(m.ctx, callMax)
	defer cancel()
	s, err := do(ctx)
	switch {
	case errors.Is(err, dataplane.ErrNoReservation):
		m.over(m.said, false)
		return s, nil
	case err != nil:
		return s, err
	case s.Late && len(s.Spent) == len(m.said):
		m.over(s.Spent, s.Settled)
	case s.Late:
		m.over(m.said, s.Settled)
	}
	return s, nil
}

// over records that the reservation has ended, and the cost that it counts.
func (m *Meter) over(spent []int64, settled bool) {
	m.open, m.said = false, make([]int64, len(m.said))
	m.n++
	for i := range m.counted {
		counts := spent[i]
		if !settled && !m.ask.Returned {
			counts = max(counts, m.held[i])
		}
		m.counted[i] += counts
	}
}

// again reserves the rest of the ceiling. If there is no room for that, or if last is set, it reserves nothing, so that
// spent cost is counted there past the limit.
func (m *Meter) again(last bool) error {
	rest, left := make([]int64, len(m.ceiling)), false
	for i := range rest {
		if rest[i] = max(0, m.ceiling[i]-m.counted[i]); last {
			rest[i] = 0
		}
		left = left || rest[i] > 0
	}
	ok, err := m.reserve(rest, 0)
	if err == nil && !ok && left {
		clear(rest)
	}
	if err == nil && !ok {
		ok, err = m.reserve(rest, window.LimitMax)
	}
	if err == nil && !ok {
		err = errFull
	}
	return err
}

// errFull is the error of a key that accepts no more cost, because a later override has set its limit below its count.
var errFull = errors.New("streamed: the key is past its limit, and counts nothing more now")

// errEnds is the error of a stream whose reservations are ended by others as soon as they are made, so that it cannot
// settle.
var errEnds = errors.New("streamed: its reservations end again and again")

// reserve reserves costs in the next reservation, within limits of at least limit.
func (m *Meter) reserve(costs []int64, limit int64) (bool, error) {
	r := m.ask
	r.ID += "~" + strconv.FormatInt(m.n, 36)
	r.Requests = slices.Clone(r.Requests)
	for i := range r.Requests {
		q := &r.Requests[i]
		q.Limit, q.Cost, q.ZeroCost = max(q.Limit, limit), costs[i], costs[i] == 0
	}
	ctx, cancel := context.WithTimeout(m.ctx, callMax)
	defer cancel()
	began := time.Now()
	got := m.streams.cfg.Reservations.Reserve(ctx, r)
	if errors.Is(got.Err, dataplane.ErrReservationOver) { // the reply was lost: the next call returns the counted cost
		got.Allowed, got.Err = true, nil
	} else if errors.Is(got.Err, dataplane.ErrReservationUsed) {
		m.n++ // by another stream of the same ID
	}
	if got.Err != nil || !got.Allowed {
		return false, got.Err
	}
	m.id, m.open, m.held, m.said, m.extendedAt = r.ID, true, slices.Clone(costs), make([]int64, len(costs)), began
	m.setWindow(got.Decisions)
	return true, nil
}

// finish settles, and tries until Config.Within has passed.
func (m *Meter) finish() (err error) {
	until := time.NewTimer(m.streams.cfg.Within)
	defer until.Stop()
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		var done bool
		if done, err = m.settle(); done {
			return nil
		}
		if err == nil && wait == retryMin {
			continue // it had ended: try again at once
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
			continue
		case <-until.C:
		case <-m.streams.stop:
			err = errors.Join(ErrStopped, err)
		}
		pause.Stop()
		return m.giveUp(err)
	}
}

// settle settles once. If it returns no error and done is false, call it again.
func (m *Meter) settle() (done bool, err error) {
	costs := m.look()
	if !m.open {
		if !m.unsaid(costs) {
			return true, nil
		}
		if err := m.again(true); err != nil {
			return false, err
		}
	}
	return m.say(costs, m.streams.cfg.Reservations.Settle)
}

// giveUp passes spent cost that may not be counted to Uncounted.
func (m *Meter) giveUp(err error) error {
	costs := m.look()
	some := m.unsaid(costs)
	for i := range costs {
		costs[i] = max(0, costs[i]-m.said[i])
	}
	err = fmt.Errorf("streamed: %q is not settled: %w", m.ask.ID, cmp.Or(err, errEnds))
	if tell := m.streams.cfg.Uncounted; tell != nil && some {
		tell(m.ask.ID, costs, err)
	}
	return err
}
