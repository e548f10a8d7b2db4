package held

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// toShard is the type of Reservations.Call.
type toShard = func(ctx context.Context, shard int, what What, items int,
	call func(context.Context) (store.Reply, error)) error

// If a caller's time ends before its call began, the node is busy. That is no outage, unless the origin answers no
// call. A call that hangs has no answer, and a caller that has left gets its own error. It is the same for a node's
// first call to a group, which only learns the epoch. But then there is no reservation to withdraw.
func TestWhyThereIsNoAnswer(t *testing.T) {
	waits := func(ctx context.Context, _ int, _ What, _ int, _ func(context.Context) (store.Reply, error)) error {
		<-ctx.Done()
		return isBusy(ctx.Err())
	}
	unanswered := func(ctx context.Context, _ int, _ What, _ int, _ func(context.Context) (store.Reply, error)) error {
		<-ctx.Done()
		return ctx.Err()
	}
	hangs := func(ctx context.Context, _ int, _ What, _ int, call func(context.Context) (store.Reply, error)) error {
		_, err := call(context.WithoutCancel(ctx))
		return err
	}
	for i := range 20 {
		knows := i%2 == 1
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			origin.Faults.Delay(time.Minute)
			want := func(what string, call toShard, left, isAway bool, is error) {
				t.Helper()
				n := nodeOf(origin)
				n.Call = call
				if what == "nobody is answered" {
					n.NotBegun = func(int) func(error) error { return func(err error) error { return err } }
				}
				if what == "stopped" {
					n.Go = func(func()) bool { return false }
				}
				withdrawn := 0
				if knows {
					n.book.answered(0, &window.Key{}, &store.HoldReply{Epoch: 1}, n.NowMs())
					withdrawn = 1
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if left {
					time.AfterFunc(time.Millisecond, cancel)
				}
				_, _, err := n.tries(ctx, what, recordOf(both...))
				if !errors.Is(err, is) || errors.As(err, new(Away)) != isAway {
					t.Errorf("reserve, %s: %v", what, err)
				}
				if len(n.book.pending) != withdrawn {
					t.Errorf("reserve, %s: %d are withdrawn, want %d", what, len(n.book.pending), withdrawn)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if left {
					time.AfterFunc(time.Millisecond, cancel)
				}
				_, _, err = n.Change(ctx, what, Change{Settled: true})
				if !errors.Is(err, is) || errors.As(err, new(Away)) != isAway {
					t.Errorf("settle, %s: %v", what, err)
				}
			}
			want("busy", waits, false, false, errBusy)
			want("nobody is answered", unanswered, false, true, context.DeadlineExceeded)
			want("away", hangs, false, true, context.DeadlineExceeded)
			want("left while it waits", waits, true, true, context.Canceled)
			want("left in the midst", hangs, true, true, context.Canceled)
			want("stopped", hangs, false, true, errStopped)
			time.Sleep(2 * time.Minute)
		})
	}
}

// Holds that a group has granted are taken back if another group refused the rest of the reservation.
func TestARefusalInAnotherGroupLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		free, full := keyIn(origin, 0), keyIn(origin, 1)
		n.reserves(t, "all", keyCost{full, 1000})
		ok, asked, err := n.tries(t.Context(), "one", recordOf(keyCost{free, 50}, keyCost{full, 1}))
		if ok || !asked || err != nil {
			t.Fatal(ok, asked, err)
		}
		wantCounts(t, origin, free, 0, 0)
		wantCounts(t, origin, full, 1000, 1000)
		if got := stored(t, origin, "one"); got.Text != "" {
			t.Errorf("%+v", got)
		}
		n.changes(t, "all", Change{Settled: true})
		n.reserves(t, "two", keyCost{free, 50}, keyCost{full, 1})
		wantCounts(t, origin, free, 50, 50)
		wantCounts(t, origin, full, 1, 1000)
	})
}

// Holds that a group has granted are taken back in the next turn if another group is away.
func TestAnOutageOfAnotherGroupLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		free, away := keyIn(origin, 0), keyIn(origin, 1)
		n.awayFrom(1)
		ok, _, err := n.tries(t.Context(), "one", recordOf(keyCost{free, 50}, keyCost{away, 1}))
		if ok || !errors.As(err, new(Away)) {
			t.Fatal(ok, err)
		}
		n.before = nil
		n.sends(t)
		wantCounts(t, origin, free, 0, 0)
		wantCounts(t, origin, away, 0, 0)
		if n.Len() != 0 || len(n.book.pending) != 0 {
			t.Errorf("%d open, %d to state", n.Len(), len(n.book.pending))
		}
	})
}

// While the origin is away, a request for a reservation that this node has gets the origin's result.
func TestAKnownReservationIsAnsweredInAnOutage(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", both...)
		n.before = func(*store.HoldCall) error { return errAway }
		if ok, asked, err := n.tries(t.Context(), "one", recordOf(both...)); !ok || asked || err != nil {
			t.Errorf("ok %v, asked %v: %v", ok, asked, err)
		}
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both[:1]...)); ok || !errors.Is(err, ErrUsed) {
			t.Errorf("something else: ok %v, %v", ok, err)
		}
		time.Sleep(time.Minute)
		if ok, _, err := n.tries(t.Context(), "one", recordOf(both...)); ok || !errors.Is(err, ErrOver) {
			t.Errorf("after its end: ok %v, %v", ok, err)
		}
	})
}

// A reservation whose judge refuses it, or fails, is withdrawn in the next turn.
func TestAReservationThatIsJudgedDownIsWithdrawn(t *testing.T) {
	for _, fails := range []error{nil, errAway} {
		places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
			n := nodeOf(origin)
			_, ok, err := n.Reserve(t.Context(), "one", recordOf(both...),
				func([]store.HoldAnswer, bool) (bool, error) { return false, fails })
			if ok || !errors.Is(err, fails) {
				t.Fatal(ok, err)
			}
			n.sends(t)
			for _, c := range both {
				if used, _ := counts(t, origin, c.key); used != 0 {
					t.Errorf("%s counts %d", c.key, used)
				}
			}
		})
	}
}

// A node keeps a reservation that it has made or changed until its end, and for a minute after its last change. A
// replica may lack that change, and after a wipe another node may not have it.
func TestReservationsAreKeptWhileTheyMayBeLost(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n, other := nodeOf(origin), nodeOf(origin)
		n.reserves(t, "ends", both...)
		n.reserves(t, "settled", both...)
		n.reserves(t, "away", both...)
		other.changes(t, "away", Change{})
		n.changes(t, "settled", Change{Settled: true})
		want := func(open, kept int) {
			t.Helper()
			if n.Len() != open || len(n.book.kept) != kept || len(n.book.ids) != kept || len(n.book.pending) != 0 {
				t.Errorf("%d open, %d kept, %d by ID, %d to state; want %d open of %d", n.Len(), len(n.book.kept), len(n.book.ids),
					len(n.book.pending), open, kept)
			}
		}
		want(2, 3)
		if other.Len() != 1 {
			t.Errorf("another node has %d", other.Len())
		}
		for range 59 {
			n.sends(t)
		}
		want(2, 3)
		n.sends(t)
		want(0, 0)
		if n.book.room.bytes.Used() != 0 {
			t.Errorf("%d bytes", n.book.room.bytes.Used())
		}
	})
}

// A statement that fails is kept for a minute after the reservation's end.
func TestWhatIsNotStatedIsKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf(memstore.NewOrigin(memstore.OriginOptions{}))
		n.reserves(t, "one", both...)
		n.before = func(c *store.HoldCall) error {
			if c.Record == nil {
				return errAway
			}
			return nil
		}
		n.changes(t, "one", Change{Spent: []int64{1, 2}})
		for at := range 121 {
			if _, told := len(n.book.kept), len(n.book.pending); (told == 1) != (at < 120) {
				t.Fatalf("after %d s there are %d to state", at, told)
			}
			time.Sleep(time.Second)
			_ = n.Send(t.Context())
		}
	})
}

// A change with another number of items is refused, and changes nothing.
func TestAChangeOfOtherItemsIsRefused(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", both...)
		for _, spent := range [][]int64{{1}, {1, 2, 3}} {
			if r, late, err := n.Change(t.Context(), "one", Change{Spent: spent, Settled: true}); r != nil || late ||
				!errors.Is(err, window.ErrInvalid) {
				t.Errorf("%v: %+v, late %v, %v", spent, r, late, err)
			}
		}
		wantCounts(t, origin, "a", 100, 100)
		if _, _, err := n.Change(t.Context(), "two", Change{}); !errors.Is(err, ErrNone) {
			t.Error(err)
		}
		if got := n.Stats.Unknown.Load(); got != 1 {
			t.Errorf("%d unknown", got)
		}
	})
}

// An answer that lacks holds is an error.
func TestAShortAnswerIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refused := range []bool{false, true} {
			n := nodeOf(short{memstore.NewOrigin(memstore.OriginOptions{Shards: 2}), refused})
			for id := range 4 {
				if ok, _, err := n.tries(t.Context(), fmt.Sprint(id), recordOf(both...)); ok || !errors.Is(err, errShortAnswer) {
					t.Error(ok, err)
				}
			}
		}
	})
}

// short returns answers without holds.
type short struct {
	*memstore.Origin
	refused bool
}

func (o short) Hold(ctx context.Context, c store.HoldCall) (store.HoldReply, error) {
	reply, err := o.Origin.Hold(ctx, c)
	reply.Answers, reply.Refused = nil, o.refused
	if o.refused {
		reply.Record = store.RecordAnswer{}
	}
	return reply, err
}

// A settlement after the origin was emptied finds its reservation, because the node that has it states it again.
func TestASettlementAfterALossFindsItsReservation(t *testing.T) {
	for name, lose := range map[string]func(*memstore.Origin, memstore.OriginState){
		"emptied":     func(o *memstore.Origin, _ memstore.OriginState) { o.Wipe() },
		"rolled back": (*memstore.Origin).Rollback,
	} {
		for _, after := range []time.Duration{time.Second, 55 * time.Second} {
			if name == "rolled back" && after > settledKept {
				continue // a replica is not so far behind
			}
			places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
				n := nodeOf(origin)
				drawEpochs(t, servers)
				state := servers.State()
				n.reserves(t, "one", both...)
				time.Sleep(after)
				lose(servers, state)
				n.changes(t, "one", Change{Spent: []int64{7, 8}, Settled: true})
				if used, _ := counts(t, origin, "a"); used != 7 {
					t.Errorf("%s: a counts %d", name, used)
				}
			})
		}
	}
}

// An ID that is drawn for a key has its record in the key's group.
func TestIDsAreDrawnForAKeysGroup(t *testing.T) {
	cluster := memstore.NewCluster(memstore.OriginOptions{Shards: 64})
	n := nodeOf(cluster)
	for i := range 20 {
		cell, next := cellOf(fmt.Sprint(i)), 0
		id := DrawID(n.Origin, &cell.Key, func() string {
			next++
			return fmt.Sprint("id", i, "-", next)
		})
		r := recordOf(keyCost{fmt.Sprint(i), 1}, keyCost{fmt.Sprint(i), 1})
		if !areIn(n.Origin, groupOf(cluster, id), r.holds(store.HoldNew, r.MadeMs)) {
			t.Errorf("%s is in another group than %d", id, i)
		}
	}
	cell, draws := cellOf(keyOut(cluster, groupOf(cluster, "same"))), 0
	if id := DrawID(n.Origin, &cell.Key, func() string { draws++; return "same" }); id != "same" || draws > drawsMax+1 {
		t.Errorf("%s after %d draws", id, draws)
	}
}
