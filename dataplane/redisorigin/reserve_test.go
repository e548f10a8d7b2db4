package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// The tests of this file make reservations at limiters that share a real Redis.

// limiters returns n nodes of a region, each with its own client. Their namespace is closed in an outage, so that on a
// busy machine no node decides alone.
func limiters(t testing.TB, n int, url string, readTimeout time.Duration) []*dataplane.Limiter {
	t.Helper()
	settings := memstore.NewCounts(memstore.CountsOptions{})
	settings.SetNamespaces(store.NamespaceRow{Workspace: "w", Namespace: "n", Outage: "closed"})
	nodes := make([]*dataplane.Limiter, n)
	for i := range nodes {
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: fmt.Sprint(i), RegionNodes: n,
			Origin: openOrigin(t, url, redisorigin.Options{}), Settings: settings, ReadTimeout: readTimeout})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.RefreshSettings(t.Context()), l.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = l.Stop(ctx) // the server may be gone
		})
		nodes[i] = l
	}
	return nodes
}

// longWindow does not end during a test.
const longWindow = 1000 * time.Hour

func costOf(key string, cost, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "w", Namespace: "n", Identifier: key, Limit: limit, Duration: longWindow,
		Cost: cost}
}

func reserving(id string, requests ...dataplane.Request) dataplane.ReserveRequest {
	return dataplane.ReserveRequest{ID: id, Requests: requests, TTL: 10 * time.Minute, Returned: true}
}

// wantRoom reserves a cost, and cancels it, after a reservation of 1 more was refused.
func wantRoom(t *testing.T, l *dataplane.Limiter, key string, room, limit int64) {
	t.Helper()
	more := l.Reserve(t.Context(), reserving("", costOf(key, room+1, limit)))
	if more.Err != nil || more.Allowed || more.Decisions[0].Source.Degraded() {
		t.Errorf("%d of %d, which is 1 too many: %+v", room+1, limit, more)
	}
	got := l.Reserve(t.Context(), reserving("", costOf(key, room, limit)))
	if got.Err != nil || !got.Allowed {
		t.Fatalf("%d of %d: %+v", room, limit, got)
	}
	if _, err := l.Cancel(t.Context(), got.ID); err != nil {
		t.Error(err)
	}
}

// hasRoom reports whether a cost can be reserved, and cancels it.
func hasRoom(t *testing.T, l *dataplane.Limiter, key string, room, limit int64) bool {
	t.Helper()
	got := l.Reserve(t.Context(), reserving("", costOf(key, room, limit)))
	if got.Err == nil && got.Allowed {
		_, got.Err = l.Cancel(t.Context(), got.ID)
	}
	if got.Err != nil && !errors.Is(got.Err, dataplane.ErrBusy) {
		t.Error(got.Err)
	}
	return got.Err == nil && got.Allowed
}

// crowd are callers that compete for a key.
type crowd struct {
	nodes       []*dataplane.Limiter
	key         string
	limit       int64
	held, spent atomic.Int64
	granted     atomic.Int64
	unanswered  atomic.Int64
	mu          sync.Mutex
	open        []string
}

// call reserves a cost, and settles it at another node if i is odd. If i is a multiple of 3 and the crowd is impatient,
// the caller leaves at some moment of its call.
func (c *crowd) call(t *testing.T, i int, impatient bool) {
	ctx, id := context.Background(), ""
	if impatient && i%3 == 0 {
		within, cancel := context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
		ctx = within
	}
	if i%4 < 2 {
		id = fmt.Sprint(c.key, i)
	}
	cost := 1 + rand.Int64N(30)
	got := c.anyNode().Reserve(ctx, reserving(id, costOf(c.key, cost, c.limit)))
	switch {
	case errors.Is(got.Err, dataplane.ErrBusy), got.Err != nil && ctx.Err() != nil:
		c.unanswered.Add(1)
	case got.Err != nil:
		t.Error(got.Err)
	case got.Allowed && i%2 == 1:
		c.granted.Add(1)
		c.settle(t, got.ID, rand.Int64N(cost+1))
	case got.Allowed:
		c.granted.Add(1)
		c.held.Add(cost)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, got.ID)
	}
}

func (c *crowd) anyNode() *dataplane.Limiter { return c.nodes[rand.N(len(c.nodes))] }

// settle repeats a call that a busy node refuses.
func (c *crowd) settle(t *testing.T, id string, spent int64) {
	for tries := 0; ; tries++ {
		s, err := c.anyNode().Settle(context.Background(), id, spent)
		if err != nil && tries < 100 {
			continue // each takes a second or more to be refused
		}
		if err != nil || !s.Settled || s.Late && tries == 0 || s.Spent[0] != spent {
			t.Errorf("settle %s with %d: %+v, %v", id, spent, s, err)
		}
		c.spent.Add(spent)
		return
	}
}

// 700 callers at three nodes: reserved and spent cost is never above the limit. Once all is settled, cost that was not
// spent is free: at once, or, for callers that left, when their reservations were withdrawn.
func TestACrowdNeverReservesPastTheLimit(t *testing.T) {
	t.Parallel()
	server := servers.RedisForTest(t)
	nodes := limiters(t, 3, "redis://"+server.Addr(), 5*time.Second)
	look := openAt(t, server.Addr(), redisorigin.Options{})
	for _, impatient := range []bool{false, true} {
		c := &crowd{nodes: nodes, key: fmt.Sprint("crowd-", impatient), limit: 3000}
		var callers sync.WaitGroup
		for i := range 700 {
			callers.Go(func() { c.call(t, i, impatient) })
		}
		callers.Wait()
		t.Logf("MEASURED | impatient %v: %d granted, %d without an answer, %d held and %d spent of %d", impatient,
			c.granted.Load(), c.unanswered.Load(), c.held.Load(), c.spent.Load(), c.limit)
		if now := c.held.Load() + c.spent.Load(); now > c.limit {
			t.Errorf("%d of %d are held and spent", now, c.limit)
		}
		for _, id := range c.open {
			callers.Go(func() { c.settle(t, id, 1) })
		}
		callers.Wait()
		left := c.limit - c.spent.Load()
		if impatient {
			await.True(t, "what those reserved who have left is free", func() bool {
				return hasRoom(t, nodes[0], c.key, left, c.limit)
			})
		}
		for _, l := range nodes {
			wantRoom(t, l, c.key, left, c.limit)
		}
		cell := window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: c.key, Duration: longWindow}}
		cell.Sequence = window.Sequence(time.Now().UnixMilli(), cell.Key.DurationMs())
		if total := regionOf(t, look, cell); total > c.limit || total < c.limit*8/10 {
			t.Errorf("the region's total is %d of %d", total, c.limit) // which has the largest sum so far
		}
	}
}

// Reserving takes one round trip if a single Redis has all keys. Each other call takes one for the record, and one for
// the holds of all its keys.
func TestCallsAboutAReservationTakeTwoRoundTrips(t *testing.T) {
	trips := &tripCounter{}
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: hooked(t, servers.RedisForTest(t).Addr(), trips),
		ReadTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	id := func(r dataplane.Reserved) string {
		if r.Err != nil || !r.Allowed {
			t.Errorf("%+v", r)
		}
		return r.ID
	}
	settled := func(_ dataplane.Settlement, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	three := []dataplane.Request{costOf("a", 5, 100), costOf("b", 5, 100), costOf("c", 5, 100)}
	drawn := id(l.Reserve(ctx, reserving("", three...)))
	for _, c := range []struct {
		name  string
		trips int
		call  func()
	}{
		{"reserve", 1, func() { drawn = id(l.Reserve(ctx, reserving("", three...))) }},
		{"reserve by an id", 1, func() { id(l.Reserve(ctx, reserving("own", three...))) }},
		{"reserve again", 2, func() { id(l.Reserve(ctx, reserving("own", three...))) }},
		{"spend", 2, func() { settled(l.Spend(ctx, "own", 1, 2, 3)) }},
		{"extend", 2, func() { settled(l.Extend(ctx, "own", time.Hour)) }},
		{"settle", 2, func() { settled(l.Settle(ctx, "own", 3, 9, 0)) }},
		{"settle again", 2, func() { settled(l.Settle(ctx, "own", 3, 9, 0)) }},
		{"cancel", 2, func() { settled(l.Cancel(ctx, drawn)) }},
		{"be refused", 1, func() { l.Reserve(ctx, reserving("", costOf("a", 98, 100))) }},
		{"be refused again", 0, func() { l.Reserve(ctx, reserving("", costOf("a", 98, 100))) }},
	} {
		*trips = tripCounter{}
		if c.call(); trips.trips != c.trips || trips.commands != c.trips {
			t.Errorf("to %s took %d round trips and %d commands, want %d", c.name, trips.trips, trips.commands, c.trips)
		}
	}
}

// A hung Redis holds no call up for longer than ReadTimeout, however many are made. None is granted that a closed
// namespace denies, whether a call has no answer or could not begin.
func TestAHungServerHoldsUpNoReservation(t *testing.T) {
	t.Parallel()
	server := servers.RedisForTest(t)
	const readTimeout = 100 * time.Millisecond
	l := limiters(t, 1, "redis://"+server.Addr(), readTimeout)[0]
	var id string
	await.NoError(t, "a reservation", func() error { // a busy machine may not answer in time
		got := l.Reserve(t.Context(), reserving("", costOf("k", 1, 1000)))
		id = got.ID
		if got.Err == nil && !got.Allowed {
			return errors.New("is refused")
		}
		return got.Err
	})
	change := func(_ dataplane.Settlement, err error) error { return err }
	calls := map[string]func() error{
		"reserve": func() error {
			got := l.Reserve(t.Context(), reserving("", costOf("k", 1, 1000)))
			switch {
			case got.Allowed:
				t.Errorf("it was reserved: %+v", got)
			case got.Err == nil:
				return errors.New(got.Decisions[0].Source.String())
			}
			return got.Err
		},
		"spend":  func() error { return change(l.Spend(t.Context(), id, 1)) },
		"settle": func() error { return change(l.Settle(t.Context(), id, 1)) },
		"cancel": func() error { return change(l.Cancel(t.Context(), id)) },
		"extend": func() error { return change(l.Extend(t.Context(), id, time.Hour)) },
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		machine := watchLateness(t)
		var took atomic.Int64
		var callers sync.WaitGroup
		for range 60 {
			callers.Go(func() {
				began := time.Now()
				if err := call(); err == nil {
					t.Errorf("%s: no error", name)
				}
				for d := int64(time.Since(began)); ; {
					if was := took.Load(); d <= was || took.CompareAndSwap(was, d) {
						return
					}
				}
			})
		}
		callers.Wait()
		late := machine()
		if d := time.Duration(took.Load()); d > readTimeout+slack+late {
			t.Errorf("%s took %v, with a ReadTimeout of %v", name, d, readTimeout)
		}
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a settlement", func() bool {
		s, err := l.Settle(t.Context(), id, 1)
		return err == nil && s.Settled
	})
}

// slack is the time that a call may take in addition to its timeout. It is less than the second that a call to the
// server may take.
const slack = 500 * time.Millisecond

// watchLateness returns a function that ends the watch, and returns by how much a timer was late at most meanwhile.
func watchLateness(t testing.TB) (end func() time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		const every = 5 * time.Millisecond
		timer := time.NewTimer(every)
		defer timer.Stop()
		for most, began := time.Duration(0), time.Now(); ; {
			select {
			case <-stop:
				done <- max(most, time.Since(began)-every)
				return
			case <-timer.C:
				most = max(most, time.Since(began)-every)
				began = time.Now()
				timer.Reset(every)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-done }
}

// A replica is promoted that lacks the last writes. Settled reservations stay settled, reserved cost is held, and
// nothing counts twice, once each node has made a call, as each does within a second by itself.
func TestAPromotedReplicaHasWhatWasSettled(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	nodes := limiters(t, 2, "redis://"+f.sentinel+"?master=weir", 10*time.Second)
	a, b := nodes[0], nodes[1]
	const limit = 100
	reserve := func(l *dataplane.Limiter, id string, cost int64) {
		if got := l.Reserve(t.Context(), reserving(id, costOf("k", cost, limit))); got.Err != nil || !got.Allowed {
			t.Errorf("reserve %s: %+v", id, got)
		}
	}
	settle := func(l *dataplane.Limiter, id string, spent int64, late bool) {
		t.Helper()
		s, err := l.Settle(t.Context(), id, spent)
		if err != nil || s.Late != late || !s.Settled || s.Spent[0] != spent {
			t.Errorf("settle %s with %d: %+v, %v", id, spent, s, err)
		}
	}
	for _, id := range []string{"before", "at its node", "at another", "open"} {
		reserve(a, id, 10)
	}
	settle(a, "before", 3, false)
	f.stopReplication(t)
	settle(a, "at its node", 4, false)
	settle(b, "at another", 5, false)
	reserve(b, "new", 20)
	if _, err := b.Spend(t.Context(), "new", 7); err != nil {
		t.Error(err)
	}
	f.failOver(t)
	for _, l := range nodes {
		await.NoError(t, "a call at the new primary", func() error {
			_, err := l.Extend(t.Context(), "open", time.Hour)
			return err
		})
	}
	for _, l := range nodes {
		settle(l, "before", 3, true)
		settle(l, "at its node", 4, true)
		settle(l, "at another", 5, true)
		s, err := l.Spend(t.Context(), "new", 0)
		if err != nil || s.Late || s.Spent[0] != 7 {
			t.Errorf("new: %+v, %v", s, err)
		}
		wantRoom(t, l, "k", limit-3-4-5-10-20, limit)
	}
	settle(a, "open", 1, false)
	settle(b, "new", 8, false)
	for _, l := range nodes {
		wantRoom(t, l, "k", limit-3-4-5-1-8, limit)
	}
}
