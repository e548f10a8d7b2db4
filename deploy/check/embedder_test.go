package check

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/relay/peers"
)

// serversOwn are the beginnings of series that only weir-node publishes. deploy/README.md names them.
var serversOwn = []string{"weir_rpc_", "weir_refused_total", "weir_reloads_total", "weir_node_problem", "weir_rls_"}

// othersOwn are the beginnings of series that nodes do not publish: those of weir-control, Restate and Prometheus.
var othersOwn = []string{"weir_cleanup_", "weir_control_", "weir_fleet_", "weir_handlers_", "weir_rollout_", "weir_watch_", "restate_", "up"}

// A program that embeds the limiter, and registers the collectors that deploy/README.md lists, publishes every series
// that rules and dashboards use of a node, except those of the server.
func TestEmbeddersPublishWhatRulesAndDashboardsUse(t *testing.T) {
	have := embedded(t)
	missing := make(map[string]bool)
	used := make(map[string]bool)
	look := func(where, text string) {
		text = strings.NewReplacer("$__rate_interval", "5m", "$region", ".*").Replace(text)
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			s, ok := node.(*parser.VectorSelector)
			if !ok || strings.Contains(s.Name, ":") { // a recorded series: its own expression is looked at, too
				return nil
			}
			used[s.Name] = true
			if begins := func(with string) bool { return strings.HasPrefix(s.Name, with) }; slices.ContainsFunc(serversOwn, begins) {
				missing[s.Name] = true
			} else if !have[s.Name] && !slices.ContainsFunc(othersOwn, begins) {
				t.Errorf("%s: an embedder does not publish %s", where, s.Name)
			}
			return nil
		})
	}
	for _, r := range rules(t) {
		look(r.Alert+r.Record, r.Expr)
	}
	for _, path := range files(t, "deploy/grafana/*.json") {
		for where, expr := range dashboard(t, path) {
			look(filepath.Base(path)+": "+where, expr)
		}
	}
	if !used["weir_node_info"] || len(used) < 100 {
		t.Errorf("rules and dashboards use only %d series", len(used))
	}
	page := string(read(t, filepath.Join(root, "deploy/README.md")))
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		family := strings.Join(strings.Split(name, "_")[:2], "_") + "_*" // weir_rpc_*
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+family+"`") {
			t.Errorf("deploy/README.md does not name %s, which embedders lack", name)
		}
	}
}

// embedded are the names of the series of a program that embeds the limiter, with all that it can have. No server runs.
func embedded(t *testing.T) map[string]bool {
	t.Helper()
	origin, err := redisorigin.Open([]string{"redis://127.0.0.1:1"}, redisorigin.Options{})
	must(t, err)
	t.Cleanup(func() { _ = origin.Close() })
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin})
	must(t, err)
	db, err := mysqlcounts.Open("weir@tcp(127.0.0.1:1)/weir")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	counts := mysqlcounts.New(db, mysqlcounts.Options{})
	r, err := relay.New(relay.Config{Region: "eu", Holder: "eu-1", Origin: origin, Feed: memstore.NewFeed(memstore.FeedOptions{}), Counts: counts})
	must(t, err)
	p, err := peers.New(peers.Config{Region: "eu", Plaintext: true, Peers: []peers.Peer{{Region: "us", Addresses: []string{"127.0.0.1:1"}}}})
	must(t, err)

	have := make(map[string]bool)
	for _, c := range []prometheus.Collector{metrics.New(limiter), origin.Collector(), counts, r.Collector(), p.Collector(),
		collectors.NewDBStatsCollector(db, "weir"), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		described := make(chan *prometheus.Desc)
		go func() { c.Describe(described); close(described) }()
		for d := range described {
			_, rest, _ := strings.Cut(d.String(), `fqName: "`)
			name, _, _ := strings.Cut(rest, `"`)
			for _, ending := range []string{"", "_bucket", "_sum", "_count"} {
				have[name+ending] = true
			}
		}
	}
	return have
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
