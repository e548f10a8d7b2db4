package running

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/shared/await"
)

// probes serves the two answers that an orchestrator needs.
type probes struct {
	limiter *dataplane.Limiter
	serving atomic.Bool // set it once the API listens, and clear it when the shutdown begins
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "live") })
	mux.HandleFunc("GET /readyz", p.ready)
	return mux
}

// ready reports whether the process should get requests. Problems are lines of the response, and do not make the
// process unready: it decides without Redis, and so do all other processes of the region.
func (p *probes) ready(w http.ResponseWriter, _ *http.Request) {
	if !p.serving.Load() {
		http.Error(w, "not serving", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "serving")
	h := p.limiter.Health()
	if h.BreakersOpen > 0 {
		fmt.Fprintln(w, "Redis fails: deciding from this node's own counts")
	}
	if h.SettingsProblem != "" {
		fmt.Fprintln(w, "the newest settings are not in force:", h.SettingsProblem)
	}
	if p.limiter.TableFull() {
		fmt.Fprintln(w, "the table of keys is full: raise EntriesMax")
	}
}

// newRegistry returns a registry with the limiter's metrics, and the metrics of the stores and the relay if there are
// any: origin.Collector(), counts, relay.Collector().
func newRegistry(limiter *dataplane.Limiter, others ...prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range append(others, metrics.New(limiter), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

// operators serves probes and metrics on an address that callers do not reach.
func operators(p *probes, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", p.handler())
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// node is an API with a limiter and its stores. Its relay is nil without MySQL.
type node struct {
	api     *http.Server
	probes  *probes
	limiter *dataplane.Limiter
	relay   *relay.Relay
	stores  []io.Closer // Redis, then MySQL
}

// run serves until ctx ends, for example the context of signal.NotifyContext, and then stops the node.
func (n *node) run(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	if err := n.start(ctx); err != nil {
		return errors.Join(err, n.stop(context.WithoutCancel(ctx)))
	}
	go func() { served <- n.api.Serve(listener) }()
	n.probes.serving.Store(true)
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	return errors.Join(err, n.stop(context.WithoutCancel(ctx)))
}

func (n *node) start(ctx context.Context) error {
	if err := n.limiter.Start(ctx); err != nil {
		return err
	}
	if n.relay == nil {
		return nil
	}
	return n.relay.Start(ctx)
}

// stop takes at most 20 s. ctx must not have ended: the context of a signal has.
func (n *node) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	n.probes.serving.Store(false)
	forRequests, cancelRequests := context.WithTimeout(ctx, 10*time.Second)
	defer cancelRequests()
	errs := []error{
		n.api.Shutdown(forRequests), // no new requests, and waits for the others
		n.limiter.Stop(ctx),         // sends their cost, and the last heartbeat
	}
	if n.relay != nil {
		errs = append(errs, n.relay.Stop(ctx)) // stores that heartbeat, and frees its lease for another node
	}
	for _, s := range n.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// closer counts how often it was closed.
type closer struct{ closed atomic.Int64 }

func (c *closer) Close() error { c.closed.Add(1); return nil }

// A request that is under way when the signal comes is answered, its cost reaches the region's counts, and the relay
// stores the last heartbeat. The node is unready from the signal on.
func TestAShutdownLosesNothing(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	counts := memstore.NewCounts(memstore.CountsOptions{})
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "eu-1", Origin: origin, ReadTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	carrier, err := relay.New(relay.Config{Region: "eu", Holder: "eu-1", Origin: origin.Client(),
		Feed: memstore.NewFeed(memstore.FeedOptions{Settings: counts.SettingsVersion}), Counts: counts, Settings: counts})
	if err != nil {
		t.Fatal(err)
	}
	began, finish := make(chan bool), make(chan bool)
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-finish
		d := limiter.Allow(r.Context(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "ann",
			Limit: 1_000_000, Duration: 24 * time.Hour, Cost: 7})
		fmt.Fprint(w, d.Allowed)
	})
	redis, mysql := new(closer), new(closer)
	n := &node{api: &http.Server{Handler: work, ReadHeaderTimeout: time.Minute}, probes: &probes{limiter: limiter}, limiter: limiter,
		relay: carrier, stores: []io.Closer{redis, mysql}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, signal := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.run(ctx, listener) }()
	answered := make(chan string)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		answered <- fmt.Sprint(string(body), err)
	}()
	<-began
	ready := func() int {
		w := httptest.NewRecorder()
		n.probes.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code
	}
	await.True(t, "it is ready", func() bool { return ready() == http.StatusOK })
	await.True(t, "the relay leads", carrier.Leads)
	signal()
	await.True(t, "it is unready", func() bool { return ready() == http.StatusServiceUnavailable })
	close(finish)
	if got := <-answered; got != "true<nil>" {
		t.Errorf("the request under way gets %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v", err)
	}
	for cell, total := range origin.Totals() {
		if cell.Identifier != "ann" || total.Region != 7 {
			t.Errorf("the origin has %+v of %+v", total, cell)
		}
	}
	if n := len(origin.Totals()); n != 1 {
		t.Errorf("the origin has %d cells, want 1", n)
	}
	if beats := counts.Heartbeats(); len(beats) != 1 || !beats[0].Stopped {
		t.Errorf("the store's heartbeats are %+v", beats)
	}
	if redis.closed.Load() != 1 || mysql.closed.Load() != 1 {
		t.Error("a store is not closed once")
	}
}

// A shutdown with the context that the signal has ended would have no time for requests.
func TestAContextThatHasEndedWaitsForNoRequest(t *testing.T) {
	began, finish := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(began); <-finish }))
	defer server.Close()
	defer close(finish)
	go func() {
		if response, err := http.Get(server.URL); err == nil {
			response.Body.Close()
		}
	}()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Config.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// While Redis fails the node stays ready, and /readyz reports the outage.
func TestAnOutageDoesNotMakeANodeUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		limiter, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		if err := limiter.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := &probes{limiter: limiter}
		get := func() (int, string) {
			w := httptest.NewRecorder()
			p.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code, w.Body.String()
		}
		if code, _ := get(); code != http.StatusServiceUnavailable {
			t.Errorf("before it serves: %d", code)
		}
		p.serving.Store(true)
		if code, text := get(); code != http.StatusOK || text != "serving\n" {
			t.Errorf("%d, %s", code, text)
		}
		origin.Faults.Fail(errors.New("connection refused"))
		for range 100 {
			limiter.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "ann", Limit: 1000,
				Duration: time.Hour})
			time.Sleep(100 * time.Millisecond)
		}
		if code, text := get(); code != http.StatusOK || !strings.Contains(text, "\nRedis fails: ") ||
			!strings.Contains(text, "\nthe newest settings are not in force: ") {
			t.Errorf("in an outage: %d, %s", code, text)
		}
		origin.Faults.Fail(nil)
		if err := limiter.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// published are the names of the metrics of a program that embeds a limiter with Redis, MySQL, a relay and its peers.
func published(t *testing.T) map[string]bool {
	t.Helper()
	origin, err := redisorigin.Open([]string{"redis://127.0.0.1:1"}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqlcounts.Open("weir@tcp(127.0.0.1:1)/weir")
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	counts := mysqlcounts.New(db, mysqlcounts.Options{})
	carrier, err := relay.New(relay.Config{Region: "eu", Holder: "eu-1", Origin: origin, Feed: counts.Feed(), Counts: counts,
		Settings: counts})
	if err != nil {
		t.Fatal(err)
	}
	others, err := peers.New(peers.Config{Region: "eu", Plaintext: true,
		Peers: []peers.Peer{{Region: "us", Addresses: []string{"127.0.0.1:1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := newRegistry(limiter, origin.Collector(), counts, collectors.NewDBStatsCollector(db, "weir"),
		carrier.Collector(), others.Collector())
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	operators(&probes{limiter: limiter}, registry).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\S+)`).FindAllStringSubmatch(w.Body.String(), -1) {
		names[m[1]] = true
	}
	names["weir_relay_lag_seconds"] = true // from the first counts of another region on
	if len(names) < 60 {
		t.Fatalf("%d metrics are published", len(names))
	}
	if err := errors.Join(origin.Close(), db.Close()); err != nil {
		t.Error(err)
	}
	return names
}

// rule is a rule of Prometheus.
type rule struct{ file, kind, name, expr string }

func rules(t *testing.T) (all []rule) {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/prometheus/rules/*.yml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)- (alert|record): (\S+)\n +expr: (.*)`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, rule{filepath.Base(file), m[1], m[2], m[3]})
		}
	}
	return all
}

// recorded adds the series that rules record from published metrics.
func recorded(names map[string]bool, all []rule) map[string]bool {
	for range 2 { // some are recorded from recorded series
		for _, r := range all {
			if r.kind == "record" && works(names, r.expr) {
				names[r.name] = true
			}
		}
	}
	return names
}

// The page names the alerts that stay silent in a program that embeds the limiter, because another program publishes
// their metrics. All other alerts work.
func TestAlertsWorkForEmbedders(t *testing.T) {
	all := rules(t)
	names, silent := recorded(published(t), all), map[string]bool{}
	for _, r := range all {
		if r.kind == "alert" && r.file != "control.yml" && r.file != "restate.yml" && !works(names, r.expr) {
			silent[r.name] = true
		}
	}
	page, err := os.ReadFile("../running.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- silent -->")
	listed, _, _ := strings.Cut(rest, "<!-- end -->")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Weir\\w+)`").FindAllStringSubmatch(listed, -1) {
		named[m[1]] = true
	}
	if !maps.Equal(named, silent) {
		t.Errorf("the page names %v, and silent are %v", slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(silent)))
	}
	for _, m := range regexp.MustCompile("`(Weir[A-Z]\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.name == m[1] }) {
			t.Errorf("there is no alert %s", m[1])
		}
	}
}

// The page names the panels of each dashboard that lack a metric in a program that embeds the limiter.
func TestDashboardsWorkForEmbedders(t *testing.T) {
	names := recorded(published(t), rules(t))
	page, err := os.ReadFile("../running.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../deploy/grafana/*.json")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		var lack []string
		for _, panel := range board.Panels {
			if slices.ContainsFunc(panel.Targets, func(target struct{ Expr string }) bool { return !works(names, target.Expr) }) {
				lack = append(lack, "`"+panel.Title+"`")
			}
		}
		row := strings.Join(lack, ", ")
		switch len(lack) {
		case 0:
			row = "none"
		case len(board.Panels):
			row = "all"
		}
		if row = "| " + board.Title + " | " + row + " |"; !strings.Contains(string(page), row+"\n") {
			t.Errorf("the page lacks %s", row)
		}
	}
}

var metric = regexp.MustCompile(`\bweir[_:][a-z0-9_:]+`)

// works reports whether all metrics of an expression are published.
func works(names map[string]bool, expr string) bool {
	return !slices.ContainsFunc(metric.FindAllString(expr, -1), func(name string) bool {
		return !names[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")]
	})
}
