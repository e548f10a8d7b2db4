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
	program, err := servers.FindRedis(t.Context(), servers.RedisKindOf(t))
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

// failover is a primary with a replica, which a sentinel promotes.
type failover struct {
	primary  *servers.Redis
	replica  *redis.Client
	link     *servers.Proxy // from the replica to its primary
	sentinel string
}

func newFailover(t *testing.T) *failover {
	primary, replica := servers.RedisForTest(t), servers.RedisForTest(t)
	f := &failover{primary: primary, replica: rawClient(t, replica.Addr()), link: servers.ProxyForTest(t, primary.Addr())}
	command(t, rawClient(t, primary.Addr()), "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	_, linkPort := splitAddr(t, f.link.Addr())
	command(t, f.replica, "REPLICAOF", "127.0.0.1", linkPort)
	await.True(t, "the replica has its primary's data", func() bool {
		return infoField(t, f.replica, "master_link_status") == "up"
	})
	_, port := splitAddr(t, primary.Addr()) // a sentinel that starts now finds the replica at once
	f.sentinel = sentinelForTest(t, port)
	raw := redis.NewSentinelClient(&redis.Options{Addr: f.sentinel})
	defer raw.Close()
	await.True(t, "the sentinel knows the replica", func() bool {
		replicas, err := raw.Replicas(t.Context(), "weir").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return f
}

// stopReplication returns once the replica has all, and gets nothing more.
func (f *failover) stopReplication(t *testing.T) {
	t.Helper()
	at := rawClient(t, f.primary.Addr())
	await.True(t, "the replica has all", func() bool {
		return infoField(t, at, "master_repl_offset") == infoField(t, f.replica, "slave_repl_offset")
	})
	f.link.BlackHole(true)
}

// failOver kills the primary, and returns once the replica is the primary.
func (f *failover) failOver(t *testing.T) {
	t.Helper()
	if err := f.primary.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the replica is promoted", func() bool { return infoField(t, f.replica, "role") == "master" })
}

// A failover: calls fail while it lasts, no call is repeated, and calls go on at the new primary, with the data that it
// had received.
func TestSentinelFailsOver(t *testing.T) {
	f := newFailover(t)
	o := openOrigin(t, "redis://"+f.sentinel+"?master=weir", redisorigin.Options{})
	c := cellNow("x", time.Hour)
	add(t, o, store.Cost{Cell: c, Add: 5})
	f.stopReplication(t)
	if err := f.primary.Kill(); err != nil {
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
