package faults

import (
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// programEnv has the test's program run as weir-node.
const programEnv = "WEIR_FAULTS_PROGRAM"

// program is a weir-node in a process of its own.
type program struct {
	*servers.Program
	weirv1connect.RateLimitServiceClient
	down atomic.Bool // it is killed, or not ready yet
}

// startPrograms starts nodes of a region with a Redis, and with a database unless dsn is empty.
func startPrograms(t *testing.T, redis *servers.Redis, dsn string, ids ...string) []*program {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 300, IdleConnTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	caller := &http.Client{Transport: transport}
	var all []*program
	for _, id := range ids {
		p, err := servers.StartProgram(t.Context(), servers.ProgramOptions{
			Name: "weir-node-" + id, Path: path, Ports: []int{0, 0},
			Options: servers.Options{Dir: t.TempDir()},
			Args: func(addrs []string) []string {
				return []string{"--listen=" + addrs[0], "--admin-listen=" + addrs[1], "--grpc-listen=", "--region=eu",
					"--node-id=" + id, "--redis-url=redis://" + redis.Addr(), "--drain-timeout=1s"}
			},
			Env:   []string{programEnv + "=1", raceEnds, "WEIR_MYSQL_DSN=" + dsn},
			Ready: func(addrs []string) string { return "http://" + addrs[1] + "/readyz" },
		})
		must(t, err)
		t.Cleanup(func() { must(t, p.Stop()) })
		all = append(all, &program{Program: p,
			RateLimitServiceClient: weirv1connect.NewRateLimitServiceClient(caller, "http://"+p.Addrs()[0])})
	}
	return all
}

// anyOf returns a node that is up, if there is one, as a load balancer would choose it, for example by readiness.
func anyOf(nodes []*program) *program {
	first := rand.N(len(nodes))
	for i := range nodes {
		if n := nodes[(first+i)%len(nodes)]; !n.down.Load() {
			return n
		}
	}
	return nodes[first]
}
