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

// metrics are what the loops count; Collect turns them into Prometheus' form.
type metrics struct {
	relay *Relay

	published, read, received traffic

	saved, refused, healed, fenced, unreadable, malformed, early, excess, full, epochs, errors atomic.Int64

	convergence prometheus.Histogram

	readAt atomic.Int64 // clock.Steady of the last read of news without an error; at first when reading began

	mu    sync.Mutex
	lags  map[string]lag     // by region, as labelOf has it: in the last read that had some of its rows
	since map[string]*delays // by region, as labelOf has it: since Figures was called last
}

// lagKept is how long a lag is reported: that of a region that has gone, or of a lease that was lost, tells nothing.
const lagKept = time.Minute

// lag is how old the oldest row of a region was that was read at a time.
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
}

// labelOf is a region's name as a label: another region's is any bytes, and a label is UTF-8.
func labelOf(region string) string { return strings.ToValidUTF8(region, "\uFFFD") }

// noteLag notes how old a page's rows were when they were read, by the store's clock.
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

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_relay_"+name, help, labels, nil)
}

var (
	descLease       = desc("lease_held", "1 while this process relays the shard of its region's origin.", "shard")
	descUnpublished = desc("unpublished_age_seconds",
		"How long the oldest count that is due has waited to be sent to other regions.", "shard")
	descCells = desc("cells", "Cells that the relay holds of a shard.", "shard")
	descRows  = desc("feed_rows_total",
		"Changes written for other regions (published), read, and received from a peer (received).", "direction")
	descBytes = desc("feed_bytes_total",
		"Bytes of changes written for other regions (published), read, and received from a peer (received).", "direction")
	descLag = desc("lag_seconds",
		"Age of the region's oldest row in the last read that had rows of it; reported for a minute.", "from")
	descInStep = desc("in_step_timestamp_seconds",
		"Unix time at which the relay had last sent all due counts and read the change feed; 0 without a lease.")
	descSaved   = desc("stored_counts_total", "Counts that were stored for good.")
	descRefused = desc("refused_counts_total",
		"Counts that the store refused: each is tried once, and named in the log.")
	descHealed = desc("healed_total", "Times that the relay restored the counts that a shard of the origin had lost.")
	descFenced = desc("fenced_total", "Times that another relay of the same shard had written first.")
	descEarly  = desc("early_cells_total",
		"Cells in changes that were left out because their windows begin in the future: a region's clock is ahead.")
	descExcess = desc("excess_cells_total",
		"Cells of changes that were left out, in whole or from their second count on, because a relay holds no more cells "+
			"of a region, or no more regions.")
	descFull = desc("full_reads_total",
		"Reads of the change feed that left streams out because a relay follows no more.")
	descEpochs = desc("epoch_changes_total",
		"Times that a shard of the origin was found in another epoch: it, or a part of it, has lost its counts.")
	descUnread = desc("unreadable_rows_total",
		"Rows of the change feed that were left out because this version cannot read them.")
	descMalformed = desc("malformed_cells_total",
		"Cells of the origin, of the change feed or of a peer that were left out because no node can have counted in them.")
	descErrors = desc("errors_total", "Steps of the relay's loops that failed.")
	descsOfAll = []*prometheus.Desc{descLease, descUnpublished, descCells, descRows, descBytes, descLag, descInStep,
		descSaved, descRefused,
		descHealed, descFenced, descUnread, descMalformed, descEarly, descExcess, descFull, descEpochs,
		descErrors}
	oneOrZero = map[bool]float64{true: 1}
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descsOfAll {
		ch <- d
	}
	m.convergence.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	now := m.relay.cfg.Clock()
	for _, s := range m.relay.shards {
		shard := strconv.Itoa(s.index)
		_, held := s.lease.term(now)
		age, cells := s.book.figures(now)
		send(descLease, prometheus.GaugeValue, oneOrZero[held], shard)
		send(descUnpublished, prometheus.GaugeValue, age.Seconds(), shard)
		send(descCells, prometheus.GaugeValue, float64(cells), shard)
	}
	send(descInStep, prometheus.GaugeValue, float64(m.relay.inStepAtMs(now))/1000)
	for direction, t := range map[string]*traffic{"published": &m.published, "read": &m.read, "received": &m.received} {
		send(descRows, prometheus.CounterValue, float64(t.rows.Load()), direction)
		send(descBytes, prometheus.CounterValue, float64(t.bytes.Load()), direction)
	}
	for d, n := range map[*prometheus.Desc]*atomic.Int64{descSaved: &m.saved, descRefused: &m.refused,
		descHealed: &m.healed,
		descFenced: &m.fenced, descUnread: &m.unreadable, descMalformed: &m.malformed, descEarly: &m.early,
		descExcess: &m.excess,
		descFull:   &m.full, descEpochs: &m.epochs, descErrors: &m.errors} {
		send(d, prometheus.CounterValue, float64(n.Load()))
	}
	m.convergence.Collect(ch)
	m.mu.Lock()
	defer m.mu.Unlock()
	for region, l := range m.lags {
		if now.Sub(l.at) <= lagKept {
			send(descLag, prometheus.GaugeValue, l.late.Seconds(), region)
		}
	}
}

// figures are how long the oldest total has waited to be told, and how many cells there are. Totals that may wait until
// another region uses their cells do not count.
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
