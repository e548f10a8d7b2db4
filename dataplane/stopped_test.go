package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// callsOf counts the calls on a way to an origin from now on.
func callsOf(way *memstore.Origin) (calls func() map[memstore.Op]int) {
	var mu sync.Mutex
	seen := make(map[memstore.Op]int)
	way.Faults.Hook(func(op memstore.Op) error {
		mu.Lock()
		defer mu.Unlock()
		seen[op]++
		return nil
	})
	return func() map[memstore.Op]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// A limiter that was stopped answers every call at once, and makes no calls.
func TestAStoppedLimiterMakesNoCall(t *testing.T) {
	for _, policy := range []string{"local", "open", "closed"} {
		for _, fleet := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				origin, cfg := memstore.NewOrigin(memstore.OriginOptions{}), dataplane.Config{Settings: settingsOf(policy, "")}
				way := origin.Client()
				if fleet {
					cfg.Origin = way
				}
				l := startedFor(t, cfg)
				time.Sleep(11 * time.Second) // an origin that may have lost leases grants none before that
				made := l.Reserve(t.Context(), dataplane.ReserveRequest{ID: "made", Requests: []dataplane.Request{ask("k", 10, 100)}})
				r := jobs(5)
				r.Namespace = "api"
				token, d := l.AcquireToken(t.Context(), r, "held", false)
				if !made.Allowed || !d.Allowed {
					t.Fatalf("%+v, %+v", made, d)
				}
				if err := l.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				calls, began := callsOf(way), time.Now()
				got := l.Reserve(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{ask("k", 10, 100)}})
				_, settle := l.Settle(t.Context(), "made", 1)
				_, spend := l.Spend(t.Context(), "made", 1)
				_, cancel := l.Cancel(t.Context(), "made")
				_, extend := l.Extend(t.Context(), "made", time.Hour)
				errs := map[string]error{"reserve": got.Err, "settle": settle, "spend": spend, "cancel": cancel, "extend": extend,
					"settings": l.RefreshSettings(t.Context())}
				if fleet {
					errs["renew"], errs["release"] = l.RenewTokens(t.Context(), 0, token)[0], l.ReleaseTokens(t.Context(), token)[0]
				}
				for what, err := range errs {
					if !errors.Is(err, dataplane.ErrStopped) {
						t.Errorf("%s, %s: %v", policy, what, err)
					}
				}
				for _, wait := range []bool{false, true} {
					for _, id := range []string{"", "held"} {
						if token, d := l.AcquireToken(t.Context(), r, id, wait); token != "" || d.Allowed != (policy == "open") || !d.Source.Degraded() {
							t.Errorf("%s, token %q, wait %v: %q, %+v", policy, id, wait, token, d)
						}
					}
				}
				for _, acquire := range []func(context.Context, dataplane.ConcurrencyRequest) (dataplane.Lease, dataplane.ConcurrencyDecision){
					l.Acquire, l.AcquireWait} {
					if _, d := acquire(t.Context(), r); d.Allowed != (policy == "open") || !d.Source.Degraded() {
						t.Errorf("%s: %+v", policy, d)
					}
				}
				for how, ask1 := range asked {
					ask1(t, l, ask("cold "+how, 1, 100))
				}
				if _, err := l.Charge(ask("k", 1, 100)); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("%s: it took %v", policy, took)
				}
				time.Sleep(time.Minute)
				if n := calls(); len(n) > 0 {
					t.Errorf("%s: calls after Stop: %v", policy, n)
				}
			})
		}
	}
}

// Requests that wait for a lease when the limiter stops are answered. A reservation in flight is either made or not:
// Stop waits for it.
func TestStopAnswersThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
		l := startedFor(t, dataplane.Config{Origin: way})
		time.Sleep(11 * time.Second)
		first, d := l.Acquire(t.Context(), jobs(1))
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		defer first.Release()
		var waiting sync.WaitGroup
		began, answered := time.Now(), [2]time.Duration{}
		waiting.Go(func() {
			l.AcquireWait(t.Context(), jobs(1))
			answered[0] = time.Since(began)
		})
		waiting.Go(func() {
			l.AcquireToken(t.Context(), jobs(1), "", true)
			answered[1] = time.Since(began)
		})
		time.Sleep(time.Second)
		way.Faults.Delay(100 * time.Millisecond)
		var made dataplane.Reserved
		waiting.Go(func() {
			made = l.Reserve(t.Context(), dataplane.ReserveRequest{ID: "r", Requests: []dataplane.Request{ask("k", 10, 100)}})
		})
		time.Sleep(50 * time.Millisecond)
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		calls := callsOf(way)
		waiting.Wait()
		if !made.Allowed || made.Err != nil {
			t.Errorf("a reservation that was being made: %+v", made)
		}
		for i, after := range answered {
			if after > 2*time.Second {
				t.Errorf("waiter %d was answered %v after it came, 1 s after which the limiter was stopped", i, after)
			}
		}
		if n := calls(); len(n) > 0 {
			t.Errorf("calls after Stop: %v", n)
		}
	})
}

// A limiter that was stopped sends no more cost: a closed namespace stays closed, whether or not writes were accepted
// before.
func TestAClosedNamespaceIsClosedAfterStop(t *testing.T) {
	for policy, want := range map[string]bool{"closed": false, "local": true} {
		for _, nodeShare := range []string{"flush", "wait"} {
			for how, ask1 := range asked {
				for _, refused := range []bool{false, true} {
					for _, room := range []int{0, 1} {
						name := fmt.Sprintf("%s/%s/%s/refused=%v/room=%d", policy, nodeShare, how, refused, room)
						t.Run(name, func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) {
								way := memstore.NewOrigin(memstore.OriginOptions{}).Client()
								l := startedFor(t, dataplane.Config{Origin: way, Settings: settingsOf(policy, nodeShare), EntriesMax: room})
								if room > 0 {
									l.Allow(t.Context(), ask("blocked", 1, 1))
								}
								time.Sleep(time.Second)
								if d := ask1(t, l, ask("k", 1, 1000)); !d.Allowed {
									t.Fatalf("before: %+v", d)
								}
								if refused {
									way.Faults.Refuse(errFull, memstore.OriginWrites()...)
									for range 20 {
										ask1(t, l, ask("k", 1, 1000))
										time.Sleep(100 * time.Millisecond)
									}
								}
								ctx, cancel := context.WithTimeout(t.Context(), time.Second)
								defer cancel()
								_ = l.Stop(ctx) // it cannot send while writes are refused
								for range 100 {
									if d := ask1(t, l, ask("k", 1, 1000)); d.Allowed != want || !want && d.Source != dataplane.SourceDegradedClosed {
										t.Fatalf("after Stop: %+v", d)
									}
									time.Sleep(100 * time.Millisecond)
								}
							})
						})
					}
				}
			}
		}
	}
}
