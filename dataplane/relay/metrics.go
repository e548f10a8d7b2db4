package relay

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/store"
)

// metrics are the counters of the loops, and report them to Prometheus.
type metrics struct {
	relay *Relay

	published, read, received traffic

	saved, refused, healed, fenced, unreadable, malformed, early, excess, full, epochs, errors atomic.Int64

	convergence prometheus.Histogram
	all         []prometheus.Collector // metrics without a shard or region label

	readAt atomic.Int64 // clock.Steady of the last read of the feed without an error; before it, when reading began

	mu    sync.Mutex
	lags  map[string]lag     // by labelOf the region: in the last read that had rows of the region
	since map[string]*delays // by labelOf the region: since the last call of Figures
}

// lagKept is how long a lag is reported. An older lag means nothing: its region is gone, or the lease was lost.
const lagKept = time.Minute

// lag is the age of the oldest row of a region in the read at the given time.
type lag struct {
	late time.Duration
	at   time.Time
}

type traffic struct{ rows, bytes atomic.Int64 }

func (t *traffic) add(bytes int) {
	t.rows.Add(1)
	t.bytes.Add(int64(bytes))
}

func (m *metrics) init(r *Relay) {
	m.relay, m.lags, m.since = r, make(map[string]lag), make(map[string]*delays)
	m.convergence = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_relay_convergence_seconds",
		Help: "Time from when another region's relay found a count to be sent until this region had read it, for the " +
			"oldest count of each row. Time in which the row could not be stored is left out.",
		Buckets: []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3, 5, 10, 30, 60},
	})
	m.all = []prometheus.Collector{
		m.convergence,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_relay_in_step_timestamp_seconds",
			Help: "Unix time at which the relay had last sent all due counts and read the change feed; 0 without a lease.",
		}, func() float64 { return float64(r.inStepAtMs(r.cfg.Clock())) / 1000 }),
		counter(&m.saved, "stored_counts_total", "Counts that were stored for good.", nil),
		counter(&m.refused, "refused_counts_total",
			"Counts that the store refused: each is tried once, and named in the log.", nil),
		counter(&m.healed, "healed_total",
			"Times that the relay restored the counts that a shard of the origin had lost.", nil),
		counter(&m.fenced, "fenced_total", "Times that another relay of the same shard had written first.", nil),
		counter(&m.early, "early_cells_total",
			"Cells in changes that were left out because their windows begin in the future: a region's clock is ahead.", nil),
		counter(&m.excess, "excess_cells_total", "Cells of changes that were left out, in whole or from their second count "+
			"on, because a relay holds no more cells of a region, or no more regions.", nil),
		counter(&m.full, "full_reads_total",
			"Reads of the change feed that left streams out because a relay follows no more.", nil),
		counter(&m.epochs, "epoch_changes_total",
			"Times that a shard of the origin was found in another epoch: it, or a part of it, has lost its counts.", nil),
		counter(&m.unreadable, "unreadable_rows_total",
			"Rows of the change feed that were left out because this version cannot read them.", nil),
		counter(&m.malformed, "malformed_cells_total", "Cells of the origin, of the change feed or of a peer that were left "+
			"out because no node can have counted in them.", nil),
		counter(&m.errors, "errors_total", "Steps of the relay's loops that failed.", nil),
	}
	const directions = "written for other regions (published), read, and received from a peer (received)."
	for direction, t := range map[string]*traffic{"published": &m.published, "read": &m.read, "received": &m.received} {
		labels := prometheus.Labels{"direction": direction}
		m.all = append(m.all, counter(&t.rows, "feed_rows_total", "Changes "+directions, labels),
			counter(&t.bytes, "feed_bytes_total", "Bytes of changes "+directions, labels))
	}
}

// counter makes a Prometheus counter of a count of the loops.
func counter(n *atomic.Int64, name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_relay_" + name, Help: help, ConstLabels: labels},
		func() float64 { return float64(n.Load()) })
}

// labelOf returns a region's name as a label. Another region's name can be any bytes, but a label must be UTF-8.
func labelOf(region string) string { return strings.ToValidUTF8(region, "\uFFFD") }

// noteLag records how old a page's rows were when they were read, by the store's clock.
func (m *metrics) noteLag(page *store.FeedPage, now time.Time) {
	if len(page.Rows) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.lags, func(_ string, l lag) bool { return now.Sub(l.at) > lagKept })
	seen := make(map[string]struct{})
	for i := range page.Rows {
		region, late := labelOf(page.Rows[i].Region), page.Now.Sub(page.Rows[i].WrittenAt)
		m.sinceLocked(region).add(late)
		if _, ok := seen[region]; ok {
			late = max(late, m.lags[region].late)
		}
		seen[region] = struct{}{}
		m.lags[region] = lag{late, now}
	}
}

func (m *metrics) sinceLocked(region string) *delays {
	d := m.since[region]
	if d == nil {
		d = &delays{}
		m.since[region] = d
	}
	return d
}

// Collector reports the relay to Prometheus.
func (r *Relay) Collector() prometheus.Collector { return &r.metrics }

func desc(name, help, label string) *prometheus.Desc {
	return prometheus.NewDesc("weir_relay_"+name, help, []string{label}, nil)
}

var (
	descLease       = desc("lease_held", "1 while this process relays the shard of its region's origin.", "shard")
	descUnpublished = desc("unpublished_age_seconds",
		"How long the oldest count that is due has waited to be sent to other regions.", "shard")
	descCells = desc("cells", "Cells that the relay holds of a shard.", "shard")
	descLag   = desc("lag_seconds",
		"Age of the region's oldest row in the last read that had rows of it; reported for a minute.", "from")
	oneOrZero = map[bool]float64{true: 1}
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{descLease, descUnpublished, descCells, descLag} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	send := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	now := m.relay.cfg.Clock()
	for _, s := range m.relay.shards {
		shard := strconv.Itoa(s.index)
		_, held := s.lease.term(now)
		age, cells := s.book.figures(now)
		send(descLease, oneOrZero[held], shard)
		send(descUnpublished, age.Seconds(), shard)
		send(descCells, float64(cells), shard)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for region, l := range m.lags {
		if now.Sub(l.at) <= lagKept {
			send(descLag, l.late.Seconds(), region)
		}
	}
}

// figures returns how long the oldest due total has waited to be published, and the number of cells. Totals that may
// wait until another region uses their cells do not count.
func (b *book) figures(now time.Time) (unpublished time.Duration, cells int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.due {
		if !c.unpublishedSince.IsZero() {
			unpublished = max(unpublished, now.Sub(c.unpublishedSince))
		}
	}
	return unpublished, b.cells.n
}
