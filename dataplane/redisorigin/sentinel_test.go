package redisorigin_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// sentinelForTest watches a primary and returns its address.
func sentinelForTest(t *testing.T, primaryPort string) (addr string) {
	t.Helper()
	program, err := servers.FindRedis()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	config := textFile(t, fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor weir 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds weir 300\nsentinel failover-timeout weir 2000\n", port, primaryPort))
	sentinel := exec.Command(program, config, "--sentinel")
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sentinel.Process.Kill()
		_ = sentinel.Wait() // its end is that of a killed process
	})
	return "127.0.0.1:" + port
}

// A failover: calls fail while it lasts, none is repeated, and go on at the new
// primary, with what it had received.
func TestSentinelFailsOver(t *testing.T) {
	primary, replica := servers.RedisForTest(t), servers.RedisForTest(t)
	_, primaryPort := splitAddr(t, primary.Addr())
	atReplica := rawClient(t, replica.Addr())
	command(t, atReplica, "REPLICAOF", "127.0.0.1", primaryPort)
	sentinel := sentinelForTest(t, primaryPort)
	raw := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer raw.Close()
	await.True(t, "the sentinel knows the replica", func() bool {
		replicas, err := raw.Replicas(t.Context(), "weir").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})

	o := openOrigin(t, "redis://"+sentinel+"?master=weir", redisorigin.Options{})
	c := cellNow("x", time.Hour)
	add(t, o, store.Cost{Cell: c, Add: 5})
	await.True(t, "the replica has received it", func() bool {
		n, err := atReplica.HGet(t.Context(), o.Key(c), "a").Int64()
		return err == nil && n == 5
	})
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	applied, unknown := int64(0), int64(0)
	await.True(t, "increments pass at the new primary", func() bool {
		switch err := addOne(t.Context(), o, c, 1); {
		case err == nil:
			applied++
		case isMaybe(err):
			unknown++
		}
		return applied > 0
	})
	if got := read(t, o, c)[0]; got < 5+applied || got > 5+applied+unknown {
		t.Errorf("total is %d after 5, %d more and %d that are unknown", got, applied, unknown)
	}
}
