package permits

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// limit is a judge that grants cost up to its own limit.
type limit struct {
	cost   int64
	left   atomic.Int64
	takes  time.Duration
	grants int
}

func newLimit(left int64) *limit {
	l := new(limit)
	l.left.Store(left)
	return l
}

func (l *limit) Grant(context.Context, bool) (charges []holds.Charge) {
	l.grants++
	time.Sleep(l.takes)
	if l.cost > l.left.Load() {
		return nil
	}
	l.left.Add(-l.cost)
	return []holds.Charge{&charge{l, l.cost}}
}

func (l *limit) Answer(_ *held.Record, answers []store.HoldAnswer, _ bool) (bool, error) {
	return answers[0].Fits, answers[0].Total.Err
}

func (l *limit) Refuse(*held.Record, time.Duration) { panic("there is no outage") }

type charge struct {
	of   *limit
	cost int64
}

func (c *charge) Set(cost int64) {
	c.of.left.Add(c.cost - cost)
	c.cost = cost
}

// askFor returns a request to reserve a cost of a key for some time.
func askFor(id string, cost int64, ttl time.Duration) *Ask {
	return &Ask{ID: id, TTL: ttl, Returned: true, Items: []Item{{Limit: 10, Cost: cost, Rule: new(rules.Rule),
		Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour}}}}
}

// wantReserved reserves, and wants a number of calls of Grant in all and a cost that is left.
func wantReserved(t *testing.T, p *Permits, ask *Ask, by *limit, allowed bool, grants int, left int64) {
	t.Helper()
	if cost := ask.Items[0].Cost; by.cost != cost {
		by.cost = cost
	}
	got, err := p.Reservations.Reserve(t.Context(), ask, by)
	if err != nil || got.Out || got.Allowed != allowed || by.grants != grants || by.left.Load() != left {
		t.Errorf("%s: %+v, %v, after %d grants with %d left; want allowed %v, %d and %d", ask.ID, got, err, by.grants,
			by.left.Load(), allowed, grants, left)
	}
}

func settled(spent int64) held.Change { return held.Change{Spent: []int64{spent}, Settled: true} }

// A refusal is not kept, so the same ID may try again. A reservation is granted once, and settled once.
func TestANodeWithoutAnOriginCountsAReservationOnce(t *testing.T) {
	p, _, calls := alone(t)
	by, ask := newLimit(3), askFor("a", 4, time.Minute)
	wantReserved(t, p, ask, by, false, 1, 3)
	by.left.Store(10)
	wantReserved(t, p, ask, by, true, 2, 6)
	wantReserved(t, p, ask, by, true, 2, 6)
	for _, late := range []bool{false, true} {
		r, isLate, err := p.Reservations.Change(t.Context(), "a", settled(3))
		if err != nil || isLate != late || !r.Settled || r.Items[0].Spent != 3 || by.left.Load() != 7 {
			t.Errorf("settling: %+v, late %v, %v, %d left", r, isLate, err, by.left.Load())
		}
	}
	if _, err := p.Reservations.Reserve(t.Context(), ask, by); !errors.Is(err, held.ErrOver) {
		t.Errorf("reserving again: %v", err)
	}
	calls.Stop()
	if _, err := p.Reservations.Reserve(t.Context(), ask, by); !errors.Is(err, outbox.ErrStopped) {
		t.Errorf("reserving on a stopped node: %v", err)
	}
	if _, _, err := p.Reservations.Change(t.Context(), "a", settled(3)); !errors.Is(err, outbox.ErrStopped) {
		t.Errorf("settling on a stopped node: %v", err)
	}
}

// A request waits for another request with the same ID, and gets its reservation.
func TestTwoRequestsForAReservationAtTheSameTimeHaveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := alone(t)
		by := newLimit(10)
		by.cost, by.takes = 7, time.Second
		go wantReserved(t, p, askFor("a", 7, time.Minute), by, true, 1, 3)
		time.Sleep(time.Millisecond)
		wantReserved(t, p, askFor("a", 7, time.Minute), by, true, 1, 3)
		synctest.Wait()
	})
}

// "Reserved.Err is … the context's": a request waits for another request with the same ID until its context ends.
func TestARequestWaitsForAnotherOneWithItsIDUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := alone(t)
		by := newLimit(10)
		by.cost, by.takes = 7, time.Second
		go wantReserved(t, p, askFor("a", 7, time.Minute), by, true, 1, 3)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		from := time.Now()
		got, err := p.Reservations.Reserve(ctx, askFor("a", 7, time.Minute), by)
		if took := time.Since(from); took != 10*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || got.Allowed {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
		time.Sleep(time.Second)
	})
}

// A reservation ends at its time without a call, and is forgotten a minute later.
func TestAReservationOfThisProcessEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := alone(t)
		by := newLimit(10)
		wantReserved(t, p, askFor("a", 4, 5*time.Second), by, true, 1, 6)
		wantReserved(t, p, askFor("b", 5, 3*time.Second), by, true, 2, 1)
		if _, _, err := p.Reservations.Change(t.Context(), "b", held.Change{TTL: 9 * time.Second}); err != nil {
			t.Fatal(err)
		}
		for at, left := range map[time.Duration]int64{4999 * time.Millisecond: 1, 5 * time.Second: 5,
			8999 * time.Millisecond: 5, 9 * time.Second: 10} {
			time.AfterFunc(at, func() {
				synctest.Wait()
				if by.left.Load() != left {
					t.Errorf("after %v %d are left, want %d", at, by.left.Load(), left)
				}
			})
		}
		time.Sleep(store.HoldKeptFor + 9*time.Second - time.Millisecond)
		if _, late, err := p.Reservations.Change(t.Context(), "b", settled(9)); !late || err != nil || by.left.Load() != 10 {
			t.Errorf("late %v, %v, %d left", late, err, by.left.Load())
		}
		time.Sleep(store.HoldKeptFor)
		if _, _, err := p.Reservations.Change(t.Context(), "b", settled(9)); !errors.Is(err, held.ErrNone) {
			t.Errorf("a minute later: %v", err)
		}
		if _, due := p.Reservations.local.group.NextMs(); due {
			t.Error("there are holds left")
		}
	})
}

// A grant that cannot be kept, because the key has too many holds, is given back.
func TestAGrantOfAKeyWithTooManyHoldsIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := alone(t)
		by := newLimit(store.HoldsMax + 5)
		for i := range store.HoldsMax {
			wantReserved(t, p, askFor(fmt.Sprint(i), 1, time.Minute), by, true, i+1, store.HoldsMax+4-int64(i))
		}
		if _, err := p.Reservations.Reserve(t.Context(), askFor("more", 1, time.Minute), by); !errors.Is(err, store.ErrHolds) ||
			by.left.Load() != 5 {
			t.Errorf("one more: %v, %d left", err, by.left.Load())
		}
	})
}

// Where there is no room, reservations that were settled less than a minute ago are forgotten with all that they take.
func TestSettledReservationsOfThisProcessMakeRoom(t *testing.T) {
	p, _, _ := alone(t)
	by := newLimit(10)
	wantReserved(t, p, askFor("settled", 4, time.Minute), by, true, 1, 6)
	wantReserved(t, p, askFor("open", 5, time.Minute), by, true, 2, 1)
	if _, _, err := p.Reservations.Change(t.Context(), "settled", settled(0)); err != nil {
		t.Fatal(err)
	}
	p.Reservations.local.trim()
	if p.Reservations.local.group.Knows("settled", 0) || !p.Reservations.local.group.Knows("open", 0) {
		t.Error("the settled reservation is known, or the open one is not")
	}
	if r, late, err := p.Reservations.Change(t.Context(), "open", settled(1)); late || err != nil || by.left.Load() != 9 {
		t.Errorf("%+v, late %v, %v, %d left", r, late, err, by.left.Load())
	}
}
