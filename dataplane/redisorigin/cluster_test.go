package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

const slots = 16384

// clusterForTest starts a Cluster of three masters and returns clients of each.
func clusterForTest(t *testing.T) []*redis.Client {
	t.Helper()
	var nodes []*redis.Client
	var busPorts []string
	for i := range 3 {
		busPorts = append(busPorts, freePort(t))
		server, err := servers.StartRedis(t.Context(), servers.Options{Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", busPorts[i], "--cluster-node-timeout", "5000"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
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

func TestClusterKeepsTheContract(t *testing.T) {
	nodes := clusterForTest(t)
	url := "redis://" + nodes[0].Options().Addr + "?cluster=true"
	storetest.TestOrigin(t, func(t testing.TB) store.Origin {
		for _, node := range nodes {
			command(t, node, "FLUSHALL")
		}
		return openURL(t, url, redisorigin.Options{})
	})

	t.Run("current and previous cell share a slot, keys spread over the nodes", func(t *testing.T) {
		o := openURL(t, url, redisorigin.Options{})
		for _, name := range []string{"alice", "{", "}", "{}", "a}b{c", "{a}", "\x00", "é"} {
			c := cellNow(name, time.Minute)
			previous := c
			previous.Sequence--
			a, b := command(t, nodes[0], "CLUSTER", "KEYSLOT", o.Key(c)), command(t, nodes[0], "CLUSTER", "KEYSLOT", o.Key(previous))
			if a != b {
				t.Errorf("%s is in slot %v, and %s in slot %v", o.Key(c), a, o.Key(previous), b)
			}
		}
		var adds []store.Add
		for i := range 300 {
			adds = append(adds, store.Add{Cell: cellNow(fmt.Sprint("spread", i), time.Minute), Cost: 1})
		}
		add(t, o, adds...)
		for _, node := range nodes {
			if n := node.DBSize(t.Context()).Val(); n < 50 {
				t.Errorf("a node has %d of %d keys", n, len(adds))
			}
		}
	})

	t.Run("a value that is no count", func(t *testing.T) {
		o := openURL(t, url, redisorigin.Options{})
		raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Options().Addr}})
		defer raw.Close()
		sound, list, word := cellNow("sound", time.Minute), cellNow("list", time.Minute), cellNow("word", time.Minute)
		add(t, o, store.Add{Cell: sound, Cost: 3})
		raw.LPush(t.Context(), o.Key(list), "x")
		raw.Set(t.Context(), o.Key(word), "x", 0)
		if got := read(t, o, list, word, sound); !slices.Equal(got, []int64{0, 0, 3}) {
			t.Errorf("totals are %v", got)
		}
		if n := gathered(t, o)["weir_origin_garbage_values_total"]; n != 2 {
			t.Errorf("counted %v garbage values", n)
		}
		healGarbage(t, o, list, "a list")
	})

	t.Run("the README's user", func(t *testing.T) {
		rights := append(readmeRights(t), "+cluster|slots", "+cluster|shards", "+command", "+readonly")
		for _, node := range nodes {
			command(t, node, rights...)
		}
		o := openURL(t, strings.Replace(url, "redis://", "redis://weir:password@", 1), redisorigin.Options{})
		c := cellNow("allowed", time.Minute)
		if got := add(t, o, store.Add{Cell: c, Cost: 2})[0]; got != 2 || read(t, o, c)[0] != 2 {
			t.Errorf("total is %d", got)
		}
	})

	// go-redis follows a Cluster's redirections by repeating calls, those with a lost
	// reply too; "It never retries by itself".
	t.Run("a lost reply", func(t *testing.T) {
		options, err := redisorigin.ClientOptions(url)
		if err != nil {
			t.Fatal(err)
		}
		var deaf atomic.Bool
		options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return deafConn{conn, &deaf}, err
		}
		client := redis.NewUniversalClient(options)
		defer client.Close()
		o, err := redisorigin.New(client, redisorigin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := cellNow("lost", time.Hour)
		add(t, o, store.Add{Cell: c, Cost: 1})
		for patience, applied := patience, int64(0); applied == 0; patience *= 2 { // until there is time to send it
			deaf.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err := addOne(ctx, o, c, 1)
			cancel()
			deaf.Store(false)
			if applied = read(t, o, c)[0] - 1; err == nil || applied > 1 || applied == 1 && !isMaybe(err) {
				t.Fatalf("applied %d times: %v", applied, err)
			}
		}
	})

	// What a Cluster refuses is told as refused, and works again by itself.
	t.Run("a slot that has moved", func(t *testing.T) {
		o := openURL(t, url, redisorigin.Options{})
		c := cellNow("moving", time.Hour)
		add(t, o, store.Add{Cell: c, Cost: 5})
		slot := int(nodes[0].ClusterKeySlot(t.Context(), o.Key(c)).Val())
		from := slot * 3 / slots
		to := nodes[(from+1)%3]
		command(t, nodes[from], "DEL", o.Key(c))
		id := command(t, to, "CLUSTER", "MYID")
		for _, node := range append([]*redis.Client{to}, nodes...) {
			command(t, node, "CLUSTER", "SETSLOT", slot, "NODE", id)
		}

		total, failures := int64(0), 0
		await.True(t, "the client has learnt where the slot is", func() bool {
			added := o.Add(t.Context(), []store.Add{{Cell: c, Cost: 1}})[0]
			if added.Err == nil {
				total = added.Total
				return true
			}
			failures++
			if !redis.HasErrorPrefix(added.Err, "MOVED") || errors.Is(added.Err, store.ErrMaybeApplied) {
				t.Errorf("add to a slot that has moved: %v", added.Err)
			}
			return false
		})
		if failures == 0 || total != 1 {
			t.Errorf("after %d refusals the total is %d, want at least one refusal and 1", failures, total)
		}
	})
}

// deafConn hears nothing while it is deaf, as if the replies were lost.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}
