package faults

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/shared/servers"
)

// node is a limiter with a way of its own to each server.
type node struct {
	*dataplane.Limiter
	relay            *relay.Relay
	id               string
	toRedis, toMySQL *servers.Proxy
	redisAt          atomic.Pointer[string] // where new connections go: a failover changes it
	registry         *prometheus.Registry
	callers          sync.RWMutex // each holds it while it waits for a decision
	drained          bool         // callers turn elsewhere; under callers
}

// start adds a node to the region, and runs it until the test ends or stops it.
func (r *region) start() *node {
	t := r.fleet.t
	t.Helper()
	n := &node{id: r.nextID(), registry: prometheus.NewRegistry()}
	n.toRedis = servers.ProxyForTest(t, r.redis.Addr())
	n.toMySQL = servers.ProxyForTest(t, r.fleet.server.Addr())
	addr := n.toRedis.Addr()
	n.redisAt.Store(&addr)

	counts := mysqlcounts.New(openDB(t, through(r.fleet.dsn, n.toMySQL)), mysqlcounts.Options{})
	origin := n.origin(r.fleet)
	config := dataplane.Config{Region: r.name, NodeID: n.id, Origin: origin, Settings: counts}
	if r.fleet.plan.skew != nil {
		skew := r.fleet.plan.skew(r.name, r.started)
		config.Clock = func() time.Time { return time.Now().Add(skew) }
	}
	limiter, err := dataplane.New(config)
	must(t, err)
	n.Limiter = limiter
	must(t, errors.Join(n.registry.Register(metrics.New(limiter)), n.registry.Register(counts)))
	must(t, limiter.Start(t.Context()))
	n.relays(r, origin, counts)
	t.Cleanup(func() { // a node that the test has stopped is not stopped again
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = limiter.Stop(ctx) // the servers may be down, and the test over
	})
	r.nodes = append(r.nodes, n)
	return n
}

// relays starts the node's relay.
func (n *node) relays(r *region, origin *redisorigin.Origin, counts *mysqlcounts.Counts) {
	t := r.fleet.t
	t.Helper()
	made, err := relay.New(relayConfig(r.name, n.id, n.Limiter, origin, counts))
	must(t, err)
	n.relay = made
	must(t, errors.Join(n.registry.Register(made.Collector()), made.Start(t.Context())))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = made.Stop(ctx) // the servers may be down
	})
}

// relayConfig returns the configuration of a relay for a limiter.
func relayConfig(region, holder string, l *dataplane.Limiter, origin *redisorigin.Origin, counts *mysqlcounts.Counts) relay.Config {
	return relay.Config{Region: region, Holder: holder, Origin: origin, Feed: counts.Feed(), Counts: counts, Tuning: func() relay.Tuning {
		set := l.RelayTuning()
		return relay.Tuning{Interval: set.FeedInterval, Floor: set.Floor, Step: set.Step, MinGlobalDuration: set.MinGlobalDuration}
	}}
}

// origin returns an origin like redisorigin.Open's, except for its address.
func (n *node) origin(f *fleet) *redisorigin.Origin {
	f.t.Helper()
	options, err := redisorigin.ClientOptions("redis://" + n.toRedis.Addr())
	must(f.t, err)
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: time.Second}
		return dialer.DialContext(ctx, network, *n.redisAt.Load())
	}
	client := redis.NewUniversalClient(options)
	f.t.Cleanup(func() { must(f.t, client.Close()) })
	origin, err := redisorigin.New([]redisorigin.Partition{{Client: client}}, originOptions())
	must(f.t, err)
	return origin
}

// through returns the DSN of the same database by way of a proxy.
func through(dsn string, p *servers.Proxy) string {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	config.Addr = p.Addr()
	return config.FormatDSN()
}

func (n *node) ready() bool {
	return n.metric("weir_tuning_version") > 0
}

// metric returns a counter or gauge of the node's, summed over all its labels that hold the given values.
func (n *node) metric(name string, values ...string) (sum int64) {
	families, err := n.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var has []string
			for _, label := range m.GetLabel() {
				has = append(has, label.GetValue())
			}
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(has, v) }) {
				sum += int64(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
		return sum
	}
	panic("no metric " + name)
}
