package redisorigin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openAt opens an Origin at host:port, closed with the test.
func openAt(t testing.TB, addr string, o redisorigin.Options) *redisorigin.Origin {
	t.Helper()
	return openOrigin(t, "redis://"+addr, o)
}

func openOrigin(t testing.TB, rawURL string, o redisorigin.Options) *redisorigin.Origin {
	t.Helper()
	return openAll(t, []string{rawURL}, o)
}

func openAll(t testing.TB, urls []string, o redisorigin.Options) *redisorigin.Origin {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var all []string
	for _, url := range urls {
		all = append(all, patient(url))
	}
	h, err := redisorigin.Open(all, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return h
}

// clientTimeout is the timeout of the clients in these tests. It is so long that even a busy machine does not reach it:
// a call ends by its ctx or by an answer.
const clientTimeout = time.Minute

func patient(rawURL string) string {
	parameters := "?"
	if strings.Contains(rawURL, "?") {
		parameters = "&"
	}
	for _, of := range []string{"dial", "read", "write", "pool"} {
		if name := of + "_timeout"; !strings.Contains(rawURL, name) {
			parameters += name + "=" + clientTimeout.String() + "&"
		}
	}
	return rawURL + strings.TrimSuffix(parameters, "&")
}

// rawClient looks at a server past the Origin.
func rawClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// add sends costs, chunks to each shard that is concerned, each on a stream of its own.
func add(t testing.TB, h *redisorigin.Origin, costs ...store.Cost) []int64 {
	t.Helper()
	totals := make([]int64, len(costs))
	for shard, places := range placesOf(h, len(costs), func(i int) *window.Key { return &costs[i].Cell.Key }) {
		for places := range slices.Chunk(places, store.ChunkMax) {
			chunk := store.Chunk{Shard: shard, Stream: streams.Add(1), Number: 1}
			for _, i := range places {
				chunk.Costs = append(chunk.Costs, costs[i])
			}
			reply, err := h.Send(t.Context(), chunk)
			if err != nil {
				t.Fatal(err)
			}
			for j, i := range places {
				if err := reply.Totals[j].Err; err != nil {
					t.Fatal(err)
				}
				totals[i] = reply.Totals[j].Region
			}
		}
	}
	return totals
}

var streams atomic.Uint64

// keeping is an origin to which a single stream sends, as a limiter does: chunks that a failover has lost are sent
// again.
type keeping struct {
	store.FullOrigin
	stream *resend.Stream
}

func keep(h store.FullOrigin) keeping { return keeping{h, resend.New(new(atomic.Int64))} }

func (k keeping) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	return k.stream.Send(ctx, k.FullOrigin.Send, chunk)
}

func placesOf(h *redisorigin.Origin, n int, key func(i int) *window.Key) map[int][]int {
	places := make(map[int][]int)
	for i := range n {
		shard := h.ShardOf(key(i))
		places[shard] = append(places[shard], i)
	}
	return places
}

// read returns the region's totals of cells.
func read(t testing.TB, h *redisorigin.Origin, cells ...window.Cell) []int64 {
	t.Helper()
	totals := make([]int64, len(cells))
	for _, places := range placesOf(h, len(cells), func(i int) *window.Key { return &cells[i].Key }) {
		var asked []window.Cell
		for _, i := range places {
			asked = append(asked, cells[i])
		}
		reply, err := h.Read(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		for j, i := range places {
			totals[i] = reply.Totals[j].Region
		}
	}
	return totals
}

// addOne sends a bounded cost that has room, and returns its error.
func addOne(ctx context.Context, h *redisorigin.Origin, c window.Cell, cost int64) error {
	return claim(ctx, h, store.Cost{Cell: c, Add: cost, AtMost: store.CountMax})[0].Err
}

// claim sends costs of one shard as the first chunk of a stream. If the chunk fails, each total has its error.
func claim(ctx context.Context, h *redisorigin.Origin, costs ...store.Cost) []store.Total {
	return totalsOf(h.Send(ctx, store.Chunk{Shard: h.ShardOf(&costs[0].Cell.Key), Stream: streams.Add(1), Number: 1,
		Costs: costs}))
}

func totalsOf(reply store.Reply, err error) []store.Total {
	if err != nil {
		return []store.Total{{Err: err}}
	}
	return reply.Totals
}

func isMaybe(err error) bool { return err != nil && !errors.Is(err, store.ErrNotApplied) }

func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
