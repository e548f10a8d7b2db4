package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

// Report is the result of a run. Programs can rely on its JSON form: fields are only ever added.
type Report struct {
	Scenario  string       `json:"scenario"`
	Summary   string       `json:"summary"`
	Seed      uint64       `json:"seed"`
	Tuning    TuningReport `json:"tuning"`
	Simulated Simulated    `json:"simulated"`

	// AdmittedOverLimit is the largest (admitted in the cell + admitted in the cell before * weight, in whole units) /
	// limit that any key reached at any moment, over all regions: 1 is exact. AdmittedOverLimitMean is the mean of the
	// keys' own largest values, over the keys that reached their limits.
	AdmittedOverLimit     float64 `json:"admitted_over_limit"`
	AdmittedOverLimitMean float64 `json:"admitted_over_limit_mean"`

	// RealWindowOverLimit is the largest cost that any key had in a real window, divided by the limit of the request that
	// ended it. A real window is any interval of the limit's duration, over all regions: see reallog.Log. It is 0 in the
	// estimate mode and in scenarios of relays.
	RealWindowOverLimit float64 `json:"real_window_over_limit"`

	// AdmittedRateOverLimit is a mean over the keys that reached their limits: the cost admitted in the measured time,
	// divided by the cost that their limits allow in that time. If the measured time is shorter than a window, it means
	// little.
	AdmittedRateOverLimit float64 `json:"admitted_rate_over_limit"`

	// ConvergenceDelayMs is how long a cost took to reach a node of another region. It counts from the cost's acceptance,
	// or from the region's first own cost in the same window if that is later. ConvergenceDelayHotMs has only the cost
	// that took its key past 80 % of its limit. In scenarios of relays they count from the time when a cost is at its
	// origin until the answers of every other origin have it: see tracker.
	ConvergenceDelayMs    DelaysMs `json:"convergence_delay_ms"`
	ConvergenceDelayHotMs DelaysMs `json:"convergence_delay_hot_ms"`

	// SinceAcceptedMs counts from a cost's acceptance until a node of another region with traffic on the key has received
	// it, even if that region uses the key later in the window. Until then a relay can keep less than the floor back.
	// Scenarios of relays leave it empty.
	SinceAcceptedMs DelaysMs `json:"since_accepted_ms"`

	// WaitMs is how long decisions waited for their origins, after the warm-up.
	WaitMs WaitsMs `json:"wait_ms"`

	MySQLRowsReadPerS    float64 `json:"mysql_rows_read_per_s"`    // rows and index entries examined
	MySQLRowsWrittenPerS float64 `json:"mysql_rows_written_per_s"` // rows changed on disk
	// MySQLCountsWrittenPerS is the part of these rows that are stored counts. The other rows are in the change feed.
	MySQLCountsWrittenPerS float64 `json:"mysql_counts_written_per_s"`
	MySQLStatementsPerS    float64 `json:"mysql_statements_per_s"` // of any kind
	// Bytes that relays read and write, in rows and payloads: see network.MySQLMeters.
	MySQLBytesReadPerS    float64 `json:"mysql_bytes_read_per_s,omitempty"`
	MySQLBytesWrittenPerS float64 `json:"mysql_bytes_written_per_s,omitempty"`
	// Messages that nodes receive from their origins, and cells in
	OriginMessagesPerS     float64 `json:"origin_messages_per_s,omitempty"`
	OriginMessageCellsPerS float64 `json:"origin_message_cells_per_s,omitempty"` // them
	// RelayCPUShare is the processor time of a relay, in cores: see cpu.Meter.
	RelayCPUShare float64 `json:"relay_cpu_share,omitempty"`
	// Commands that the origin's scripts run in Redis: see originOp.
	RedisCommandsPerS   float64 `json:"redis_commands_per_s"`
	RedisRoundTripsPerS float64 `json:"redis_round_trips_per_s"`
	OriginReadsPerTick  float64 `json:"origin_reads_per_tick"` // keys read, for each node and replay tick

	OriginIncrementsPerTick float64 `json:"origin_increments_per_tick"` // cells added to, for each node and replay tick

	// OriginReadsPerTickUntiered is computed, not measured: the keys that a node would read each tick if it read every key
	// once in each SyncedEvery, whatever its pressure. It is 0 if the scenario has no SyncedEvery.
	OriginReadsPerTickUntiered float64 `json:"origin_reads_per_tick_untiered,omitempty"`

	// LockedOutS is the longest time for which a key was denied that is never offered its whole limit, from a denial to
	// the next request that was allowed. Only clock-ahead has such keys. For example, 5.5 means that a caller could be
	// denied for 5.5 s although the limit had room.
	LockedOutS float64 `json:"locked_out_s,omitempty"`

	LostCost    int64 `json:"lost_cost"`    // accepted, but not at the origin when the cell had ended
	DoubledCost int64 `json:"doubled_cost"` // at the origin, but never accepted
	// DroppedCost is the cost that live nodes report as given up, because it expired unsent or the table was full.
	DroppedCost   int64 `json:"dropped_cost"`
	AmbiguousCost int64 `json:"ambiguous_cost"` // cost of claims whose replies were lost

	BytesPerKey float64 `json:"bytes_per_key"` // heap bytes, with the key's names

	Groups     []GroupReport `json:"groups"`
	Violations []Violation   `json:"violations"`
}

// TuningReport is the tuning that the fleet ran.
type TuningReport struct {
	Name     string        `json:"name"`
	Document tuning.Tuning `json:"document"`
}

// Simulated is the extent of the simulation.
type Simulated struct {
	Regions   int     `json:"regions"`
	Nodes     int     `json:"nodes"`
	Keys      int     `json:"keys"`
	DurationS float64 `json:"duration_s"` // duration of the traffic
	MeasuredS float64 `json:"measured_s"` // at the end of the traffic, for the figures per second

	Allowed      int64 `json:"allowed"`
	Denied       int64 `json:"denied"`
	Degraded     int64 `json:"degraded"` // decided without the answer that they needed
	OfferedCost  int64 `json:"offered_cost"`
	AdmittedCost int64 `json:"admitted_cost"`
}

// GroupReport has the figures of a group of keys.
type GroupReport struct {
	Name                  string  `json:"name"`
	Keys                  int     `json:"keys"`
	KeysAtLimit           int     `json:"keys_at_limit"`
	AdmittedOverLimit     float64 `json:"admitted_over_limit"`
	AdmittedOverLimitMean float64 `json:"admitted_over_limit_mean"`
	RealWindowOverLimit   float64 `json:"real_window_over_limit"`
	AdmittedRateOverLimit float64 `json:"admitted_rate_over_limit"`
	AdmittedOverLog       float64 `json:"admitted_over_log,omitempty"` // by the cost that an exact log admits
	OfferedCost           int64   `json:"offered_cost"`
	AdmittedCost          int64   `json:"admitted_cost"`
	Degraded              int64   `json:"degraded"`
	LostCost              int64   `json:"lost_cost"`
	DoubledCost           int64   `json:"doubled_cost"`
	LockedOutS            float64 `json:"locked_out_s,omitempty"`
}

// reading is the values of the meters at one moment.
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
		s.RowsWritten, int64(m.cpu.Spent()),
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
		return // in scenarios of relays
	}
	r.MySQLCountsWrittenPerS = perS(to.countsWritten - from.countsWritten)
	ticks := float64(len(w.nodes)) * span.Seconds() / r.Tuning.Document.ReplayTick.Std().Seconds()
	r.OriginReadsPerTick = round(float64(to.keysRead-from.keysRead)/ticks, 3)
	r.OriginIncrementsPerTick = round(float64(to.increments-from.increments)/ticks, 3)
}

// sum fills in the figures of the ledger and the meters at the end.
func (w *world) sum(r *Report, keys int, groups groups, n *convergence) {
	d, s := &w.decisions, &r.Simulated
	s.Regions, s.Nodes, s.Keys = len(w.regions), w.shape.nodes(), keys
	s.Allowed, s.Denied, s.Degraded = d.allowed.Load(), d.denied.Load(), d.degraded.Load()
	s.OfferedCost, s.AdmittedCost = d.offeredCost.Load(), d.admittedCost.Load()
	r.AmbiguousCost, r.WaitMs = w.meters.ambiguousCost.Load(), d.waits.summary()
	r.ConvergenceDelayMs, r.ConvergenceDelayHotMs = n.all.summary(), n.hot.summary()
	all := tally{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		all.add(groups[name])
		r.Groups = append(r.Groups, groups[name].report(name))
	}
	total := all.report("")
	r.AdmittedOverLimit, r.AdmittedOverLimitMean, r.AdmittedRateOverLimit = total.AdmittedOverLimit,
		total.AdmittedOverLimitMean, total.AdmittedRateOverLimit
	r.RealWindowOverLimit = total.RealWindowOverLimit
	r.LostCost, r.DoubledCost, r.LockedOutS = total.LostCost, total.DoubledCost, total.LockedOutS
	w.checkLost(r)
	r.Violations = w.broken()
}

// tally adds up the figures of keys.
type tally struct {
	keys, atLimit      int // scenarios of relays count cells that reached their limits
	worst, peaks, rate float64
	real               float64 // largest real window, divided by its limit
	offered, admitted  int64
	logged             int64 // admitted by exact logs, if there are any
	degraded           int64
	lockedOut          time.Duration
	books              balance
}

func (t *tally) add(o *tally) {
	t.keys += o.keys
	t.atLimit += o.atLimit
	t.worst = max(t.worst, o.worst)
	t.peaks += o.peaks
	t.rate += o.rate
	t.real = max(t.real, o.real)
	t.logged += o.logged
	t.offered += o.offered
	t.admitted += o.admitted
	t.degraded += o.degraded
	t.lockedOut = max(t.lockedOut, o.lockedOut)
	t.books.add(o.books)
}

// peaked adds a key or cell with its highest share of its limit. full means that it was at its limit.
func (t *tally) peaked(peak float64, full bool) {
	t.worst = max(t.worst, peak)
	if full {
		t.atLimit++
		t.peaks += peak
	}
}

func (t *tally) report(name string) GroupReport {
	g := GroupReport{Name: name, Keys: t.keys, KeysAtLimit: t.atLimit, AdmittedOverLimit: round(t.worst, 4),
		RealWindowOverLimit: round(t.real, 4),
		OfferedCost:         t.offered, AdmittedCost: t.admitted,
		Degraded: t.degraded, LostCost: t.books.lost, DoubledCost: t.books.doubled,
		LockedOutS: round(t.lockedOut.Seconds(), 3)}
	if t.logged > 0 {
		g.AdmittedOverLog = round(float64(t.admitted)/float64(t.logged), 4)
	}
	if t.atLimit > 0 {
		g.AdmittedOverLimitMean = round(t.peaks/float64(t.atLimit), 4)
		g.AdmittedRateOverLimit = round(t.rate/float64(t.atLimit), 4)
	}
	return g
}

// groups are the tallies of groups, by the names in reports.
type groups map[string]*tally

// of returns a group's tally, and adds it if there is none.
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
