// Command reference writes pages that list what programs publish, from the code that publishes it: metrics.md has each
// metric with its kind, labels and help text. Run it as "go run ./deploy/reference shared/gen/reference", which make
// generate does.
package main

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/node/nodecmd"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/relay/peers"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: reference folder")
	}
	page, err := metricsPage()
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "metrics.md"), []byte(page), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// part is a group of metrics that one collector or several publish together.
type part struct {
	title, text string
	collectors  []prometheus.Collector
}

// parts returns collectors of all metrics. None of them calls a server.
func parts() ([]part, error) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "eu-1", Origin: origin})
	if err != nil {
		return nil, err
	}
	redis, err := redisorigin.Open([]string{"redis://127.0.0.1:1"}, redisorigin.Options{})
	if err != nil {
		return nil, err
	}
	carrier, err := relay.New(relay.Config{Region: "eu", Holder: "eu-1", Origin: origin,
		Feed: memstore.NewFeed(memstore.FeedOptions{}), Counts: memstore.NewCounts(memstore.CountsOptions{})})
	if err != nil {
		return nil, err
	}
	direct, err := peers.New(peers.Config{Region: "eu", Plaintext: true,
		Peers: []peers.Peer{{Region: "us", Addresses: []string{"127.0.0.1:1"}}}})
	if err != nil {
		return nil, err
	}
	server := prometheus.NewRegistry()
	if _, err := node.New(node.Config{Limiter: limiter, Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0",
		Registry: server, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	return []part{
		{"The limiter", "`weir-node`, and each program that embeds the limiter and registers `metrics.New(limiter)`.",
			[]prometheus.Collector{metrics.New(limiter)}},
		{"Connections to Redis", "Nodes with Redis: `Origin.Collector()`.", []prometheus.Collector{redis.Collector()}},
		{"Statements on MySQL", "Nodes with MySQL: a `mysqlcounts.Counts` is a collector.",
			[]prometheus.Collector{mysqlcounts.New(nil, mysqlcounts.Options{})}},
		{"The relay", "Nodes with Redis and MySQL: `Relay.Collector()`, and with `relay-peers` `Peers.Collector()`.",
			[]prometheus.Collector{carrier.Collector(), direct.Collector()}},
		{"The server", "`weir-node` alone.", []prometheus.Collector{server, rls.NewUnmatched(nil),
			described{nodecmd.ProblemDesc}}},
		{"The control plane", "`weir-control`.",
			[]prometheus.Collector{controlplane.NewMetrics(), cleanup.NewMetrics(), watch.NewMetrics()}},
	}, errors.Join(redis.Close())
}

// described is a collector of a metric that has no series yet.
type described struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d described) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

// Collect implements prometheus.Collector.
func (described) Collect(chan<- prometheus.Metric) {}

// metricsPage returns the page of all metrics.
func metricsPage() (string, error) {
	all, err := parts()
	if err != nil {
		return "", err
	}
	page := "# Metrics\n\nWritten by `make generate` from the collectors. Each program also publishes the metrics of Go and " +
		"of its process.\n\nThe values of a label are in brackets, or in the help text. Counters begin at 0 with the " +
		"process.\n"
	for _, p := range all {
		rows, err := p.rows()
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.title, err)
		}
		page += "\n## " + p.title + "\n\n" + p.text + "\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n" + rows
	}
	return page, nil
}
