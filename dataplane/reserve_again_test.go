package dataplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// "Repeated calls change nothing": a request that is made again when the window has turned has one hold, in the window
// that it was made in, and is granted also where the new window is full.
func TestAReservationAskedForAgainInALaterWindowIsHeldOnce(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		one := reserveFor("one", time.Hour, ask("k", 60, 100))
		first := wantReserved(t, a, one, true)
		time.Sleep(2 * time.Minute)
		if again := wantReserved(t, b, one, true); again.EndsAt != first.EndsAt {
			t.Errorf("%v, then %v", first.EndsAt, again.EndsAt)
		}
		wantReserved(t, a, reserveFor("all", time.Hour, ask("k", 100, 100)), true)
		again := wantReserved(t, b, one, true)
		if d := again.Decisions[0]; !d.Allowed || d.RetryAfter != 0 {
			t.Errorf("%+v", d)
		}
		time.Sleep(2 * time.Minute)
		wantReserved(t, a, reserveFor("next", time.Hour, ask("k", 100, 100)), true)
	})
}

// "A reservation is settled once": also when its origin has forgotten that the hold has ended.
func TestASettlementRepeatedAfterMinutesCountsOnce(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		hourly := func(cost int64) dataplane.Request {
			r := ask("k", cost, 100)
			r.Duration = time.Hour
			return r
		}
		wantReserved(t, a, reserveFor("one", 0, hourly(60)), true)
		s, err := a.Settle(t.Context(), "one", 40)
		wantSettled(t, "settled", s, err, true, false, 40)
		time.Sleep(2 * store.HoldKeptFor)
		s, err = b.Settle(t.Context(), "one", 40)
		wantSettled(t, "again", s, err, true, true, 40)
		wantReserved(t, a, reserveFor("more", 0, hourly(61)), false)
		wantReserved(t, b, reserveFor("left", 0, hourly(60)), true)
	})
}

// slowNotes is an origin that takes a moment to store a note.
type slowNotes struct{ store.FullOrigin }

func (o slowNotes) Note(ctx context.Context, note store.Note) (store.Note, bool, error) {
	if note.Version > 1 {
		time.Sleep(20 * time.Millisecond)
	}
	return o.FullOrigin.Note(ctx, note)
}

// What is said to be spent counts if the call is not late, also if the reservation ends while it is under way.
func TestWhatIsSpentAsAReservationEndsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: slowNotes{origin.Client()}})
		if err != nil {
			t.Fatal(err)
		}
		defer stopAll([]*dataplane.Limiter{l})
		wantReserved(t, l, reserveFor("one", time.Second, ask("k", 60, 100)), true)
		time.Sleep(990 * time.Millisecond)
		s, err := l.Spend(t.Context(), "one", 50)
		wantSettled(t, "at the end", s, err, false, false, 50)
		time.Sleep(time.Second)
		wantReserved(t, l, reserveFor("more", 0, ask("k", 51, 100)), false)
		wantReserved(t, l, reserveFor("left", 0, ask("k", 50, 100)), true)
	})
}
