package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// as returns a context for a caller.
func as(t testing.TB, label string) context.Context { return dataplane.WithCaller(t.Context(), label) }

// calm returns a node of a region whose calls to the origin take 2 ms.
func calm(t testing.TB) *dataplane.Limiter {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	origin.Faults.Delay(2 * time.Millisecond)
	l := acquirer(t, dataplane.Config{Region: "eu", Origin: origin, ReadTimeout: 5 * time.Second})
	time.Sleep(20 * time.Second) // after which a new origin grants leases
	return l
}

// askOf is ask of a namespace.
func askOf(namespace, identifier string, cost, limit int64) dataplane.Request {
	r := ask(identifier, cost, limit)
	r.Namespace = namespace
	return r
}

// slowCalls are the calls that wait for the origin. Each is prepared by the function that it returns.
var slowCalls = map[string]func(ctx context.Context, l *dataplane.Limiter, namespace string) func(i int) error{
	"Reserve": func(ctx context.Context, l *dataplane.Limiter, namespace string) func(i int) error {
		return func(i int) error {
			r := dataplane.ReserveRequest{Requests: []dataplane.Request{askOf(namespace, strconv.Itoa(i%7), 1, 1_000_000)},
				TTL: time.Second}
			return l.Reserve(ctx, r).Err
		}
	},
	"Settle": func(ctx context.Context, l *dataplane.Limiter, namespace string) func(i int) error {
		r := l.Reserve(ctx, dataplane.ReserveRequest{Requests: []dataplane.Request{askOf(namespace, "k", 1, 1_000_000)},
			TTL: time.Hour})
		return func(i int) error {
			_, err := l.Spend(ctx, r.ID, int64(i))
			return errors.Join(r.Err, err)
		}
	},
	"AcquireToken": func(ctx context.Context, l *dataplane.Limiter, namespace string) func(i int) error {
		return func(i int) error {
			_, d := l.AcquireToken(ctx, dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: namespace, Identifier: "k",
				Limit: 1_000_000, TTL: time.Second}, "", false)
			return d.Err
		}
	},
	"RenewTokens": func(ctx context.Context, l *dataplane.Limiter, namespace string) func(i int) error {
		token, d := l.AcquireToken(ctx, dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: namespace, Identifier: "k",
			Limit: 1_000_000, TTL: time.Minute}, "", false)
		return func(i int) error { return errors.Join(d.Err, l.RenewTokens(ctx, 0, token)[0]) }
	},
}

// latency returns the duration of the slowest of 50 calls, which are made one after another.
func latency(t *testing.T, call func(i int) error) (most time.Duration) {
	t.Helper()
	for i := range 50 {
		from := time.Now()
		if err := call(i); err != nil {
			t.Fatal(err)
		}
		most = max(most, time.Since(from))
	}
	return most
}

// If a caller floods a node with any kind of call, another caller's calls take at most five times as long as without
// the flood. If no caller has a label, the same holds for another namespace.
func TestAFloodOfCallsLeavesOthersTheirOrigin(t *testing.T) {
	for flood, flooded := range slowCalls {
		for victim, called := range slowCalls {
			for _, labelled := range []bool{true, false} {
				if !labelled && (victim != "Reserve" || flood != "Reserve") {
					continue // the namespace cannot be found from an ID
				}
				t.Run(fmt.Sprintf("%s beside %s, labels %v", victim, flood, labelled), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := calm(t)
						others, own := as(t, "flood"), as(t, "victim")
						if !labelled {
							others, own = t.Context(), t.Context()
						}
						call := called(own, l, "quiet")
						quiet := latency(t, call)
						others, end := context.WithCancel(others)
						var running sync.WaitGroup
						each := flooded(others, l, "flood")
						for i := range 300 {
							running.Go(func() {
								for ; others.Err() == nil; i++ {
									_ = each(i)
								}
							})
						}
						synctest.Wait()
						if loud := latency(t, call); loud > 5*quiet {
							t.Errorf("%v beside the flood, and %v without it", loud, quiet)
						}
						end()
						running.Wait()
					})
				})
			}
		}
	}
}

// However many reservations a caller has, another caller finds room on the node, also in the same namespace.
func TestAFloodOfReservationsLeavesOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		reserve := func(ctx context.Context, i int) error {
			return l.Reserve(ctx, dataplane.ReserveRequest{ID: strconv.Itoa(i), TTL: 24 * time.Hour,
				Requests: []dataplane.Request{ask(strconv.Itoa(i/1000), 1, 1_000_000)}}).Err
		}
		flood, victim, n := as(t, "flood"), as(t, "victim"), 0
		for ; n <= dataplane.ReservationsMax; n++ {
			if err := reserve(flood, n); errors.Is(err, dataplane.ErrReservations) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n != dataplane.ReservationsMax*3/4 {
			t.Errorf("one caller has %d reservations, want %d", n, dataplane.ReservationsMax*3/4)
		}
		for i := range 1000 {
			if err := reserve(victim, n+1+i); err != nil {
				t.Fatalf("the victim's reservation %d: %v", i, err)
			}
		}
	})
}

// However many requests of a caller wait for a lease of a key, another caller's request can wait too, and gets a
// lease after a few of the others.
func TestAFloodOfWaitsLeavesOthersTheirTurn(t *testing.T) {
	const held = 50 * time.Millisecond
	r := jobs(1)
	for name, acquire := range map[string]func(context.Context, *dataplane.Limiter) (func(), dataplane.ConcurrencyDecision){
		"token": func(ctx context.Context, l *dataplane.Limiter) (func(), dataplane.ConcurrencyDecision) {
			lease, d := l.AcquireToken(ctx, r, "", true)
			return func() { l.ReleaseTokens(context.WithoutCancel(ctx), lease) }, d
		},
		"lease": func(ctx context.Context, l *dataplane.Limiter) (func(), dataplane.ConcurrencyDecision) {
			lease, d := l.AcquireWait(ctx, r)
			return lease.Release, d
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := calm(t)
				flood, end := context.WithCancel(as(t, "flood"))
				var running sync.WaitGroup
				for range 600 {
					running.Go(func() {
						for flood.Err() == nil {
							if release, d := acquire(flood, l); d.Allowed {
								time.Sleep(held)
								release()
							} else {
								time.Sleep(time.Second)
							}
						}
					})
				}
				time.Sleep(time.Second)
				for range 10 {
					from := time.Now()
					release, d := acquire(as(t, "victim"), l)
					if took := time.Since(from); !d.Allowed || took > time.Second {
						t.Errorf("another caller: %+v after %v", d, took)
						break
					}
					release()
				}
				end()
				running.Wait()
			})
		})
	}
}
