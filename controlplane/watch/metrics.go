package watch

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout"
)

// Metrics are the metrics of nodes, of rollouts and of the watch's findings: one prometheus.Collector. While the
// control plane cannot look, they keep their last values; weir_control_dependency_up shows that it cannot.
type Metrics struct {
	controlplane.Collectors
	findings       map[FindingKind]prometheus.Gauge
	overall        prometheus.Gauge
	lookedAt       prometheus.Gauge
	nodes          *prometheus.GaugeVec
	skewSeconds    *prometheus.GaugeVec
	tuningVersions prometheus.Gauge
	rolloutPhase   *prometheus.GaugeVec
	rolloutTrouble prometheus.Gauge
}

// NewMetrics returns unregistered metrics.
func NewMetrics() *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_fleet_nodes",
			Help: "Nodes by region and state: live, or silent without a recent heartbeat. A node that was stopped in " +
				"order is neither.",
		}, []string{"region", "state"}),
		skewSeconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_fleet_clock_skew_seconds",
			Help: "Largest difference between the clock of a region's live node and the database's, in either direction.",
		}, []string{"region"}),
		tuningVersions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_fleet_tuning_versions",
			Help: "Different versions of the tuning that live nodes run.",
		}),
		rolloutPhase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_rollout_phase",
			Help: "1 for the phase of the rollout that is under way.",
		}, []string{"phase"}),
		rolloutTrouble: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rollout_trouble",
			Help: "1 while a step of the rollout under way fails and is retried.",
		}),
	}
	findings := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_watch_findings",
		Help: "Findings of the watch at the moment, by kind.",
	}, []string{"kind"})
	m.findings = make(map[FindingKind]prometheus.Gauge, len(FindingKinds))
	for _, kind := range FindingKinds {
		m.findings[kind] = findings.WithLabelValues(string(kind))
	}
	m.overall = m.Gauge("weir_watch_severity", "The worst of the watch's findings: 0 none, 1 warning, 2 critical.")
	m.lookedAt = m.Gauge("weir_watch_looked_at_seconds",
		"Unix time of the check that made the watch's findings; 0 before the first.")
	m.Add(m.nodes, m.skewSeconds, m.tuningVersions, m.rolloutPhase, m.rolloutTrouble, findings)
	m.RolloutSeen(nil)
	return m
}

// FleetSeen records the nodes of a listing.
func (m *Metrics) FleetSeen(fleet fleet.Fleet) {
	m.nodes.Reset()
	m.skewSeconds.Reset()
	versions := make(map[int64]bool)
	skews := make(map[string]float64)
	for i := range fleet.Nodes {
		n, region := &fleet.Nodes[i], strings.ToValidUTF8(fleet.Nodes[i].Region, "\uFFFD") // a label must be UTF-8
		live, silent := m.nodes.WithLabelValues(region, "live"), m.nodes.WithLabelValues(region, "silent")
		if !n.Live {
			silent.Inc()
			continue
		}
		live.Inc()
		versions[n.TuningVersion] = true
		skews[region] = max(skews[region], n.ClockSkew.Abs().Seconds())
	}
	for region, skew := range skews {
		m.skewSeconds.WithLabelValues(region).Set(skew)
	}
	m.tuningVersions.Set(float64(len(versions)))
}

// RolloutSeen records the rollout under way, or nil.
func (m *Metrics) RolloutSeen(r *rollout.Rollout) {
	for _, phase := range []rollout.Phase{rollout.Awaiting, rollout.Measuring,
		rollout.Applying, rollout.Converging,
		rollout.Baking, rollout.Keeping, rollout.RollingBack} {
		m.rolloutPhase.WithLabelValues(string(phase)).Set(controlplane.OneIf(r != nil && r.Phase == phase))
	}
	m.rolloutTrouble.Set(controlplane.OneIf(r != nil && r.Trouble != "" && !r.Phase.Over()))
}

// Health records the watch's findings.
func (m *Metrics) Health(d HealthDocument) {
	found := map[FindingKind]int{}
	for _, f := range d.Findings {
		found[f.Kind]++
	}
	for kind, gauge := range m.findings { // a kind of a newer build has none
		gauge.Set(float64(found[kind]))
	}
	m.overall.Set(float64(max(0, slices.Index([]Severity{SeverityOK, SeverityWarning, SeverityCritical}, d.Overall))))
	m.lookedAt.Set(float64(d.AtMs) / 1000)
}
