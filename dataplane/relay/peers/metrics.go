package peers

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for which a stream is refused.
const (
	refusedHello   = "hello"   // its first message was late, was no hello, or was for another region
	refusedRegion  = "region"  // it comes from a region that is not a peer
	refusedName    = "name"    // its certificate was not issued to the region's name
	refusedStreams = "streams" // the region has streamsMax streams already
	refusedIdle    = "idle"    // this relay leads no shard
)

// Outcomes of a row.
const (
	rowSent    = "sent"
	rowDropped = "dropped"
	rowApplied = "applied"
	rowRefused = "refused"
)

type metrics struct {
	connected *prometheus.GaugeVec
	rows      *prometheus.CounterVec
	refused   *prometheus.CounterVec
	closed    prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_relay_peer_connected",
			Help: "Streams on which a relay of the peer region takes rows from this relay."}, []string{"peer"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_relay_peer_rows_total",
			Help: "Rows of changes sent to, dropped for, applied and refused from a peer region."}, []string{"peer", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_relay_peer_streams_refused_total",
			Help: "Streams of other relays that were refused, by reason."}, []string{"reason"}),
		closed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_relay_peer_connections_closed_total",
			Help: "Connections that were closed in favor of another one."}),
	}
	for _, reason := range []string{refusedHello, refusedRegion, refusedName, refusedStreams, refusedIdle} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connected, m.rows, m.refused, m.closed}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// counters are the metrics of a peer.
type counters struct {
	connected                       prometheus.Gauge
	sent, dropped, applied, refused prometheus.Counter
}

func (m *metrics) of(region string) counters {
	rows := m.rows.MustCurryWith(prometheus.Labels{"peer": region})
	return counters{m.connected.WithLabelValues(region), rows.WithLabelValues(rowSent), rows.WithLabelValues(rowDropped),
		rows.WithLabelValues(rowApplied), rows.WithLabelValues(rowRefused)}
}
