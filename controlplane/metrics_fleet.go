package controlplane

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// fleetMetrics are what the control plane's process sees of nodes and of rollouts. While
// it cannot look they keep their last values; that it cannot is in
// weir_control_dependency_up.
type fleetMetrics struct {
	nodes          *prometheus.GaugeVec
	skewSeconds    *prometheus.GaugeVec
	tuningVersions prometheus.Gauge
	rolloutPhase   *prometheus.GaugeVec
	rolloutTrouble prometheus.Gauge
}

func newFleetMetrics() fleetMetrics {
	m := fleetMetrics{
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
	m.rollout(nil)
	return m
}

func (m *fleetMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.nodes, m.skewSeconds, m.tuningVersions, m.rolloutPhase, m.rolloutTrouble}
}

// FleetSeen records the nodes as a listing has them.
func (m *Metrics) FleetSeen(fleet Fleet) {
	m.nodes.Reset()
	m.skewSeconds.Reset()
	versions := make(map[int64]bool)
	skews := make(map[string]float64)
	for i := range fleet.Nodes {
		n, region := &fleet.Nodes[i], strings.ToValidUTF8(fleet.Nodes[i].Region, "\uFFFD") // a label takes UTF-8 alone
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

// RolloutSeen records the rollout that is under way; nil: none is.
func (m *Metrics) RolloutSeen(r *Rollout) { m.rollout(r) }

func (m *fleetMetrics) rollout(r *Rollout) {
	for _, phase := range []RolloutPhase{RolloutAwaiting, RolloutMeasuring, RolloutApplying, RolloutConverging,
		RolloutBaking, RolloutKeeping, RolloutRollingBack} {
		m.rolloutPhase.WithLabelValues(string(phase)).Set(oneIf(r != nil && r.Phase == phase))
	}
	m.rolloutTrouble.Set(oneIf(r != nil && r.Trouble != "" && !r.Phase.Over()))
}
