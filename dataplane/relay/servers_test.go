package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// With real Redis servers two regions learn of each other, and one that is emptied has all of it again.
func TestOverRedis(t *testing.T) {
	news, counts := memstore.NewNews(memstore.NewsOptions{}), memstore.NewCounts(memstore.CountsOptions{})
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
		r, err := relay.New(relay.Config{Region: region, Holder: "node", Origin: origin, News: news, Counts: counts})
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
