package servers

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// "It writes nothing to disk, even into a directory that was given: after Kill and Restart it is empty"
func TestRedisForgetsOnKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := StartRedis(t.Context(), RedisKindOf(t), Options{Dir: dir})
	must(t, err)
	defer func() { must(t, r.Stop()) }()
	addr := r.Addr()
	client := redisClient(t, addr)
	must(t, client.Set(t.Context(), "k", "v", 0).Err())

	must(t, r.Kill())
	mustRefuse(t, addr)
	must(t, r.Restart(t.Context()))
	if r.Addr() != addr {
		t.Errorf("restarted on %s, was on %s", r.Addr(), addr)
	}
	if err := redisClient(t, addr).Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("after kill and restart: %v, want an empty Redis", err)
	}

	must(t, redisClient(t, addr).Set(t.Context(), "k", "v", 0).Err())
	must(t, r.Restart(t.Context())) // in good order, and yet nothing saved
	if n := redisClient(t, addr).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("after a restart in good order: %d keys, want an empty Redis", n)
	}
}
