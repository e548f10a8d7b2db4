package relay_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// With real Redis servers, two regions exchange their counts, and a server that is emptied gets all of them again.
func TestOverRedis(t *testing.T) {
	feed, counts := memstore.NewFeed(memstore.FeedOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	c := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour}}
	c.Sequence = window.Sequence(time.Now().UnixMilli(), c.DurationMs())
	var origins []*redisorigin.Origin
	var clients []*redis.Client
	for i, region := range []string{"eu", "us"} {
		server := servers.RedisForTest(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		origin, err := redisorigin.Open([]string{"redis://" + server.Addr()}, redisorigin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = origin.Close() })
		origins, clients = append(origins, origin), append(clients, client)
		r, err := relay.New(relay.Config{Region: region, Holder: "node", Origin: origin, Feed: feed, Counts: counts})
		if err != nil {
			t.Fatal(err)
		}
		start(t, r)
		reply, err := origin.Send(t.Context(), store.Chunk{Stream: 1, Number: 1, Costs: []store.Cost{{Cell: c, Add: int64(100 * (1 + i)), Limit: 1000}}})
		if err != nil || reply.Totals[0].Err != nil {
			t.Fatal(err, reply)
		}
	}
	holds := func(origin *redisorigin.Origin, region, foreign int64) func() bool {
		return func() bool {
			reply, err := origin.Read(context.Background(), []window.Cell{c})
			return err == nil && reply.Totals[0].Region == region && reply.Totals[0].Foreign == foreign
		}
	}
	await.True(t, "eu knows both", holds(origins[0], 100, 200))
	await.True(t, "us knows both", holds(origins[1], 200, 100))
	if err := clients[0].FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "eu knows both again", holds(origins[0], 100, 200))
	if !holds(origins[1], 200, 100)() {
		t.Error("us knows something else")
	}
}

// A full Redis accepts no counts of other regions, but its relay goes on: its own counts reach the others, and its
// failed steps are counted. Once there is room, its origin gets all counts that came meanwhile, whichever relay leads
// then.
func TestAFullRedisReceivesTheCountsOfOthersOnceItHasRoom(t *testing.T) {
	feed, counts := memstore.NewFeed(memstore.FeedOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	server := servers.RedisForTest(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	full, err := redisorigin.Open([]string{"redis://" + server.Addr()}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	other := memstore.NewOrigin(memstore.OriginOptions{})
	relayOf := func(region, holder string, origin store.FullOrigin) *relay.Relay {
		r, err := relay.New(relay.Config{Region: region, Holder: holder, Origin: origin, Feed: feed, Counts: counts})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	us := relayOf("us", "only", other)
	cells := make([]window.Cell, 1_200) // more than fit into a call
	for i := range cells {
		cells[i] = window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("k", i),
			Duration: 24 * time.Hour}}
		cells[i].Sequence = window.Sequence(time.Now().UnixMilli(), cells[i].DurationMs())
	}
	number := int64(0)
	add := func(origin store.Origin, cost int64, cells ...window.Cell) {
		t.Helper()
		for part := range slices.Chunk(cells, store.ChunkMax) {
			number++
			chunk := store.Chunk{Stream: 1, Number: number}
			for _, c := range part {
				chunk.Costs = append(chunk.Costs, store.Cost{Cell: c, Add: cost, Limit: 100})
			}
			if _, err := origin.Send(t.Context(), chunk); err != nil {
				t.Fatal(err)
			}
		}
	}
	foreign := func(origin store.Origin) (sum int64) {
		t.Helper()
		reply, err := origin.Read(t.Context(), cells)
		if err != nil {
			t.Fatal(err)
		}
		for _, total := range reply.Totals {
			sum += total.Foreign
		}
		return sum
	}
	setMemory := func(bytes string) {
		t.Helper()
		if err := raw.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	usStep := func() {
		t.Helper()
		if err := us.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	first := relayOf("eu", "first", full)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(full, 30, cells[:10]...)
	await.True(t, "us has the counts of eu", func() bool { usStep(); return foreign(other) == 300 })
	setMemory("1")
	add(other, 2, cells...) // cells that eu also has, and others
	failed := errorsOf(t, first)
	await.True(t, "the relay's failed steps are counted", func() bool { usStep(); return errorsOf(t, first) > failed+2 })
	if n := foreign(full); n != 0 {
		t.Errorf("the full server has %d of other regions", n)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := relayOf("eu", "second", full)
	start(t, second)
	await.True(t, "the next relay fails as well", func() bool { usStep(); return errorsOf(t, second) > 2 })
	if n := foreign(full); n != 0 {
		t.Errorf("the full server has %d of other regions", n)
	}
	setMemory("0")
	await.True(t, "eu has all counts of us", func() bool { usStep(); return foreign(full) == 2*int64(len(cells)) })
}

// errorsOf returns the number of failed steps of a relay's loops.
func errorsOf(t *testing.T, r *relay.Relay) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "weir_relay_errors_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("a relay reports no errors_total")
	return 0
}
