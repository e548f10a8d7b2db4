package held

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

const callTakes = 10 * time.Millisecond

// slow makes each call to the origin take callTakes. It returns the largest number of calls that were under way.
func (n *node) slow() (most *atomic.Int64) {
	most = new(atomic.Int64)
	var underWay atomic.Int64
	n.before = func(*store.HoldCall) error {
		now := underWay.Add(1)
		defer underWay.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		time.Sleep(callTakes)
		return nil
	}
	return most
}

// reservesMany makes reservations of 1 of a key.
func (n *node) reservesMany(t *testing.T, many int, key string) {
	t.Helper()
	for i := range many {
		n.reserves(t, fmt.Sprint(i), keyCost{key, 1})
	}
}

// After an origin was emptied, lost reservations are stated again several at a time, each with two calls.
func TestLostReservationsAreStatedSeveralAtATime(t *testing.T) {
	const many = 20 * restatesMax
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		n.reservesMany(t, many, "a")
		wiped(t, servers, "a")
		time.Sleep(time.Second)
		if err := n.prove(t.Context(), make(map[int]bool)); err != nil { // shows the loss
			t.Fatal(err)
		}
		most, began := n.slow(), time.Now()
		if err := n.stateAll(t.Context(), n.book.due(n.NowMs()), make(map[int]bool)); err != nil {
			t.Fatal(err)
		}
		alone := servers.Shards() // the first reservation of each shard
		if got, want := time.Since(began), time.Duration(many/restatesMax+alone)*2*callTakes; got > want {
			t.Errorf("%d reservations took %v, want at most %v", many, got, want)
		}
		if most.Load() != restatesMax {
			t.Errorf("%d calls were under way, want %d", most.Load(), restatesMax)
		}
		n.before = nil
		if len(n.book.pending) != 0 {
			t.Errorf("%d are to be stated again", len(n.book.pending))
		}
		wantCounts(t, origin, "a", many, many)
		for i := range many {
			if got := stored(t, origin, fmt.Sprint(i)); got.Text == "" || got.Settled {
				t.Errorf("%d: %+v", i, got)
			}
		}
	})
}

// A shard that rejects all statements gets one in a turn, and other shards get all. When it recovers, it gets the rest.
func TestAShardThatRejectsStatementsGetsOneInATurn(t *testing.T) {
	const many = 5 * restatesMax
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		n := nodeOf(origin)
		keys, in := [2]string{keyIn(origin, 0), keyIn(origin, 1)}, [2]int64{}
		for i := range many {
			of := groupOf(origin, fmt.Sprint(i))
			n.reserves(t, fmt.Sprint(i), keyCost{keys[of], 1})
			in[of]++
		}
		origin.Wipe()
		n.Lose()
		var rejected atomic.Int64
		n.before = func(c *store.HoldCall) error {
			if n.Origin.GroupOf(&c.Group) == 0 {
				return nil
			}
			rejected.Add(1)
			return errAway
		}
		some := n.book.due(n.NowMs())
		if err := n.stateAll(t.Context(), some, make(map[int]bool)); !errors.Is(err, errAway) {
			t.Errorf("a shard has rejected statements: %v", err)
		}
		if rejected.Load() != 1 {
			t.Errorf("it has rejected %d", rejected.Load())
		}
		n.before = nil
		wantCounts(t, origin, keys[0], in[0], 0)
		wantCounts(t, origin, keys[1], 0, 0)
		n.sends(t)
		wantCounts(t, origin, keys[1], in[1], 0)
	})
}

// If its context ends, a turn states no further reservations and returns the context's error. The next turn states the
// rest.
func TestATurnEndsWithItsContext(t *testing.T) {
	const many, until = 100, 5
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(origin)
		n.reservesMany(t, many, "a")
		wiped(t, origin, "a")
		n.Lose()
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		n.before = func(*store.HoldCall) error {
			if calls.Add(1) == until {
				cancel()
			}
			return nil
		}
		if err := n.stateAll(ctx, n.book.due(n.NowMs()), make(map[int]bool)); !errors.Is(err, context.Canceled) {
			t.Errorf("the context has ended: %v", err)
		}
		if got := calls.Load(); got > until+2*restatesMax {
			t.Errorf("%d calls, want at most %d", got, until+2*restatesMax)
		}
		if err := n.stateAll(ctx, n.book.due(n.NowMs()), make(map[int]bool)); !errors.Is(err, context.Canceled) {
			t.Errorf("the context had ended: %v", err)
		}
		n.sends(t)
		wantCounts(t, origin, "a", many, many)
	})
}

// However many lost reservations are stated again, a caller's call begins after at most two that wait.
func TestACallerTakesTurnsWithLostReservations(t *testing.T) {
	const turns = 4
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		n := nodeOf(origin)
		n.reservesMany(t, 500, "a")
		wiped(t, origin, "a")
		n.Lose()
		line, call := fair.NewTurns(turns), n.Call
		n.Call = func(ctx context.Context, shard int, what What, items int,
			f func(context.Context) (store.Reply, error)) error {
			if err := line.Begin(ctx, fair.In(ctx)); err != nil {
				return err
			}
			defer line.End()
			return call(ctx, shard, what, items, f)
		}
		most := n.slow()
		var turn sync.WaitGroup
		turn.Go(func() {
			if err := n.Send(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(500*time.Millisecond + time.Millisecond)
		ctx := fair.With(t.Context(), "caller")
		for i := range 10 {
			began := time.Now()
			if ok, _, err := n.tries(ctx, fmt.Sprint("other ", i), recordOf(keyCost{"b", 1})); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if got, want := time.Since(began), 2*callTakes; got > want { // the wait for an end, and the call
				t.Errorf("call %d took %v, want at most %v", i, got, want)
			}
		}
		turn.Wait()
		if most.Load() != turns {
			t.Errorf("%d calls were under way, want %d", most.Load(), turns)
		}
		n.before = nil
		wantCounts(t, origin, "a", 500, 500)
	})
}

// A statement without an answer shows no loss, and neither does an item that holds nothing: a reservation is stated
// again as it is, until it is acknowledged.
func TestOnlyAHoldThatIsMissingShowsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		request := func(n *node) {
			t.Helper()
			r := recordOf(keyCost{"a", 10}, keyCost{"b", 2000})
			r.Items[1].Shadow = true
			if _, ok, err := n.Reserve(t.Context(), "one", r, func([]store.HoldAnswer, bool) (bool, error) {
				return true, nil
			}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		n := nodeOf(origin)
		request(nodeOf(origin))
		n.before = func(c *store.HoldCall) error {
			if len(c.Holds) > 0 && c.Holds[0].As == store.HoldState {
				return errAway
			}
			return nil
		}
		request(n) // finds it
		k := n.book.ids["one"]
		if err := n.Send(t.Context()); !errors.Is(err, errAway) || k.lost || !n.book.pending[k] {
			t.Errorf("without an answer: lost %v, pending %v, %v", k.lost, n.book.pending[k], err)
		}
		n.before = nil
		if n.sends(t); k.lost || n.book.pending[k] {
			t.Errorf("with an answer: lost %v, pending %v", k.lost, n.book.pending[k])
		}
	})
}

// A change while a reservation is stated again must be stated too.
func TestAChangeDuringAStatementIsStated(t *testing.T) {
	var b book
	r := recordOf(both...)
	k := b.keep(&kept{id: "one", record: r, unstated: true}, 1)
	b.follows(k)
	spent := Change{Spent: []int64{5, 0}}
	b.keep(&kept{id: "one", record: spent.apply(r, 1), unstated: true}, 1)
	if b.followed(k, nil, false, nil); !b.pending[k] {
		t.Error("the change is not to be stated")
	}
	if r := b.follows(k); r.Items[0].Spent != 5 {
		t.Errorf("%d are spent", r.Items[0].Spent)
	}
	if b.followed(k, nil, false, nil); b.pending[k] {
		t.Error("it is stated once more")
	}
}

// Reservations of an emptied origin are changed while they are stated again. Each change is kept, and the counts are
// within those of the reservations before and after their changes.
func TestReservationsChangeWhileTheyAreStatedAgain(t *testing.T) {
	const many = 10 * restatesMax
	places(t, func(t *testing.T, origin Origin, servers *memstore.Origin) {
		n := nodeOf(origin)
		for i := range many {
			n.reserves(t, fmt.Sprint(i), keyCost{"a", 2}, keyCost{"b", 3})
		}
		wiped(t, servers, "a", "b")
		n.Lose()
		n.slow()
		var running sync.WaitGroup
		running.Go(func() { _ = n.Send(t.Context()) })
		for i := 0; i < many; i += 2 {
			running.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				n.changes(t, fmt.Sprint(i), Change{Spent: []int64{1, 1}, Settled: true})
			})
		}
		running.Wait()
		n.before = nil
		for range 3 {
			n.sends(t)
		}
		if len(n.book.pending) != 0 {
			t.Errorf("%d are to be stated again", len(n.book.pending))
		}
		for key, between := range map[string][2]int64{"a": {many + many/2, many * 2}, "b": {many * 2, many * 3}} {
			if got, _ := counts(t, origin, key); got < between[0] || got > between[1] {
				t.Errorf("%s counts %d, want %d", key, got, between)
			}
		}
		for i := range many {
			got, settled := stored(t, origin, fmt.Sprint(i)), i%2 == 0
			if got.Text == "" || got.Settled != settled || settled && got.Spent[0] != 1 {
				t.Errorf("%d: %+v", i, got)
			}
		}
	})
}
