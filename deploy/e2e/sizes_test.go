package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// How much memory and processor time a node and its region's Redis need for keys that are each requested several times.
// The table in deploy/PRODUCTION.md has the figures. A run of all tests measures a few keys against generous bounds;
// WEIR_SOAK=1 measures the table's.
func TestSoakSizesOfANodeAndItsRedis(t *testing.T) {
	sizes := []int{20_000}
	if os.Getenv("WEIR_SOAK") != "" {
		sizes = []int{10_000, 100_000, 1_000_000}
	}
	for _, keys := range sizes {
		t.Run(fmt.Sprint(keys), func(t *testing.T) { testSizes(t, keys) })
	}
}

const (
	sizesRounds  = 3
	sizesBatch   = 500
	sizesCallers = 8
)

func testSizes(t *testing.T, keys int) {
	began, node := startSized(t, keys)
	before := began()
	start := time.Now()
	for range sizesRounds {
		askAll(t, node, keys)
	}
	asked := time.Since(start)
	await.True(t, "Redis has every key", func() bool { return node.figure(t, "weir_replay_pending_cost") == 0 })
	after := began()
	calls := float64(keys * sizesRounds)
	redisPerKey := (after.redisBytes - before.redisBytes) / float64(keys)
	t.Logf("%d keys, %.0f requests a second: node %.0f MiB and %.2f µs of CPU a request; Redis %.0f MiB, %.0f B a key, "+
		"%.2f µs of CPU a key and round", keys, calls/asked.Seconds(), after.nodeBytes/(1<<20),
		(after.nodeCPU-before.nodeCPU)/calls*1e6, after.redisBytes/(1<<20), redisPerKey,
		(after.redisCPU-before.redisCPU)/calls*1e6)
	if redisPerKey < 20 || redisPerKey > 400 {
		t.Errorf("Redis took %.0f B a key", redisPerKey)
	}
	if most := float64(128<<20 + 2*250*keys); after.nodeBytes > most {
		t.Errorf("the node took %.0f MiB, want at most %.0f", after.nodeBytes/(1<<20), most/(1<<20))
	}
}

// sized holds the memory and processor time that two processes have used so far.
type sized struct{ nodeBytes, nodeCPU, redisBytes, redisCPU float64 }

type sizedNode struct {
	*stack.Node
	window time.Duration
}

// startSized starts a Redis and a node, and returns how to look at both.
func startSized(t *testing.T, keys int) (look func() sized, node sizedNode) {
	t.Helper()
	server := servers.RedisForTest(t)
	program, err := servers.StartProgram(t.Context(), servers.ProgramOptions{
		Name: "weir-node", Path: filepath.Join(bin, "weir-node"), Options: servers.Options{Dir: t.TempDir()}, Ports: []int{0, 0},
		Args: func(addrs []string) []string {
			return []string{"--listen=" + addrs[0], "--admin-listen=" + addrs[1], "--grpc-listen=", "--region=eu",
				"--redis-url=redis://" + server.Addr(), fmt.Sprint("--entries-max=", keys+keys/4)}
		},
		Ready: func(addrs []string) string { return "http://" + addrs[1] + "/readyz" },
	})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() {
		_ = client.Close()
		if err := program.Stop(); err != nil {
			t.Error(err)
		}
	})
	node = sizedNode{&stack.Node{Program: program, Region: "eu", ID: "eu-1"}, roomyWindow()}
	return func() sized {
		t.Helper()
		info, err := client.Info(t.Context(), "memory", "cpu").Result()
		if err != nil {
			t.Fatal(err)
		}
		return sized{
			nodeBytes: node.figure(t, "process_resident_memory_bytes"), nodeCPU: node.figure(t, "process_cpu_seconds_total"),
			redisBytes: figure(t, info, `used_memory:`), redisCPU: figure(t, info, "used_cpu_user:") + figure(t, info, "used_cpu_sys:"),
		}
	}, node
}

func (n sizedNode) figure(t *testing.T, metric string) float64 {
	t.Helper()
	text, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return figure(t, text, metric+" ")
}

func figure(t *testing.T, text, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `(\S+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in\n%s", name, text)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// askAll makes a request for every key, in batches, because the wire is not measured.
func askAll(t *testing.T, n sizedNode, keys int) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: sizesCallers}
	defer transport.CloseIdleConnections()
	node := weirv1connect.NewRateLimitServiceClient(&http.Client{Transport: transport, Timeout: await.Patience}, n.URL())
	var asking sync.WaitGroup
	for caller := range sizesCallers {
		asking.Go(func() {
			for from := caller * sizesBatch; from < keys; from += sizesCallers * sizesBatch {
				in := &weirv1.LimitManyRequest{}
				for i := from; i < min(from+sizesBatch, keys); i++ {
					in.Requests = append(in.Requests, limitRequest(fmt.Sprintf("user_%09d", i), 1, 100, n.window))
				}
				if _, err := node.LimitMany(context.WithoutCancel(t.Context()), connect.NewRequest(in)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
}
