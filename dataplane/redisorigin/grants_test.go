package redisorigin_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	conc "github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// A server that is killed and comes back with nothing never lets more leases be held than the limit.
func TestGrantsAfterAKill(t *testing.T) {
	const nodes, limit = 3, 3
	server := servers.RedisForTest(t)
	fleet := &slotsFleet{limit: limit, leases: make(map[conc.Lease]bool)}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	join := func() *conc.Table {
		table := conc.New(conc.Config{Origin: openAt(t, server.Addr(), redisorigin.Options{}),
			Nodes: func() int64 { return nodes }})
		table.Run(ctx, running.Go)
		for range 2 {
			running.Go(func() { fleet.work(ctx, table) })
		}
		return table
	}
	for range nodes {
		join()
	}
	defer running.Wait()
	defer stop()
	await.True(t, "leases are granted", func() bool { return fleet.count() > 10 })
	for range 2 {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := join() // the other nodes hand over their slots
		await.True(t, "the origin grants again", func() bool { return fresh.Stats().Granted > 0 })
	}
	if over := fleet.problem(); over != "" {
		t.Error(over)
	}
}

// slotsFleet holds the holders of a key's leases.
type slotsFleet struct {
	limit int

	mu      sync.Mutex
	leases  map[conc.Lease]bool
	granted int
	over    string
}

// work acquires, holds and releases until ctx ends.
func (f *slotsFleet) work(ctx context.Context, table *conc.Table) {
	for ctx.Err() == nil {
		r := table.Wait(ctx, &conc.Ask{Name: conc.Name{Workspace: "w", Namespace: "n", Identifier: "i"},
			Limit: int64(f.limit), TTL: 2 * time.Second})
		if !r.Granted {
			continue
		}
		f.holds(r.Lease)
		select {
		case <-ctx.Done():
		case <-r.Lease.Done():
		case <-time.After(rand.N(100 * time.Millisecond)): // of work
		}
		f.mu.Lock()
		delete(f.leases, r.Lease)
		f.mu.Unlock()
		r.Lease.Release()
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(200 * time.Millisecond)):
		}
	}
}

// holds counts the leases that are held at the moment.
func (f *slotsFleet) holds(lease conc.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases[lease] = true
	f.granted++
	held := 0
	for l := range f.leases {
		if l.Err() == nil {
			held++
		}
	}
	if held > f.limit {
		f.over = "more leases are held than the limit"
	}
}

func (f *slotsFleet) count() int      { f.mu.Lock(); defer f.mu.Unlock(); return f.granted }
func (f *slotsFleet) problem() string { f.mu.Lock(); defer f.mu.Unlock(); return f.over }

// A server's data about a key ends with the last holding, or at most a minute later.
func TestGrantsExpire(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	grow(t, []*redis.Client{raw})
	h := openAt(t, server.Addr(), redisorigin.Options{})
	key := store.SlotsKey("w", "n", "i")
	for i, step := range []struct {
		ask           store.GrantAsk
		nodes, leases time.Duration // at most; 0: there is none
	}{
		{store.GrantAsk{Want: 1, TTL: store.GrantTTLMax}, store.GrantTTLMax, 0},
		{store.GrantAsk{Lease: "long", Want: 1, TTL: store.GrantTTLMax}, store.GrantTTLMax, store.GrantTTLMax},
		{store.GrantAsk{Lease: "short", Want: 1, TTL: 10 * time.Second}, store.GrantTTLMax, store.GrantTTLMax},
		{store.GrantAsk{TTL: store.GrantTTLMax}, store.GrantKeptFor, store.GrantTTLMax},
		{store.GrantAsk{Lease: "long"}, store.GrantKeptFor, 10 * time.Second},
		{store.GrantAsk{Lease: "short"}, store.GrantKeptFor, 0},
		{store.GrantAsk{Want: 1, TTL: time.Second}, time.Second, 0},
	} {
		step.ask.Key, step.ask.Limit = key, 3
		call := store.GrantCall{Node: 1, Number: int64(i) + 1, Asks: []store.GrantAsk{step.ask}}
		reply, err := h.Grants(t.Context(), 0, call)
		if err != nil || reply.Answers[0].Err != nil {
			t.Fatalf("%d: %+v: %v", i, reply, err)
		}
		for name, most := range map[string]time.Duration{"slots": step.nodes, "leases": step.leases} {
			left := raw.PTTL(t.Context(), "weir:{origin}:"+name+":{w:n:i}").Val()
			if there := left != -2; left > most || there != (most > 0) || there && left <= max(0, most-5*time.Second) {
				t.Errorf("%d: %s ends in %v, want %v", i, name, left, most)
			}
		}
	}
}

// A key that holds something else is reported by its name.
func TestJunkInPlaceOfGrantsIsReported(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	grow(t, []*redis.Client{raw})
	h := openAt(t, server.Addr(), redisorigin.Options{})
	key := store.SlotsKey("w", "a:b", "{c}")
	const name = "weir:{origin}:slots:{w:a%3Ab:%7Bc%7D}"
	command(t, raw, "HSET", name, "x", "not slots")
	reply, err := h.Grants(t.Context(), 0, store.GrantCall{Node: 1, Number: 2,
		Asks: []store.GrantAsk{{Key: key, Limit: 2, Want: 1, TTL: time.Second}}})
	if err != nil || reply.Answers[0].Err == nil || !strings.Contains(reply.Answers[0].Err.Error(), name) {
		t.Errorf("%+v: %v", reply, err)
	}
	if errors.Is(reply.Answers[0].Err, store.ErrRecovering) || reply.Answers[0].Held != 0 {
		t.Errorf("%+v", reply)
	}
}

// A key of another type, in place of the nodes' slots or of the leases, is reported by its name. The other keys of the
// call get their slots.
func TestAKeyOfAnotherTypeFailsNoOtherGrant(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	grow(t, []*redis.Client{raw})
	h := openAt(t, server.Addr(), redisorigin.Options{})
	for _, what := range []string{"slots", "leases"} {
		name := "weir:{origin}:" + what + ":{w:n:" + what + "}"
		command(t, raw, "SET", name, "text")
		call := store.GrantCall{Node: 1, Number: 1}
		for _, id := range []string{"before" + what, what, "after" + what} {
			for _, lease := range []string{"", "lease"} {
				call.Asks = append(call.Asks, store.GrantAsk{Key: store.SlotsKey("w", "n", id), Lease: lease, Limit: 2, Want: 1,
					TTL: time.Second})
			}
		}
		reply, err := h.Grants(t.Context(), 0, call)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for i, a := range reply.Answers {
			if damaged := i/2 == 1; !damaged && (a.Err != nil || a.Held != 1) ||
				damaged && (a.Err == nil || a.Held+a.Others != 0 || !strings.Contains(a.Err.Error(), name)) {
				t.Errorf("%s, ask %d: %+v", what, i, a)
			}
		}
	}
}
