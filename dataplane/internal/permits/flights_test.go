package permits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// region is an origin whose calls about new reservations go through make, if it is set.
type region struct {
	Origin
	make func(ctx context.Context, do func() (store.HoldReply, error)) (store.HoldReply, error)

	withdrawn atomic.Int64 // reservations of which the caller does not see whether they were stored
}

func (o *region) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	do := func() (store.HoldReply, error) { return o.Origin.Hold(ctx, call) }
	if call.Record != nil && call.Record.Withdraw {
		o.withdrawn.Add(1)
	}
	if o.make != nil && call.Record != nil && call.Record.Text != "" && !call.Record.Withdraw {
		return o.make(ctx, do)
	}
	return do()
}

func newRegion() *region {
	return &region{Origin: memstore.NewOrigin(memstore.OriginOptions{})}
}

var errDown = errors.New("down")

// inRegion returns how many reservations that are open the region has stored for a node.
func inRegion(p *Permits) int { return p.Reservations.region.Len() }

func inProcess(p *Permits) int { return p.Reservations.own.Len() }

// The region's origin answers again while this process decides about a request of the outage: the request, and the
// requests that were made meanwhile, have one reservation.
func TestARequestOfAnOutageHasTheReservationThatTheRegionHasMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin, from := newRegion(), time.Now()
		p, _, _ := beside(t, origin)
		origin.make = func(_ context.Context, do func() (store.HoldReply, error)) (store.HoldReply, error) {
			if time.Since(from) < 5*time.Millisecond {
				return store.HoldReply{}, errDown
			}
			return do()
		}
		var callers sync.WaitGroup
		for i, left := range []int64{0, 10, 10} { // this process refuses the first request
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				by := newLimit(left)
				by.cost, by.takes = 7, 100*time.Millisecond
				got, err := p.Reservations.Reserve(t.Context(), askFor("a", 7, time.Minute), by)
				if err != nil || got.Allowed != (left > 0) {
					t.Errorf("request %d: %+v, %v", i, got, err)
				}
			})
		}
		callers.Wait()
		if there, here := inRegion(p), inProcess(p); there+here != 1 {
			t.Errorf("%d in the region, and %d in this process", there, here)
		}
	})
}

// "No decision waits longer than ReadTimeout": nor does a request behind many others with its ID, which get no answer.
// A request whose time is over at its turn sends nothing, so there is nothing to withdraw.
func TestARequestBehindOthersWithItsIDWaitsNoLongerThanReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := newRegion()
		p, _, _ := beside(t, origin)
		origin.make = func(ctx context.Context, _ func() (store.HoldReply, error)) (store.HoldReply, error) {
			<-ctx.Done()
			return store.HoldReply{}, ctx.Err()
		}
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				by, began := newLimit(0), time.Now()
				by.cost = 7
				got, err := p.Reservations.Reserve(t.Context(), askFor("a", 7, time.Minute), by)
				if took := time.Since(began); took > readTimeout || err != nil || got.Allowed || !got.Out || by.grants != 1 {
					t.Errorf("request %d: %+v, %v, after %v and %d grants", i, got, err, took, by.grants)
				}
			})
		}
		callers.Wait()
		if err := p.Reservations.Send(t.Context()); err != nil || origin.withdrawn.Load() != 1 {
			t.Errorf("%v, and %d withdrawn", err, origin.withdrawn.Load())
		}
	})
}

// late is a judge whose answer comes after all waiting requests have timed out.
type late struct{ *limit }

func (l late) Answer(*held.Record, []store.HoldAnswer, bool) (bool, error) {
	time.Sleep(2 * readTimeout)
	return false, errDown
}

// The time of a request is over before its turn, and the origin has answered the request before it: that is no outage,
// so the outage policy decides nothing.
func TestARequestWithoutATurnInTimeIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := beside(t, newRegion())
		first := late{newLimit(10)}
		go func() {
			if _, err := p.Reservations.Reserve(t.Context(), askFor("a", 7, time.Minute), first); !errors.Is(err, errDown) {
				t.Error(err)
			}
		}()
		synctest.Wait()
		by := newLimit(10)
		if got, err := p.Reservations.Reserve(t.Context(), askFor("a", 7, time.Minute), by); !errors.Is(err, outbox.ErrBusy) ||
			by.grants != 0 {
			t.Errorf("%+v, %v, after %d grants", got, err, by.grants)
		}
		if n := p.Reservations.full[boundHeldCalls].Load(); n != 1 {
			t.Errorf("%d calls had no turn in time", n)
		}
	})
}

// Requests with the same ID wait for each other, and requests with other IDs do not wait for them.
func TestRequestsWithOtherIDsWaitForNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := newRegion()
		p, _, _ := beside(t, origin)
		origin.make = func(_ context.Context, do func() (store.HoldReply, error)) (store.HoldReply, error) {
			time.Sleep(100 * time.Millisecond)
			return do()
		}
		began := time.Now()
		var callers sync.WaitGroup
		for i := range 5 {
			callers.Go(func() {
				got, err := p.Reservations.Reserve(t.Context(), askFor(fmt.Sprint(i), 1, time.Minute), newLimit(0))
				if took := time.Since(began); !got.Allowed || err != nil || took > 100*time.Millisecond {
					t.Errorf("request %d: %+v, %v, after %v", i, got, err, took)
				}
			})
		}
		callers.Wait()
		if n := len(p.Reservations.flights.by); n != 0 {
			t.Errorf("%d requests are under way", n)
		}
	})
}
