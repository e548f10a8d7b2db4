package redisorigin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
)

func TestOriginOfPartitionsKeepsTheContract(t *testing.T) {
	var ways []*lossyWay
	var raws []*redis.Client
	for range 2 {
		server, raw := serverOfUser(t)
		ways, raws = append(ways, newLossyWay(t, asUser(server.Addr()))), append(raws, raw)
	}
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return originOf(t, ways, raws...) })
	for _, raw := range raws {
		wantNoDenials(t, raw)
	}
}

// lossyWay is a client whose replies can be lost after the server has acted.
type lossyWay struct {
	client redis.UniversalClient
	loses  atomic.Bool
}

func newLossyWay(t testing.TB, url string) *lossyWay {
	options, err := redisorigin.ClientOptions(patient(url))
	if err != nil {
		t.Fatal(err)
	}
	w := &lossyWay{}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &lossyConn{Conn: conn, loses: &w.loses}, err
	}
	w.client = redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

// lossyConn breaks with a script's reply that is lost. The client greets a server as late as it first uses a spare
// connection: were that reply lost, the script would never be sent.
type lossyConn struct {
	net.Conn
	loses   *atomic.Bool
	greeted atomic.Bool // a script has been sent
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("eval")) {
		c.greeted.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.greeted.Load() && c.loses.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (w *lossyWay) origin(t testing.TB, servers ...*redis.Client) storetest.Origin {
	return originOf(t, []*lossyWay{w}, servers...)
}

// originOf returns an Origin on these ways, with hooks that reach all of its servers.
func originOf(t testing.TB, ways []*lossyWay, servers ...*redis.Client) storetest.Origin {
	t.Helper()
	wipe := func(t testing.TB) {
		t.Helper()
		for _, s := range servers {
			command(t, s, "FLUSHALL")
		}
	}
	wipe(t)
	open := func(t testing.TB) store.Origin {
		t.Helper()
		var partitions []redisorigin.Partition
		for i, w := range ways {
			partitions = append(partitions, redisorigin.Partition{Client: w.client, Name: letters(len(ways))[i]})
		}
		if len(ways) == 1 {
			partitions[0].Name = ""
		}
		h, err := redisorigin.New(partitions, redisorigin.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	return storetest.Origin{
		Origin: open(t),
		Client: open,
		Lose: func(lose bool) {
			for _, w := range ways {
				w.loses.Store(lose)
			}
		},
		Wipe:      wipe,
		Grow:      func(t testing.TB) { grow(t, servers) },
		State:     func(t testing.TB) func(testing.TB) { return dumped(t, servers) },
		Histories: true,
		Clock: func(t testing.TB) time.Time {
			now, err := servers[0].Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			return now
		},
	}
}

// grow makes all buckets of servers look old.
func grow(t testing.TB, servers []*redis.Client) {
	t.Helper()
	const script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1] .. ' 0')"
	for _, s := range servers {
		for n := -1; n < 256; n++ {
			bucket := "weir:{origin}:"
			if n >= 0 {
				bucket = fmt.Sprintf("weir:{origin%d}:", n)
			}
			err := s.Eval(t.Context(), script, []string{bucket + "epoch", bucket + "since"}, n+1024).Err()
			if err != nil && !errors.Is(err, redis.Nil) && !strings.HasPrefix(err.Error(), "MOVED") {
				t.Fatal(err)
			}
		}
	}
}

// dumped remembers all keys of servers, and restores them.
func dumped(t testing.TB, servers []*redis.Client) func(testing.TB) {
	t.Helper()
	type value struct {
		dump string
		ttl  time.Duration
	}
	values := make([]map[string]value, len(servers))
	for i, s := range servers {
		values[i] = make(map[string]value)
		for _, key := range s.Keys(t.Context(), "*").Val() {
			dump, err := s.Dump(t.Context(), key).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			values[i][key] = value{dump, max(0, s.PTTL(t.Context(), key).Val())}
		}
	}
	return func(t testing.TB) {
		t.Helper()
		for i, s := range servers {
			command(t, s, "FLUSHALL")
			for key, v := range values[i] {
				if err := s.Restore(t.Context(), key, v.ttl, v.dump).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
