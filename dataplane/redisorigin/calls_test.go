package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// cellNow returns the current cell of a key. If cells last an hour or longer, it is the cell in which the tests began,
// so that all calls of a test have the same cell: it counts for an hour more.
func cellNow(identifier string, d time.Duration) window.Cell {
	now := time.Now()
	if d >= time.Hour {
		now = testsBegan
	}
	return window.Cell{
		Key:      window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: d},
		Sequence: window.Sequence(now.UnixMilli(), d.Milliseconds()),
	}
}

var testsBegan = time.Now()

// If a user must not set expiries, no key is made, because a key without an expiry would stay. An existing key has its
// expiry already.
func TestNoExpiryNoCount(t *testing.T) {
	server := servers.RedisForTest(t)
	raw, o := rawClient(t, server.Addr()), openAt(t, server.Addr(), redisorigin.Options{})
	c, other := cellNow("x", time.Minute), cellNow("y", time.Minute)
	add(t, o, store.Cost{Cell: c, Add: 7})
	if err := raw.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-pexpireat").Err(); err != nil {
		t.Fatal(err)
	}
	limited := openOrigin(t, "redis://limited:pw@"+server.Addr(), redisorigin.Options{})
	chunk := store.Chunk{Stream: streams.Add(1), Number: 1, Costs: []store.Cost{{Cell: c, Add: 1}, {Cell: other, Add: 1 << 40}}}
	reply, err := limited.Send(t.Context(), chunk)
	if err != nil || reply.Totals[0].Err != nil || reply.Totals[1].Err == nil {
		t.Errorf("send without the right to set an expiry: %+v, %v", reply, err)
	}
	claimed := claim(t.Context(), limited, store.Cost{Cell: other, Add: 1, AtMost: 9})[0]
	if claimed.Err == nil || claimed.Epoch == 0 || claimed.Added {
		t.Errorf("a bounded cost without the right to set an expiry: %+v", claimed)
	}
	for _, cell := range []window.Cell{c, other} {
		held, err := limited.Hold(t.Context(), holdCall(newHold("a", cell, 0, 9)))
		if err == nil {
			t.Errorf("hold without the right to set an expiry: %+v", held)
		}
	}
	recorded := store.HoldCall{Group: store.RecordKey("a"), Stream: 1,
		Record: &store.Record{ID: "a", Text: "x", TTL: time.Hour}}
	if reply, err := limited.Hold(t.Context(), recorded); err == nil {
		t.Errorf("record without the right to set an expiry: %+v", reply)
	}
	if got := read(t, o, c, other); got[0] != 8 || got[1] != 0 {
		t.Errorf("totals are %v, want 8 and 0", got)
	}
	wantExpiries(t, raw)
}

// A call is a single round trip, however many cells it names, and is sent once.
func TestEveryCallIsOneRoundTrip(t *testing.T) {
	server := servers.RedisForTest(t)
	trips := &tripCounter{}
	options, err := redisorigin.ClientOptions("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	client.AddHook(trips)
	o, err := redisorigin.New([]redisorigin.Partition{{Client: client}}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chunk := store.Chunk{Stream: 1}
	var cells []window.Cell
	var bounded []store.Cost
	for i := range 4 * store.ChunkMax {
		cells = append(cells, cellNow(fmt.Sprint(i), time.Hour))
	}
	for i := range store.ChunkMax {
		chunk.Costs = append(chunk.Costs, store.Cost{Cell: cells[i], Add: 1})
		bounded = append(bounded, store.Cost{Cell: cells[i], Add: 1, AtMost: 2})
	}
	reserving := store.HoldCall{Group: cells[0].Key, Stream: 1, Record: &store.Record{ID: "a", Text: "x", TTL: time.Hour}}
	for i := range store.HoldCallMax {
		reserving.Holds = append(reserving.Holds, newHold("a", cells[i], 1, 9))
	}
	for name, c := range map[string]struct {
		call     func()
		commands int // of 500 keys at most
	}{
		"Get":               {func() { read(t, o, cells...) }, 4},
		"Send":              {func() { chunk.Number++; _, _ = o.Send(t.Context(), chunk) }, 1},
		"Send up to AtMost": {func() { claim(t.Context(), o, bounded...) }, 1},
		"Hold": {func() {
			if reply, err := o.Hold(t.Context(), reserving); err != nil || reply.Refused {
				t.Errorf("hold: %+v, %v", reply, err)
			}
		}, 1},
	} {
		c.call() // the first call also reads epochs
		*trips = tripCounter{}
		c.call()
		if trips.trips != 1 || trips.commands != c.commands {
			t.Errorf("%s took %d round trips and %d commands, want 1 and %d", name, trips.trips, trips.commands, c.commands)
		}
	}
	if err := o.Close(); err != nil || client.Ping(t.Context()).Err() != nil {
		t.Errorf("an Origin of New closed the caller's client: %v", err)
	}
}

// tripCounter counts round trips and commands, except for the first commands of a new connection.
type tripCounter struct{ trips, commands int }

func (c *tripCounter) count(cmds ...redis.Cmder) {
	if name := cmds[0].Name(); name == "eval" {
		c.trips++
		c.commands += len(cmds)
	}
}

func (c *tripCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.count(cmd); return next(ctx, cmd) }
}

func (c *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.count(cmds...); return next(ctx, cmds) }
}

// Origins of different prefixes share a server and no cell.
func TestPrefixesAreApart(t *testing.T) {
	server := servers.RedisForTest(t)
	c := cellNow("x", time.Minute)
	var origins []*redisorigin.Origin
	for _, o := range []redisorigin.Options{{}, {Prefix: "other"}, {Prefix: "weir:exact"}} {
		origins = append(origins, openAt(t, server.Addr(), o))
	}
	for i, o := range origins {
		add(t, o, store.Cost{Cell: c, Add: int64(i + 1)})
	}
	for i, o := range origins {
		if got := read(t, o, c)[0]; got != int64(i+1) {
			t.Errorf("origin %d reads %d", i, got)
		}
	}
}

func TestCloseEndsTheClientThatOpenMade(t *testing.T) {
	o := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	c := cellNow("x", time.Minute)
	read(t, o, c)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(t.Context(), []window.Cell{c}); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if err := addOne(t.Context(), o, c, 1); !errors.Is(err, redis.ErrClosed) || isMaybe(err) {
		t.Errorf("add after Close: %v", err)
	}
}
