package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A node whose clock is wrong numbers cells by the origin's clock from its first decision on, whatever kind of call
// it is. Cost that another node has accepted is not granted again.
func TestTheFirstDecisionIsByTheOriginsClock(t *testing.T) {
	ways := map[string]func(*dataplane.Limiter, dataplane.Request) bool{
		"single": func(l *dataplane.Limiter, r dataplane.Request) bool { return l.Allow(context.Background(), r).Allowed },
		"at": func(l *dataplane.Limiter, r dataplane.Request) bool {
			d := l.AllowAt(context.Background(), time.Now(), r)
			return d.Allowed || d.Err != nil
		},
		"batch": func(l *dataplane.Limiter, r dataplane.Request) bool {
			return l.AllowMany(context.Background(), []dataplane.Request{r}).Allowed
		},
		"batch at": func(l *dataplane.Limiter, r dataplane.Request) bool {
			b := l.AllowManyAt(context.Background(), time.Now(), []dataplane.Request{r})
			return b.Allowed || b.Err != nil
		},
		"handle": func(l *dataplane.Limiter, r dataplane.Request) bool {
			h, err := l.Handle(r.Workspace, r.Namespace, r.Identifier, r.Duration)
			return err != nil || h.Allow(context.Background(), r.Limit, dataplane.Cost(r.Cost)).Allowed
		},
		"reserve": func(l *dataplane.Limiter, r dataplane.Request) bool {
			_, d := l.AllowUpTo(context.Background(), r)
			return d.Allowed
		},
		"reserve all": func(l *dataplane.Limiter, r dataplane.Request) bool {
			got := l.Reserve(context.Background(), dataplane.ReserveRequest{Requests: []dataplane.Request{r}})
			return got.Allowed || got.Err != nil
		},
	}
	for how, allowed := range ways {
		for _, nodeShare := range []string{"flush", "wait"} {
			for _, skew := range []time.Duration{24 * time.Hour, time.Hour, 90 * time.Second, -90 * time.Second, -time.Hour} {
				firstDecision(t, fmt.Sprint(how, "/", nodeShare, "/", skew), nodeShare, skew, 0, allowed)
				firstDecision(t, fmt.Sprint(how, "/", nodeShare, "/", skew, "/without room"), nodeShare, skew, 1, allowed)
			}
		}
	}
}

// firstDecision sends a request to a node whose clock is wrong, for a key that another node has brought to its limit.
// With room set, the node's table has room for this many keys, and other keys take it.
func firstDecision(t *testing.T, name, nodeShare string, skew time.Duration, room int,
	allowed func(*dataplane.Limiter, dataplane.Request) bool) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			row := store.NamespaceRow{NodeShare: nodeShare}
			one, two := skewed(t, origin.Client(), 0, row, 0), skewed(t, origin.Client(), skew, row, room)
			for i := range room { // without a call: the node has not read the origin's clock yet
				if _, err := two.Charge(ask(fmt.Sprint("taken", i), 1, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if d := one.Allow(t.Context(), ask("k", 100, 100)); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			if err := one.ReplayOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if allowed(two, ask("k", 100, 100)) {
				t.Error("100 of 100 were accepted, and another node grants 100 more, or errs")
			}
			d := two.Peek(t.Context(), ask("k", 1, 100))
			if d.Allowed || d.RetryAfter > 2*time.Minute {
				t.Errorf("afterwards: %+v", d)
			}
			two.AwaitCalls()
		})
	})
}

// Concurrent first decisions, which have all read the node's clock before the first answer arrives, also use the
// origin's clock.
func TestFirstDecisionsAtOnceAreByTheOriginsClock(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			one := liveNode(t, origin.Client())
			if d := one.Allow(t.Context(), ask("k", 100, 100)); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			if err := one.ReplayOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			way := origin.Client()
			way.Faults.Delay(10 * time.Millisecond)
			two, err := dataplane.New(dataplane.Config{Region: "eu", Origin: way,
				Clock: func() time.Time { return time.Now().Add(skew) }})
			if err != nil {
				t.Fatal(err)
			}
			together(32, func(i int) {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if d := two.Allow(t.Context(), ask("k", 1, 100)); d.Allowed {
					t.Errorf("skew %v, caller %d: %+v", skew, i, d)
				}
			})
			two.AwaitCalls()
		})
	}
}

// While the origin is down, its clock cannot be read, and each decision follows the outage policy, within
// ReadTimeout.
func TestTheFirstDecisionWithoutAnOrigin(t *testing.T) {
	for policy, want := range map[string]bool{"local": true, "open": true, "closed": false} {
		for how, ask1 := range asked {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				origin.Faults.Delay(time.Hour)
				l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Settings: settingsOf(policy, ""),
					Clock: func() time.Time { return time.Now().Add(time.Hour) }})
				if err != nil {
					t.Fatal(err)
				}
				if err := l.LoadSettings(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				d := ask1(t, l, ask("k", 1, 10))
				if took := time.Since(began); d.Allowed != want || !d.Source.Degraded() || took > 50*time.Millisecond {
					t.Errorf("%s, %s: after %v: %+v", policy, how, took, d)
				}
				l.AwaitCalls()
			})
		}
	}
}

// clockless is an origin that does not report its time.
type clockless struct{ *memstore.Origin }

func (o clockless) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply, err := o.Origin.Read(ctx, cells)
	reply.Now = time.Time{}
	return reply, err
}

func (o clockless) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := o.Origin.Send(ctx, chunk)
	reply.Now = time.Time{}
	return reply, err
}

// A node that only sends reads an origin without a clock once for its time.
func TestAnOriginWithoutAClockIsAskedOnceBeforeCostIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := clockless{memstore.NewOrigin(memstore.OriginOptions{})}
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			charge(t, l)
			if err := l.ReplayOnce(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := origin.Stats().Sends; got != 6 {
			t.Errorf("%d chunks for five costs, want one more", got)
		}
	})
}

// An origin without a clock causes no waits: the node decides about a fresh key by itself.
func TestAnOriginWithoutAClockIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := clockless{memstore.NewOrigin(memstore.OriginOptions{})}
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if d := l.Allow(t.Context(), ask("k", 1, 1000)); !d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		if got := origin.Stats().Gets; got != 1 {
			t.Errorf("%d reads for ten decisions about one key", got)
		}
	})
}
