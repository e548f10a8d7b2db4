package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/restate/orderkey"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// TestMain is also the process that a test kills: see child_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		childMain()
		return
	}
	goleak.VerifyTestMain(withChildDir{servers.ShareSQL(m)})
}

// withChildDir creates a directory for the child's program while the tests run.
type withChildDir struct{ tests interface{ Run() int } }

func (w withChildDir) Run() int {
	dir, err := os.MkdirTemp("", "weir-handlers-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	childDir = dir
	return w.tests.Run()
}

// cluster is a Restate of a test's own, the handlers in this process, and a client.
type cluster struct {
	t       *testing.T
	restate *servers.Restate // the first, if there are several
	nodes   []*servers.Restate
	http    *http.Client
	client  *Client
	options Options
	jobs    func(*stepper) map[string]Job

	endpoint *Endpoint // nil while down
	address  string    // the endpoint's, the same for the whole test
	served   chan error
}

// newCluster serves jobs and registers them.
func newCluster(t *testing.T, o Options, jobs func(*stepper) map[string]Job) *cluster {
	t.Helper()
	return newClusterOn(t, []*servers.Restate{servers.RestateForTest(t)}, o, jobs)
}

func newClusterOn(t *testing.T, nodes []*servers.Restate, o Options, jobs func(*stepper) map[string]Job) *cluster {
	t.Helper()
	c := &cluster{t: t, restate: nodes[0], nodes: nodes, http: &http.Client{Transport: &http.Transport{}}, options: o, jobs: jobs}
	t.Cleanup(c.http.CloseIdleConnections)
	var ingresses []string
	for _, node := range nodes {
		ingresses = append(ingresses, node.IngressURL())
	}
	c.client = NewClient(c.http, testKeys, ingresses...)
	c.options.Orders = testKeys
	if c.options.Log == nil {
		c.options.Log = slog.New(slog.DiscardHandler)
	}
	if c.options.Metrics == nil {
		c.options.Metrics = controlplane.NewMetrics()
	}
	if c.options.Audit == nil {
		c.options.Audit = &auditRows{}
	}
	c.up()
	t.Cleanup(c.down)
	c.register()
	return c
}

// up serves the handlers, at the same address as before.
func (c *cluster) up() {
	c.t.Helper()
	var err error
	if c.endpoint, err = newEndpoint(c.options, c.jobs); err != nil {
		c.t.Fatal(err)
	}
	l := listen(c.t, c.address)
	c.address = l.Addr().String()
	served := make(chan error, 1)
	c.served = served
	go func(e *Endpoint) { served <- e.Serve(l) }(c.endpoint)
}

// down cuts the handlers off, as a crash would.
func (c *cluster) down() {
	if c.endpoint == nil {
		return
	}
	if err := c.endpoint.Close(); err != nil {
		c.t.Error(err)
	}
	if err := <-c.served; err != nil {
		c.t.Error(err)
	}
	c.endpoint = nil
}

func (c *cluster) registrar() *Registrar {
	return NewRegistrar(c.adminClient(), "http://"+c.address, c.endpoint.Fingerprint())
}

func (c *cluster) register() {
	c.t.Helper()
	if _, err := c.registrar().Register(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// crash kills Restate and starts it again on the same data.
func (c *cluster) crash() {
	c.t.Helper()
	if err := c.restate.Kill(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.restate.Restart(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) status(job string) State {
	c.t.Helper()
	var s State
	await.NoError(c.t, "the status of "+job, func() error {
		var err error
		s, err = c.client.Status(c.t.Context(), job)
		return err
	})
	return s
}

// ticks returns the IDs of the job's ticks that are under way. A chain has one such tick; a running tick has already
// sent it.
func (c *cluster) ticks(job string) []string {
	c.t.Helper()
	var rows []struct{ ID string }
	query := fmt.Sprintf(`SELECT id FROM sys_invocation WHERE target_service_name = '%s' AND target_service_key = '%s'
		AND target_handler_name = 'Tick' AND status IN ('scheduled', 'pending')`, CronService, job)
	c.admin(http.MethodPost, "/query", map[string]string{"query": query}, &struct{ Rows any }{&rows})
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func (c *cluster) adminClient() *Admin {
	var admins []string
	for _, node := range c.nodes {
		admins = append(admins, node.AdminURL())
	}
	return NewAdmin(c.http, admins...)
}

func (c *cluster) admin(method, path string, in, out any) {
	c.t.Helper()
	call := func() error {
		_, err := c.adminClient().call(c.t.Context(), "a test's call", method, path, in, out)
		return err
	}
	if path == "/query" { // it fails while a partition moves from one node to another
		await.NoError(c.t, "an answer to a query", call)
	} else if err := call(); err != nil {
		c.t.Fatal(err)
	}
}

// listen listens on an address, or on a free one for "". The previous listener may still be closing.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	var l net.Listener
	await.NoError(t, "listening on "+address, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l
}

// auditRows is an audit log in memory.
type auditRows struct {
	mu   sync.Mutex
	rows []audit.Entry
}

func (a *auditRows) InsertAudit(_ context.Context, e audit.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, e)
	return nil
}

func (a *auditRows) all() []audit.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]audit.Entry(nil), a.rows...)
}

// counter is a job that records when it ran.
type counter struct {
	mu   sync.Mutex
	runs []int64 // Unix ms
}

func (n *counter) job(s *stepper) Job {
	return Job{Run: func(ctx restate.ObjectContext) (Report, error) {
		_, err := controlplane.Do(s.on(ctx), "count", func(context.Context) (int, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.runs = append(n.runs, time.Now().UnixMilli())
			return len(n.runs), nil
		})
		return Report{Counts: map[string]int64{"runs": 1}}, err
	}}
}

func (n *counter) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.runs)
}

func (n *counter) reached(want int) func() error {
	return func() error {
		if got := n.count(); got < want {
			return fmt.Errorf("%d runs, want %d", got, want)
		}
		return nil
	}
}

// testKeys are the keys of the tests and of the child that they kill.
var testKeys = func() *orderkey.Keys {
	keys := &orderkey.Keys{}
	if err := keys.Replace([]byte(strings.Repeat("a key of tests ", 4))); err != nil {
		panic(err)
	}
	return keys
}()

var operator = controlplane.By{Actor: "ann", Reason: "deploy"}
