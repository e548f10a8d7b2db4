package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/census"
	"github.com/weirhq/weir/dataplane/internal/permits"
	"github.com/weirhq/weir/dataplane/internal/usage"
)

// reports shows operators the state and work of a node. It writes heartbeats and metrics. Package census describes the
// node's keys.
type reports struct {
	cfg         *Config
	engine      *engine
	permits     *permits.Permits
	startedAtMs int64

	load census.Load
	keys census.Ranking
	top  census.Report
	full census.FullLog

	local usage.Local // of a node without an origin
}

// init sets the sources of the reports, and the time of the limiter's start.
func (r *reports) init(cfg *Config, g *engine, held *permits.Permits) {
	r.cfg, r.engine, r.permits, r.startedAtMs = cfg, g, held, g.clock.ReadMs()
	g.stats.latency.Init(r.startedAtMs)
	r.load.Table = g.table
	r.local.Begin(r.startedAtMs)
	r.keys.Clock, r.keys.Table, r.keys.Rules, r.keys.Denied = g.clock, g.table, &g.rules, &g.denied
	r.top.Ranking, r.top.Oldest = &r.keys, held.Oldest
	r.full.Table, r.full.Logger = g.table, cfg.Logger
}
