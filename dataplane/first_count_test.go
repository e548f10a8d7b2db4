package dataplane_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var skews = []time.Duration{24 * time.Hour, time.Hour, 90 * time.Second, 59 * time.Second, -59 * time.Second, -90 * time.Second,
	-time.Hour, -24 * time.Hour}

// skewed returns a node that has not read the origin's clock yet, and whose own clock differs.
func skewed(t *testing.T, way *memstore.Origin, skew time.Duration, row store.NamespaceRow, room int) *dataplane.Limiter {
	t.Helper()
	var by atomic.Int64
	by.Store(int64(skew))
	return skewedBy(t, way, &by, row, room)
}

// skewedBy is skewed for a node whose clock is set later.
func skewedBy(t *testing.T, way *memstore.Origin, skew *atomic.Int64, row store.NamespaceRow,
	room int) *dataplane.Limiter {
	t.Helper()
	counts := memstore.NewCounts(memstore.CountsOptions{})
	row.Workspace, row.Namespace = "acme", "api"
	counts.SetNamespaces(row)
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: way, Settings: counts, EntriesMax: room,
		Clock: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// early is a way to count 10 of a key before a node has read the origin's clock.
type early struct {
	row   store.NamespaceRow
	away  bool // the origin is down meanwhile: otherwise decisions of the exact mode wait for it
	count func(t *testing.T, l *dataplane.Limiter)
}

var earlyEstimates = store.NamespaceRow{Mode: "estimate"}

var earlyCounts = map[string]early{
	"estimate": {row: earlyEstimates, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
	"estimate batch": {row: earlyEstimates, count: func(t *testing.T, l *dataplane.Limiter) {
		if b := l.AllowMany(t.Context(), []dataplane.Request{ask("k", 4, 1000), ask("k", 6, 1000)}); !b.Allowed {
			t.Errorf("%+v", b)
		}
	}},
	"charge":          {count: charge},
	"charge estimate": {row: earlyEstimates, count: charge},
	"charge and refund": {count: func(t *testing.T, l *dataplane.Limiter) {
		charge(t, l)
		charge(t, l)
		if n, err := l.Refund(ask("k", 10, 1000)); n != 10 || err != nil {
			t.Error(n, err)
		}
	}},
	"outage":      {away: true, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
	"outage open": {row: store.NamespaceRow{Outage: "open"}, away: true, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
	"reservation": {away: true, count: func(t *testing.T, l *dataplane.Limiter) {
		held, d := l.AllowUpTo(context.Background(), ask("k", 4, 1000))
		if change, err := held.Settle(10); !d.Allowed || change != 6 || err != nil {
			t.Error(d, change, err)
		}
	}},
}

// has checks that both the origin and a node have the early cost of 10, and that the origin has it in its current
// cell alone. first is the call with which the node reads the origin's clock: "send" or "decision".
func (c early) has(t *testing.T, l *dataplane.Limiter, origin *memstore.Origin, first string) {
	t.Helper()
	if first == "decision" {
		other := ask("other", 1, 10)
		other.Namespace = "exact"
		if d := l.Allow(t.Context(), other); d.Source != dataplane.SourceOrigin {
			t.Errorf("%+v", d)
		}
	}
	for range 2 {
		if err := l.ReplayOnce(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.SyncOnce(t.Context()); err != nil {
			t.Error(err)
		}
	}
	l.AwaitCalls()
	got := totals(origin)
	maps.DeleteFunc(got, func(c window.Cell, n int64) bool { return c.Identifier == "other" || n == 0 })
	key := windowKey(ask("k", 1, 10))
	if c.row.Mode != "" {
		key.Mode = window.Estimate
	}
	want := map[window.Cell]int64{{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}: 10}
	if !maps.Equal(got, want) {
		t.Errorf("the origin has %v, want %v", got, want)
	}
	if d := l.Peek(t.Context(), ask("k", 1, 1000)); d.Current != 11 {
		t.Errorf("the node: %+v", d)
	}
	if n, err := l.Refund(ask("k", 10, 1000)); n != 10 || err != nil {
		t.Error(n, err)
	}
	l.AwaitCalls()
}

// Cost that a node counts before it has read the origin's clock reaches the origin in the origin's current cell, and
// nowhere else. That holds for every way to count it and whatever the node's clock shows.
func TestWhatIsCountedBeforeTheOriginsClockIsKnown(t *testing.T) {
	for name, c := range earlyCounts {
		for _, skew := range skews {
			for _, first := range []string{"send", "decision"} { // the call that reads the clock first
				t.Run(fmt.Sprint(name, "/", skew, "/", first), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						way := origin.Client()
						l := skewed(t, way, skew, c.row, 0)
						if c.away {
							way.Faults.Delay(time.Hour)
						}
						c.count(t, l)
						l.AwaitCalls()
						way.Faults.Delay(0)
						time.Sleep(2 * time.Second) // breakers and rests
						c.has(t, l, origin, first)
					})
				})
			}
		}
	}
}

// None of that cost is lost if the node's clock is set back before the node reads the origin's clock, whether it is
// right or not: the origin has none of that cost yet.
func TestAClockThatIsSetBackBeforeTheOriginsClockIsKnownLosesNothing(t *testing.T) {
	for name, c := range earlyCounts {
		for _, to := range []time.Duration{time.Hour - time.Minute, 90 * time.Second, 61 * time.Second, 100 * time.Millisecond, 0,
			-time.Hour, -24 * time.Hour} {
			for _, then := range []string{"nothing", "sweep", "look"} { // the step that meets the key before the origin answers
				t.Run(fmt.Sprint(name, "/", to, "/", then), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						way := origin.Client()
						var skew atomic.Int64
						skew.Store(int64(time.Hour))
						l := skewedBy(t, way, &skew, c.row, 0)
						way.Faults.Delay(time.Hour)
						c.count(t, l)
						skew.Store(int64(to))
						switch then {
						case "sweep":
							l.Sweep()
						case "look":
							if d := l.Peek(t.Context(), ask("k", 1, 1000)); d.Current != 11 {
								t.Errorf("before the origin answers: %+v", d)
							}
						}
						l.AwaitCalls()
						way.Faults.Delay(0)
						time.Sleep(2 * time.Second) // breakers and rests
						c.has(t, l, origin, "send")
					})
				})
			}
		}
	}
}

// A reservation follows its cost to the current cell of a clock that was set back, however soon it is settled.
func TestAReservationFollowsAClockThatIsSetBackBeforeTheOriginsClockIsKnown(t *testing.T) {
	for _, reserved := range []int64{4, 14} {
		for _, to := range []time.Duration{90 * time.Second, 0, -time.Hour} {
			for _, then := range []string{"settle", "sweep, settle", "sweep, hear, settle"} {
				t.Run(fmt.Sprint(reserved, "/", to, "/", then), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						way := origin.Client()
						var skew atomic.Int64
						skew.Store(int64(time.Hour))
						l := skewedBy(t, way, &skew, store.NamespaceRow{}, 0)
						way.Faults.Delay(time.Hour)
						held, d := l.AllowUpTo(t.Context(), ask("k", reserved, 1000))
						if !d.Allowed {
							t.Fatalf("%+v", d)
						}
						l.AwaitCalls()
						skew.Store(int64(to))
						if then != "settle" {
							l.Sweep()
						}
						way.Faults.Delay(0)
						time.Sleep(2 * time.Second) // breakers and rests
						if then == "sweep, hear, settle" {
							if err := l.ReplayOnce(t.Context()); err != nil {
								t.Error(err)
							}
						}
						if change, err := held.Settle(10); change != 10-reserved || err != nil {
							t.Error(change, err)
						}
						if then != "sweep, hear, settle" {
							early{}.has(t, l, origin, "send")
						} else if d := l.Peek(t.Context(), ask("k", 1, 1000)); d.Current != 11 {
							t.Errorf("%+v", d)
						}
						l.AwaitCalls()
					})
				})
			}
		}
	}
}

// A reservation that the process makes by itself, because the origin does not answer, does so too.
func TestAReservationOfAnOutageFollowsAClockThatIsSetBack(t *testing.T) {
	for _, spent := range []int64{10, 14} {
		for _, then := range []string{"settle", "sweep, settle"} {
			t.Run(fmt.Sprint(spent, "/", then), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := memstore.NewOrigin(memstore.OriginOptions{})
					way := origin.Client()
					var skew atomic.Int64
					skew.Store(int64(time.Hour))
					l := skewedBy(t, way, &skew, store.NamespaceRow{}, 0)
					way.Faults.Delay(time.Hour)
					got := l.Reserve(t.Context(), reserveFor("one", time.Hour, ask("k", 14, 1000)))
					if !got.Allowed {
						t.Fatalf("%+v", got)
					}
					l.AwaitCalls()
					skew.Store(0)
					if then != "settle" {
						l.Sweep()
					}
					way.Faults.Delay(0)
					time.Sleep(2 * time.Second)
					for range 2 {
						if err := l.ReplayOnce(t.Context()); err != nil {
							t.Error(err)
						}
						if err := l.SyncOnce(t.Context()); err != nil {
							t.Error(err)
						}
					}
					if _, err := l.Settle(t.Context(), "one", spent); err != nil {
						t.Error(err)
					}
					if d := l.Peek(t.Context(), ask("k", 1, 1000)); d.Current != float64(spent+1) {
						t.Errorf("%+v", d)
					}
					l.AwaitCalls()
				})
			})
		}
	}
}

// A refund finds the cost of a key that a clock which was set back has left in a future cell.
func TestARefundFindsTheCostAfterAClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var skew atomic.Int64
		skew.Store(int64(time.Hour))
		l := skewedBy(t, memstore.NewOrigin(memstore.OriginOptions{}).Client(), &skew, store.NamespaceRow{}, 0)
		charge(t, l)
		skew.Store(0)
		if n, err := l.Refund(ask("k", 4, 1000)); n != 4 || err != nil {
			t.Error(n, err)
		}
	})
}

// A window may end while a node's first read is in flight. Cost that was counted on the key meanwhile still reaches
// the origin, in the window in which it was counted.
func TestAFirstReadThatOutlastsItsWindowLosesNothing(t *testing.T) {
	for how, ask1 := range asked {
		for _, skew := range []time.Duration{0, 40 * time.Millisecond, -40 * time.Millisecond} {
			t.Run(fmt.Sprint(how, "/", skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := memstore.NewOrigin(memstore.OriginOptions{})
					way := origin.Client()
					l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: way, ReadTimeout: time.Second,
						Clock: func() time.Time { return time.Now().Add(skew) }})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(59800 * time.Millisecond)
					counted := window.Sequence(time.Now().UnixMilli(), time.Minute.Milliseconds())
					way.Faults.Delay(300 * time.Millisecond)
					var decided sync.WaitGroup
					decided.Go(func() {
						if d := ask1(t, l, ask("k", 1, 1000)); !d.Allowed || d.Source != dataplane.SourceOrigin {
							t.Errorf("%+v", d)
						}
					})
					time.Sleep(50 * time.Millisecond)
					charge(t, l)
					decided.Wait()
					way.Faults.Delay(0)
					if err := l.ReplayOnce(t.Context()); err != nil {
						t.Error(err)
					}
					l.AwaitCalls()
					key := windowKey(ask("k", 1, 10))
					want := map[window.Cell]int64{{Key: key, Sequence: counted}: 10, {Key: key, Sequence: counted + 1}: 1}
					if got := totals(origin); !maps.Equal(got, want) {
						t.Errorf("the origin has %v, want %v", got, want)
					}
				})
			})
		}
	}
}

func allowN(t *testing.T, l *dataplane.Limiter, n int) {
	t.Helper()
	for range n {
		if d := l.Allow(t.Context(), ask("k", 1, 1000)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}

func charge(t *testing.T, l *dataplane.Limiter) {
	t.Helper()
	if n, err := l.Charge(ask("k", 10, 1000)); n != 10 || err != nil {
		t.Error(n, err)
	}
}

// The origin's clock adds no waits: estimates, charges and refunds return at once while the origin hangs, and none of
// their cost is sent until its clock was read.
func TestNothingIsSentBeforeTheOriginsClockIsKnown(t *testing.T) {
	for _, row := range []store.NamespaceRow{{}, {Mode: "estimate"}} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			way := origin.Client()
			l := skewed(t, way, time.Hour, row, 0)
			way.Faults.Fail(errDown)
			began := time.Now()
			charge(t, l)
			if _, err := l.Refund(ask("k", 1, 1000)); err != nil {
				t.Error(err)
			}
			if row.Mode != "" {
				allowN(t, l, 1)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("they took %v", took)
			}
			way.Faults.LoseReplies(true) // sends are applied, and the clock remains unread
			way.Faults.Fail(nil)
			for range 3 {
				_, _ = l.ReplayOnce(t.Context()), l.SyncOnce(t.Context())
			}
			l.AwaitCalls()
			if got := totals(origin); len(got) > 0 {
				t.Errorf("the origin has %v", got)
			}
		})
	}
}

// A node keeps the cost that it charged on a key without room before it had read the origin's clock.
func TestAChargeWithoutRoomBeforeTheOriginsClockIsKnown(t *testing.T) {
	for _, row := range []store.NamespaceRow{{}, {Mode: "estimate"}} {
		for _, skew := range skews {
			synctest.Test(t, func(t *testing.T) {
				l := skewed(t, memstore.NewOrigin(memstore.OriginOptions{}).Client(), skew, row, 1)
				taken := ask("taken", 1, 1)
				taken.Namespace = "exact"
				if _, err := l.Charge(taken); err != nil {
					t.Fatal(err)
				}
				if n, err := l.Charge(ask("k", 100, 100)); n != 100 || err != nil {
					t.Fatal(n, err)
				}
				other := ask("other", 1, 10)
				other.Namespace = "exact"
				if d := l.Allow(t.Context(), other); d.Source != dataplane.SourceOrigin {
					t.Errorf("%+v", d)
				}
				if d := l.Allow(t.Context(), ask("k", 1, 100)); d.Allowed {
					t.Errorf("mode %q, skew %v: 100 of 100 were charged: %+v", row.Mode, skew, d)
				}
				l.AwaitCalls()
			})
		}
	}
}
