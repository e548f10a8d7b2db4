package redisorigin_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

const slots = 16384

// clusterForTest starts a Cluster of three masters and returns clients of each.
func clusterForTest(t *testing.T) []*redis.Client {
	t.Helper()
	var nodes []*redis.Client
	var busPorts []string
	for i := range 3 {
		busPorts = append(busPorts, freePort(t))
		server := servers.RedisForTest(t, "--cluster-enabled", "yes", "--cluster-port", busPorts[i], "--cluster-node-timeout", "5000")
		nodes = append(nodes, rawClient(t, server.Addr()))
	}
	for i, node := range nodes {
		command(t, node, "CLUSTER", "ADDSLOTSRANGE", i*slots/3, (i+1)*slots/3-1)
		host, port, err := net.SplitHostPort(node.Options().Addr)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range nodes { // all of them: gossip would take seconds more
			command(t, other, "CLUSTER", "MEET", host, port, busPorts[i])
		}
	}
	for _, node := range nodes {
		await.True(t, "the cluster is formed", func() bool {
			info := node.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return nodes
}

func command(t testing.TB, c *redis.Client, args ...any) any {
	t.Helper()
	reply, err := c.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestCluster(t *testing.T) {
	nodes := clusterForTest(t)
	url := "redis://" + nodes[0].Options().Addr + "?cluster=true"
	t.Run("keeps the contract", func(t *testing.T) {
		for _, node := range nodes { // as the README's user
			command(t, node, readmeRights(t)...)
			command(t, node, readmeClusterRights(t)...)
		}
		way := newLossyWay(t, strings.Replace(url, "redis://", "redis://weir:password@", 1))
		storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return way.origin(t, nodes...) })
		for _, node := range nodes {
			wantNoDenials(t, node)
		}
	})

	t.Run("current and previous cell share a slot, keys spread over the nodes", func(t *testing.T) {
		o := openOrigin(t, url, redisorigin.Options{})
		for _, name := range []string{"alice", "{", "}", "{}", "a}b{c", "{a}", "\x00", "é"} {
			c := cellNow(name, time.Minute)
			previous := c
			previous.Sequence--
			a, b := command(t, nodes[0], "CLUSTER", "KEYSLOT", o.Key(c)), command(t, nodes[0], "CLUSTER", "KEYSLOT", o.Key(previous))
			if a != b {
				t.Errorf("%s is in slot %v, and %s in slot %v", o.Key(c), a, o.Key(previous), b)
			}
		}
		var costs []store.Cost
		for i := range 300 {
			costs = append(costs, store.Cost{Cell: cellNow(fmt.Sprint("spread", i), time.Minute), Add: 1})
		}
		add(t, o, costs...)
		for _, node := range nodes {
			if n := node.DBSize(t.Context()).Val(); n < 50 {
				t.Errorf("a node has %d of %d keys", n, len(costs))
			}
		}
	})

	// Each bucket has its own epoch, so a count in one bucket does not restore the others.
	t.Run("a silent node restores each bucket that was emptied", func(t *testing.T) {
		command(t, nodes[0], "FLUSHALL")
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: openOrigin(t, url, redisorigin.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		spend := func(name string) {
			d := l.Allow(t.Context(), dataplane.Request{Workspace: "w", Namespace: "n", Identifier: name, Limit: 100,
				Duration: time.Hour, Cost: 10})
			if !d.Allowed {
				t.Fatalf("%s: %+v", name, d)
			}
		}
		var cells []window.Cell
		for i := range 60 {
			name := fmt.Sprint("silent", i)
			cells = append(cells, cellNow(name, time.Hour))
			spend(name)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		other, want := openOrigin(t, url, redisorigin.Options{}), slices.Repeat([]int64{10}, len(cells))
		have := func() bool { return slices.Equal(read(t, other, cells...), want) }
		await.True(t, "all buckets have what the node has sent", have)
		command(t, nodes[1], "FLUSHALL")
		await.True(t, "all buckets have what the node has restored", have)
	})

	// If a bucket has lost an epoch, nodes restore the costs that they have in it, so no other bucket may have the same
	// epoch.
	t.Run("each bucket has an epoch of its own, so that one that is emptied before Stop doubles nothing", func(t *testing.T) {
		for _, node := range nodes {
			command(t, node, "FLUSHALL")
		}
		other := openOrigin(t, url, redisorigin.Options{})
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: openOrigin(t, url, redisorigin.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		var cells []window.Cell
		for i := range 60 {
			name := fmt.Sprint("stopped", i)
			cells = append(cells, cellNow(name, time.Hour))
			l.Allow(t.Context(), dataplane.Request{Workspace: "w", Namespace: "n", Identifier: name, Limit: 100,
				Duration: time.Hour, Cost: 10})
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := slices.Repeat([]int64{10}, len(cells))
		await.True(t, "all buckets have what the node has sent", func() bool {
			return slices.Equal(read(t, other, cells...), want)
		})
		reply, err := other.Read(t.Context(), cells)
		if err != nil {
			t.Fatal(err)
		}
		slot := make(map[store.Epoch]int64)
		for i, total := range reply.Totals {
			at := nodes[0].ClusterKeySlot(t.Context(), other.Key(cells[i])).Val()
			if was, ok := slot[total.Epoch]; ok && was != at {
				t.Errorf("slots %d and %d have the same epoch", was, at)
			}
			slot[total.Epoch] = at
		}
		command(t, nodes[1], "FLUSHALL")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
		for i, n := range read(t, other, cells...) {
			if n > 10 {
				t.Errorf("%s: %d, want at most 10", cells[i].Identifier, n)
			}
		}
	})

	// Calls that a Cluster refuses return an error, and work again by themselves.
	t.Run("a slot that has moved", func(t *testing.T) {
		o := openOrigin(t, url, redisorigin.Options{})
		c := cellNow("moving", time.Hour)
		add(t, o, store.Cost{Cell: c, Add: 5})
		slot := int(nodes[0].ClusterKeySlot(t.Context(), o.Key(c)).Val())
		from := slot * 3 / slots
		to := nodes[(from+1)%3]
		command(t, nodes[from], "FLUSHALL")
		id := command(t, to, "CLUSTER", "MYID")
		for _, node := range append([]*redis.Client{to}, nodes...) {
			command(t, node, "CLUSTER", "SETSLOT", slot, "NODE", id)
		}

		total, failures := int64(0), 0
		await.True(t, "the client has learnt where the slot is", func() bool {
			added := claim(t.Context(), o, store.Cost{Cell: c, Add: 1, AtMost: 9})[0]
			if added.Err == nil {
				total = added.Region
				return true
			}
			failures++
			if !redis.HasErrorPrefix(added.Err, "MOVED") || isMaybe(added.Err) {
				t.Errorf("claim from a slot that has moved: %v", added.Err)
			}
			return false
		})
		if failures == 0 || total != 1 {
			t.Errorf("after %d refusals the total is %d, want at least one refusal and 1", failures, total)
		}
	})
}
