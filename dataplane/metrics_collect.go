package dataplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/collect"
)

// Collector is the limiter's metrics, all of whose names begin with weir_. Every counter is there from the start, at 0.
// A collection reads counters and queues; decisions do not wait for it.
func (l *Limiter) Collector() prometheus.Collector { return l.metrics }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	l := m.limiter
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	m.eachDecision(func(source Source, out outcome, n int64) {
		counter(collect.Decisions, n, source.String(), out.String())
	})
	for _, out := range []outcome{outcomeAllowed, outcomeDenied} {
		counter(collect.Candidates, m.comparedAll(out), out.String())
	}
	m.latency.Local.Collect(ch)
	m.latency.Origin.Collect(ch)
	gauge(collect.Entries, float64(l.table.Len()))
	gauge(collect.Cap, float64(l.cfg.EntriesMax))
	gauge(collect.Nodes, float64(l.nodes.Load()))
	counter(collect.Evictions, l.table.Evicted.Expired.Load(), "expired")
	counter(collect.Evictions, l.table.Evicted.Idle.Load(), "idle")
	counter(collect.Evictions, l.table.Evicted.Share.Load(), "share")
	counter(collect.Full, l.table.Full.Load())
	counter(collect.Untracked, m.untracked.byOrigin.Load(), "origin")
	counter(collect.Untracked, m.untracked.byOverflow.Load(), "overflow")
	counter(collect.Windows, l.table.Created.Load())
	counter(collect.Strict, m.strictActivations.Load())
	counter(collect.Overshoot, m.merged.Overshoot.Load())

	m.origin.Collect(ch)
	for _, sh := range l.shards {
		gauge(collect.Breaker, float64(sh.asks.State()), sh.label, "asks")
		gauge(collect.Breaker, float64(sh.sends.State()), sh.label, "sends")
		gauge(collect.PendingSync, float64(l.pendingKeys(sh)+sh.syncs.size()), sh.label)
	}
	counter(collect.Flushes, m.flushes.Load())
	counter(collect.Waits, m.waits[waitReplied].Load(), "replied")
	counter(collect.Waits, m.waits[waitOutage].Load(), "outage")
	counter(collect.Claims, m.claims[claimAdded].Load(), "added")
	counter(collect.Claims, m.claims[claimRefused].Load(), "refused")
	counter(collect.Claims, m.claims[claimFailed].Load(), "failed")
	counter(collect.Replayed, m.replayedCells.Load())
	gauge(collect.Pending, float64(l.pendingCost()))
	gauge(collect.ReplayedAt, float64(l.replayedAtMs())/1000)
	counter(collect.Restored, m.restored.Load())
	counter(collect.Dropped, m.dropped[droppedExpired].Load(), "expired")
	counter(collect.Dropped, m.dropped[droppedFull].Load(), "full")
	heldBack, _, _ := l.table.NewKeys.HeldBack()
	counter(collect.HeldBack, heldBack)

	set := l.settings.Load()
	gauge(collect.Tuning, float64(set.version))
	gauge(collect.Trial, float64(set.number))
	counter(collect.SettingsErrors, m.settingsErrors.Load())
	l.collectEstimate(ch)

	collect.Node(ch, l.cfg.Region, l.cfg.NodeID, l.cfg.Build)
	collect.Leases(ch, l.slots.Stats(), &l.leases)
	collect.Reservations(ch, &l.here, &l.there)
}
