package redisorigin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openAt opens an Origin at host:port, closed with the test.
func openAt(t testing.TB, addr string, o redisorigin.Options) *redisorigin.Origin {
	t.Helper()
	return openURL(t, "redis://"+addr, o)
}

func openURL(t testing.TB, rawURL string, o redisorigin.Options) *redisorigin.Origin {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	origin, err := redisorigin.OpenPartitions([]string{patient(rawURL)}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := origin.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return origin
}

// clientTimeout is that of the clients in these tests, which the machine does not reach however busy it is: what ends a
// call before it is its ctx, or an answer.
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

func add(t testing.TB, o *redisorigin.Origin, adds ...store.Add) []int64 {
	t.Helper()
	totals := make([]int64, len(adds))
	for i, a := range o.Add(t.Context(), adds) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		totals[i] = a.Total
	}
	return totals
}

func read(t testing.TB, o *redisorigin.Origin, cells ...window.Cell) []int64 {
	t.Helper()
	totals, err := o.Read(t.Context(), cells)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// addOne is one increment's error and nothing else.
func addOne(ctx context.Context, o *redisorigin.Origin, c window.Cell, cost int64) error {
	return o.Add(ctx, []store.Add{{Cell: c, Cost: cost}})[0].Err
}

func isMaybe(err error) bool { return errors.Is(err, store.ErrMaybeApplied) }

func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
