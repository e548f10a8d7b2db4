package dataplane

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/permits"
	"github.com/weirhq/weir/shared/heartbeat"
)

// reports shows operators the state and work of a node. It writes heartbeats and metrics, ranks keys, and logs that
// the table is full.
type reports struct {
	cfg         *Config
	engine      *engine
	permits     *permits.Permits
	startedAtMs int64

	shape atomic.Pointer[shape]
	top   top
	full  fullLog
}

// init sets the sources of the reports, and the time of the limiter's start.
func (r *reports) init(cfg *Config, g *engine, held *permits.Permits) {
	r.cfg, r.engine, r.permits, r.startedAtMs = cfg, g, held, g.clock.ReadMs()
	r.engine.stats.latency.Init(r.startedAtMs)
	r.top.engine = r.engine
	r.full.table, r.full.logger = r.engine.table, r.cfg.Logger
}

// reportEvery is the time between two heartbeats that report keys.
const reportEvery = 15 * time.Second

// topReport returns a document for heartbeat.Top. It is empty if the keys cannot be walked now; then the next
// heartbeat reports them.
func (r *reports) topReport() string {
	hot, err := r.top.hottest(&TopQuery{Limit: heartbeat.TopKeysMax}, true)
	if err != nil {
		return ""
	}
	denied := r.top.denials(&TopQuery{Limit: heartbeat.TopKeysMax}, hot.At.UnixMilli())
	leases := func(k TopKey) bool { return k.Duration == 0 }
	refused := slices.DeleteFunc(slices.Clone(denied.Keys), func(k TopKey) bool { return !leases(k) })
	document, err := heartbeat.Top{AtMs: hot.At.UnixMilli(), DeniedSinceMs: denied.Since.UnixMilli(),
		Hot: reported(hot.Keys), Denied: reported(slices.DeleteFunc(denied.Keys, leases)), Refused: reported(refused),
		Held: r.permits.Oldest(heartbeat.TopKeysMax, hot.At.UnixMilli())}.Document()
	if err != nil { // cannot happen: a document of text and numbers
		return ""
	}
	return document
}

func reported(keys []TopKey) []heartbeat.TopKey {
	report := make([]heartbeat.TopKey, len(keys))
	for i, k := range keys {
		report[i] = heartbeat.TopKey{Workspace: []byte(k.Workspace), Namespace: []byte(k.Namespace),
			Identifier: []byte(k.Identifier),
			DurationMs: k.Duration.Milliseconds(), Limit: k.Limit, Count: k.Count, Regional: k.Regional, More: k.More}
	}
	return report
}
