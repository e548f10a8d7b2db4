package nodecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// command is weir-node, running in this process.
type command struct {
	stdout, stderr await.Log
	stop           context.CancelFunc
	code           chan int
	listen, admin  string
	grpc           string
}

func begin(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &command{stop: stop, code: make(chan int, 1)}
	args = append(args, "--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0")
	go func() { c.code <- Main(ctx, args, &c.stdout, &c.stderr) }()
	t.Cleanup(stop)
	await.True(t, "the log says where it serves", func() bool {
		for line := range strings.Lines(c.stderr.String()) {
			var event struct {
				Msg    string
				Listen string
				Admin  string `json:"admin_listen"`
				GRPC   string `json:"grpc_listen"`
			}
			if json.Unmarshal([]byte(line), &event) == nil && event.Msg == "serving" {
				c.listen, c.admin, c.grpc = "http://"+event.Listen, "http://"+event.Admin, event.GRPC
				return true
			}
		}
		return false
	})
	return c
}

// end stops the command and returns its exit code.
func (c *command) end() int {
	c.stop()
	return <-c.code
}

// endWell stops the command, whose exit code must be 0.
func (c *command) endWell(t *testing.T) {
	t.Helper()
	if code := c.end(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, &c.stderr)
	}
}

func (c *command) ask(t *testing.T, identifier string, cost int64) *weirv1.LimitResponse {
	t.Helper()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	client := weirv1connect.NewRateLimitServiceClient(&http.Client{Transport: transport}, c.listen, connect.WithProtoJSON())
	response, err := client.Limit(t.Context(), connect.NewRequest(&weirv1.LimitRequest{
		Workspace: "acme", Namespace: "api", Identifier: identifier, Limit: 10, DurationMs: (24 * time.Hour).Milliseconds(), Cost: cost, ZeroCost: cost == 0,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return response.Msg
}

func (c *command) get(t *testing.T, path string) (int, string) {
	t.Helper()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(c.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(answer)
}

// A node starts, is ready and decides while its Redis and its MySQL are down, and logs that. As soon as they are up it
// is a member of its region and fleet, without any action, and with its earlier counts.
func TestServersComeUpLater(t *testing.T) { servers.EachSQL(t, testServersComeUpLater) }

func testServersComeUpLater(t *testing.T) {
	redis := servers.ProxyForTest(t, servers.RedisForTest(t).Addr())
	maria := servers.SQLForTest(t)
	dsn := migrated(t, maria)
	mysql := servers.ProxyForTest(t, maria.Addr())
	redis.Cut()
	mysql.Cut()

	c := begin(t, "--region=eu", "--node-id=node-1",
		"--redis-url=redis://"+redis.Addr(), "--mysql-dsn="+strings.Replace(dsn, maria.Addr(), mysql.Addr(), 1))
	if got := c.ask(t, "early", 5); !got.Allowed || got.Source != weirv1.Source_SOURCE_DEGRADED {
		t.Errorf("without Redis: %v", got)
	}
	if status, answer := c.get(t, "/readyz"); status != 200 {
		t.Errorf("without Redis: /readyz %d %s", status, answer)
	}
	for _, warning := range []string{"Redis does not answer", "relay cannot renew the lease", "settings fails"} {
		await.True(t, "the log warns: "+warning, func() bool { return strings.Contains(c.stderr.String(), warning) })
	}

	for _, proxy := range []*servers.Proxy{redis, mysql} {
		if err := proxy.Heal(); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "decisions come from Redis", func() bool { return c.ask(t, "late", 0).Source == weirv1.Source_SOURCE_ORIGIN })
	await.True(t, "MySQL is read again", func() bool { return strings.Contains(c.stderr.String(), "settings works again") })
	if _, metrics := c.get(t, "/metrics"); !strings.Contains(metrics, `weir_node_info{build="`+Build()+`",node_id="node-1",region="eu"} 1`) || !strings.Contains(metrics, "weir_rpc_in_flight 0") {
		t.Error("/metrics lacks the node's name or its calls")
	}

	second := begin(t, "--region=eu", "--redis-url=redis://"+redis.Addr())
	await.True(t, "another node of the region knows", func() bool { return second.ask(t, "early", 0).Remaining == 5 })
	if code := second.end(); code != 0 {
		t.Errorf("second node: exit code %d\n%s", code, &second.stderr)
	}

	await.True(t, "the relay has stored what was counted before", func() bool { return seenFrom(t, dsn, "us")["early"] == 5 })
	c.endWell(t)
	if c.stdout.String() != "" {
		t.Errorf("stdout of a configured node: %q", &c.stdout)
	}
}

// If one of two independent servers is down, the log names it. Its keys are decided locally, the keys of the other
// server there, and each server has its own series.
func TestOneOfTwoRedisServersIsDown(t *testing.T) {
	down := servers.ProxyForTest(t, servers.RedisForTest(t).Addr())
	down.Cut()
	up := servers.RedisForTest(t)
	c := begin(t, "--region=eu", "--redis-url=left=redis://"+down.Addr()+" right=redis://"+up.Addr())
	await.True(t, "the log names the server that is down", func() bool {
		return strings.Contains(c.stderr.String(), "Redis does not answer") && strings.Contains(c.stderr.String(), "left ("+down.Addr()+")")
	})
	if strings.Contains(c.stderr.String(), "right ("+up.Addr()+")") {
		t.Errorf("the other one is complained of:\n%s", &c.stderr)
	}
	sources := make(map[weirv1.Source]int)
	for i := range 20 {
		answer := c.ask(t, fmt.Sprint("user-", i), 1)
		if !answer.Allowed {
			t.Errorf("user-%d is denied", i)
		}
		sources[answer.Source]++
	}
	if sources[weirv1.Source_SOURCE_ORIGIN] == 0 || sources[weirv1.Source_SOURCE_DEGRADED] == 0 {
		t.Errorf("decisions came from %v, want both some of Redis and some without", sources)
	}
	_, metrics := c.get(t, "/metrics")
	for _, name := range []string{"left", "right"} {
		if !strings.Contains(metrics, `weir_origin_pool_connections{partition="`+name+`"}`) {
			t.Errorf("/metrics lacks the pool of %s", name)
		}
	}
	if err := down.Heal(); err != nil {
		t.Fatal(err)
	}
	c.endWell(t)
}

// Cost that could not be sent before the end is not lost in silence.
func TestUnsentCostIsAFailure(t *testing.T) {
	redis := servers.ProxyForTest(t, servers.RedisForTest(t).Addr())
	redis.Cut()
	c := begin(t, "--region=eu", "--redis-url=redis://"+redis.Addr(), "--drain-timeout=300ms")
	c.ask(t, "user_1", 3)
	if code := c.end(); code != 1 || !strings.Contains(c.stderr.String(), "cost 3 was not confirmed") {
		t.Errorf("exit code %d\n%s", code, &c.stderr)
	}
}

// A port that is taken ends the command with an error that names it.
func TestTakenPort(t *testing.T) {
	c := begin(t)
	var stdout, stderr await.Log
	taken := strings.TrimPrefix(c.listen, "http://")
	if code := Main(t.Context(), []string{"--listen=" + taken, "--grpc-listen=", "--admin-listen=127.0.0.1:0"}, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), taken) {
		t.Errorf("exit code %d\n%s", code, &stderr)
	}
	if stdout.String() != "" {
		t.Errorf("invited to a port of somebody else's: %s", &stdout)
	}
	c.endWell(t)
}

// Passwords do not reach the log, at any level, whether or not their servers answer.
func TestLogHoldsNoSecrets(t *testing.T) {
	t.Setenv("WEIR_REDIS_URL", "redis://weir:"+secret+"@127.0.0.1:1")
	t.Setenv("WEIR_MYSQL_DSN", "weir:"+secret+"@tcp(127.0.0.1:1)/weir")
	c := begin(t, "--region=eu", "--log-level=debug", "--drain-timeout=100ms")
	await.True(t, "the log warns of both", func() bool {
		log := c.stderr.String()
		return strings.Contains(log, "Redis does not answer") && strings.Contains(log, "settings fails")
	})
	c.end()
	if log := c.stderr.String(); strings.Contains(log, secret) || !strings.Contains(log, "weir:xxxxx@") {
		t.Errorf("the log holds the password, or not even where it led:\n%s", log)
	}
}

// The version and the help are printed, and nothing is started.
func TestVersionAndHelp(t *testing.T) {
	for flag, want := range map[string]string{"--version": "weir-node " + Build() + "\n", "--help": "--insecure-public"} {
		var stdout, stderr await.Log
		if code := Main(t.Context(), []string{flag}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), want) {
			t.Errorf("%s: exit code %d\n%s%s", flag, code, &stdout, &stderr)
		}
	}
}

// Two nodes on one host have different IDs.
func TestNodeIDs(t *testing.T) {
	first, second := newNodeID(), newNodeID()
	if first == second || len(first) > nodeIDBytesMax {
		t.Errorf("node IDs are %q and %q", first, second)
	}
}

// migrated makes a database with the tables.
func migrated(t *testing.T, maria *servers.SQL) (dsn string) {
	t.Helper()
	dsn = maria.DatabaseForTest(t)
	schematest.Open(t, dsn, mysqlcounts.Open)
	return dsn
}

// seenFrom returns the counts of other regions that a region gets, by identifier.
func seenFrom(t *testing.T, dsn, region string) map[string]int64 {
	t.Helper()
	db, err := mysqlcounts.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	seen := make(map[string]int64)
	err = mysqlcounts.New(db, mysqlcounts.Options{}).Import(t.Context(), time.Now().UnixMilli(), func(of string, n store.Count) {
		if of != region {
			seen[n.Cell.Identifier] += n.Count
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
