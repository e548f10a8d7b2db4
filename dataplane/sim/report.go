package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

// Report is what a run showed. Its JSON form is meant for programs: fields are only
// ever added.
type Report struct {
	Scenario  string       `json:"scenario"`
	Summary   string       `json:"summary"`
	Seed      uint64       `json:"seed"`
	Tuning    TuningReport `json:"tuning"`
	Simulated Simulated    `json:"simulated"`

	// AdmittedOverLimit is the largest (admitted in the cell + admitted in the cell
	// before * weight, in whole units) / limit that any key reached at any moment, over all regions: 1
	// is exact. AdmittedOverLimitMean is the mean of the keys' own largest, over the keys
	// that reached their limits.
	AdmittedOverLimit     float64 `json:"admitted_over_limit"`
	AdmittedOverLimitMean float64 `json:"admitted_over_limit_mean"`

	// AdmittedRateOverLimit is what keys that reached their limits were admitted in the
	// time that is measured, over what their limits allow in so much time: the mean. Of
	// times shorter than a window it says little.
	AdmittedRateOverLimit float64 `json:"admitted_rate_over_limit"`

	// ConvergenceDelayMs is how long a node of another region waited to be handed a cost: from the cost's being
	// accepted, or from the region's first own cost in the same window if that is later. The second is for cost that
	// took its key past 80 % of its limit. Of relays it is how long after a cost was at its origin every other origin's
	// answers had it: see tracker.
	ConvergenceDelayMs    DelaysMs `json:"convergence_delay_ms"`
	ConvergenceDelayHotMs DelaysMs `json:"convergence_delay_hot_ms"`

	// SinceAcceptedMs is how long after a cost was accepted a node of another region with traffic on the key was handed
	// it, whenever that region began to use the key in the window: a relay keeps less than the floor back until then.
	// Nothing of relays alone.
	SinceAcceptedMs DelaysMs `json:"since_accepted_ms"`

	MySQLRowsReadPerS    float64 `json:"mysql_rows_read_per_s"`    // rows and index entries examined
	MySQLRowsWrittenPerS float64 `json:"mysql_rows_written_per_s"` // rows changed on disk
	// of these: counts stored for good. The others are news
	MySQLCountsWrittenPerS float64 `json:"mysql_counts_written_per_s"`
	MySQLStatementsPerS    float64 `json:"mysql_statements_per_s"` // of any kind
	// by relays, in rows and payloads: see network.MySQLMeters
	MySQLBytesReadPerS    float64 `json:"mysql_bytes_read_per_s,omitempty"`
	MySQLBytesWrittenPerS float64 `json:"mysql_bytes_written_per_s,omitempty"`
	// that nodes hear from their origins, and cells in
	OriginMessagesPerS     float64 `json:"origin_messages_per_s,omitempty"`
	OriginMessageCellsPerS float64 `json:"origin_message_cells_per_s,omitempty"` // them
	// of one core, that one relay takes: see cpuMeter
	RelayCPUShare float64 `json:"relay_cpu_share,omitempty"`
	// what scripts have Redis do: see originOp
	RedisCommandsPerS   float64 `json:"redis_commands_per_s"`
	RedisRoundTripsPerS float64 `json:"redis_round_trips_per_s"`
	OriginReadsPerTick  float64 `json:"origin_reads_per_tick"` // keys read, a node and replay tick

	OriginIncrementsPerTick float64 `json:"origin_increments_per_tick"` // cells added to, a node and replay tick

	// OriginReadsPerTickUntiered is arithmetic and nothing that was run: what a node would
	// read if every key were read once in each of the scenario's intervals between syncs,
	// whatever its pressure. 0 where the scenario names none.
	OriginReadsPerTickUntiered float64 `json:"origin_reads_per_tick_untiered,omitempty"`

	LostCost    int64 `json:"lost_cost"`    // accepted, and not at the origin when the cell was over
	DoubledCost int64 `json:"doubled_cost"` // at the origin, and never accepted
	// given up by nodes that live, as they say themselves: expired unsent, or the table was full
	DroppedCost   int64 `json:"dropped_cost"`
	AmbiguousCost int64 `json:"ambiguous_cost"` // of claims whose replies were lost

	BytesPerKey float64 `json:"bytes_per_key"` // of heap, the key's names included

	Groups     []GroupReport `json:"groups"`
	Violations []Violation   `json:"violations"`
}

// TuningReport says what the fleet ran.
type TuningReport struct {
	Name     string        `json:"name"`
	Document tuning.Tuning `json:"document"`
}

// Simulated says how much was simulated.
type Simulated struct {
	Regions   int     `json:"regions"`
	Nodes     int     `json:"nodes"`
	Keys      int     `json:"keys"`
	DurationS float64 `json:"duration_s"` // of traffic
	MeasuredS float64 `json:"measured_s"` // at its end, for the figures a second

	Allowed      int64 `json:"allowed"`
	Denied       int64 `json:"denied"`
	Degraded     int64 `json:"degraded"` // decided without the answer that was wanted
	OfferedCost  int64 `json:"offered_cost"`
	AdmittedCost int64 `json:"admitted_cost"`
}

// GroupReport is the share of one kind of keys in the figures.
type GroupReport struct {
	Name                  string  `json:"name"`
	Keys                  int     `json:"keys"`
	KeysAtLimit           int     `json:"keys_at_limit"`
	AdmittedOverLimit     float64 `json:"admitted_over_limit"`
	AdmittedOverLimitMean float64 `json:"admitted_over_limit_mean"`
	AdmittedRateOverLimit float64 `json:"admitted_rate_over_limit"`
	OfferedCost           int64   `json:"offered_cost"`
	AdmittedCost          int64   `json:"admitted_cost"`
	Degraded              int64   `json:"degraded"`
	LostCost              int64   `json:"lost_cost"`
	DoubledCost           int64   `json:"doubled_cost"`
}

// reading is the meters at one moment.
type reading struct {
	commands, trips, messages, messageCells                    int64
	keysRead, increments                                       int64
	statements, rowsRead, rowsWritten, bytesRead, bytesWritten int64
	countsWritten, spent                                       int64
}

func (w *world) read() reading {
	m, s := &w.meters, w.Counts.Stats()
	h, q := &w.Origins, &w.MySQL
	return reading{
		h.Commands.Load(), h.Trips.Load(), h.Messages.Load(), h.MessageCells.Load(), m.keysRead.Load(), m.increments.Load(),
		q.Statements.Load() + s.Statements, q.RowsRead.Load() + s.RowsRead, q.RowsWritten.Load() + s.RowsWritten,
		q.BytesRead.Load(), q.BytesWritten.Load(),
		s.RowsWritten, m.cpu.spent.Load(),
	}
}

func (w *world) rates(r *Report, from, to reading, span time.Duration) {
	perS := func(n int64) float64 { return round(float64(n)/span.Seconds(), 2) }
	r.RedisCommandsPerS = perS(to.commands - from.commands)
	r.RedisRoundTripsPerS = perS(to.trips - from.trips)
	r.MySQLStatementsPerS = perS(to.statements - from.statements)
	r.MySQLRowsReadPerS = perS(to.rowsRead - from.rowsRead)
	r.MySQLRowsWrittenPerS = perS(to.rowsWritten - from.rowsWritten)
	r.MySQLBytesReadPerS = perS(to.bytesRead - from.bytesRead)
	r.MySQLBytesWrittenPerS = perS(to.bytesWritten - from.bytesWritten)
	r.OriginMessagesPerS = perS(to.messages - from.messages)
	r.OriginMessageCellsPerS = perS(to.messageCells - from.messageCells)
	r.RelayCPUShare = round(float64(to.spent-from.spent)/float64(span), 4)
	if len(w.nodes) == 0 {
		return // relays alone
	}
	r.MySQLCountsWrittenPerS = perS(to.countsWritten - from.countsWritten)
	ticks := float64(len(w.nodes)) * span.Seconds() / r.Tuning.Document.ReplayTick.Std().Seconds()
	r.OriginReadsPerTick = round(float64(to.keysRead-from.keysRead)/ticks, 3)
	r.OriginIncrementsPerTick = round(float64(to.increments-from.increments)/ticks, 3)
}

// sum fills in what the books and the meters say at the end.
func (w *world) sum(r *Report, keys int, groups groups, n *convergence) {
	d, s := &w.decisions, &r.Simulated
	s.Regions, s.Nodes, s.Keys = len(w.regions), w.shape.nodes(), keys
	s.Allowed, s.Denied, s.Degraded = d.allowed.Load(), d.denied.Load(), d.degraded.Load()
	s.OfferedCost, s.AdmittedCost = d.offeredCost.Load(), d.admittedCost.Load()
	r.AmbiguousCost = w.meters.ambiguousCost.Load()
	r.ConvergenceDelayMs, r.ConvergenceDelayHotMs = n.all.summary(), n.hot.summary()
	all := tally{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		all.add(groups[name])
		r.Groups = append(r.Groups, groups[name].report(name))
	}
	total := all.report("")
	r.AdmittedOverLimit, r.AdmittedOverLimitMean, r.AdmittedRateOverLimit = total.AdmittedOverLimit,
		total.AdmittedOverLimitMean, total.AdmittedRateOverLimit
	r.LostCost, r.DoubledCost = total.LostCost, total.DoubledCost
	w.checkLost(r)
	r.Violations = w.broken()
}

// tally adds up keys.
type tally struct {
	keys, atLimit      int // relays' scenarios count cells that took their limit whole
	worst, peaks, rate float64
	offered, admitted  int64
	degraded           int64
	books              balance
}

func (t *tally) add(o *tally) {
	t.keys += o.keys
	t.atLimit += o.atLimit
	t.worst = max(t.worst, o.worst)
	t.peaks += o.peaks
	t.rate += o.rate
	t.offered += o.offered
	t.admitted += o.admitted
	t.degraded += o.degraded
	t.books.add(o.books)
}

// peaked adds something at its highest share of its limit. full: it was at its limit.
func (t *tally) peaked(peak float64, full bool) {
	t.worst = max(t.worst, peak)
	if full {
		t.atLimit++
		t.peaks += peak
	}
}

func (t *tally) report(name string) GroupReport {
	g := GroupReport{Name: name, Keys: t.keys, KeysAtLimit: t.atLimit, AdmittedOverLimit: round(t.worst, 4),
		OfferedCost: t.offered, AdmittedCost: t.admitted,
		Degraded: t.degraded, LostCost: t.books.lost, DoubledCost: t.books.doubled}
	if t.atLimit > 0 {
		g.AdmittedOverLimitMean = round(t.peaks/float64(t.atLimit), 4)
		g.AdmittedRateOverLimit = round(t.rate/float64(t.atLimit), 4)
	}
	return g
}

// groups are the tallies of groups of keys, by what reports call them.
type groups map[string]*tally

// of is a group's tally, a new one if there is none.
func (g groups) of(name string) *tally {
	if g[name] == nil {
		g[name] = &tally{}
	}
	return g[name]
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
