package sim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is a figure of a report, for tables: its name and its value.
type figure struct {
	name  string
	value func(*Report) float64
	some  bool // only some scenarios have it, so it is not shown if it is 0
}

// shown returns the figures without those that none of the reports has.
func shown(reports ...*Report) (list []figure) {
	for _, f := range figures {
		if !f.some || slices.ContainsFunc(reports, func(r *Report) bool { return f.value(r) != 0 }) {
			list = append(list, f)
		}
	}
	return list
}

// figures are the figures that reports are compared by, with their names in the JSON form.
var figures = []figure{
	{name: "admitted_over_limit", value: func(r *Report) float64 { return r.AdmittedOverLimit }},
	{name: "admitted_over_limit_mean", value: func(r *Report) float64 { return r.AdmittedOverLimitMean }},
	{name: "real_window_over_limit", some: true, value: func(r *Report) float64 { return r.RealWindowOverLimit }},
	{name: "admitted_rate_over_limit", value: func(r *Report) float64 { return r.AdmittedRateOverLimit }},
	{name: "convergence_delay_ms.p50", value: func(r *Report) float64 { return float64(r.ConvergenceDelayMs.P50) }},
	{name: "convergence_delay_ms.p99", value: func(r *Report) float64 { return float64(r.ConvergenceDelayMs.P99) }},
	{name: "convergence_delay_ms.unknown_share", value: func(r *Report) float64 {
		return r.ConvergenceDelayMs.UnknownShare
	}},
	{name: "convergence_delay_hot_ms.p50", value: func(r *Report) float64 { return float64(r.ConvergenceDelayHotMs.P50) }},
	{name: "convergence_delay_hot_ms.p99", value: func(r *Report) float64 { return float64(r.ConvergenceDelayHotMs.P99) }},
	{name: "convergence_delay_hot_ms.unknown_share", value: func(r *Report) float64 {
		return r.ConvergenceDelayHotMs.UnknownShare
	}},
	{name: "since_accepted_ms.p50", some: true, value: func(r *Report) float64 { return float64(r.SinceAcceptedMs.P50) }},
	{name: "since_accepted_ms.p99", some: true, value: func(r *Report) float64 { return float64(r.SinceAcceptedMs.P99) }},
	{name: "since_accepted_ms.unknown_share", some: true, value: func(r *Report) float64 {
		return r.SinceAcceptedMs.UnknownShare
	}},
	{name: "wait_ms.share", some: true, value: func(r *Report) float64 { return r.WaitMs.Share }},
	{name: "wait_ms.p50", some: true, value: func(r *Report) float64 { return r.WaitMs.P50 }},
	{name: "wait_ms.p99", some: true, value: func(r *Report) float64 { return r.WaitMs.P99 }},
	{name: "wait_ms.p999", some: true, value: func(r *Report) float64 { return r.WaitMs.P999 }},
	{name: "wait_ms.max", some: true, value: func(r *Report) float64 { return r.WaitMs.Max }},
	{name: "mysql_rows_read_per_s", value: func(r *Report) float64 { return r.MySQLRowsReadPerS }},
	{name: "mysql_rows_written_per_s", value: func(r *Report) float64 { return r.MySQLRowsWrittenPerS }},
	{name: "mysql_counts_written_per_s", some: true, value: func(r *Report) float64 { return r.MySQLCountsWrittenPerS }},
	{name: "mysql_statements_per_s", value: func(r *Report) float64 { return r.MySQLStatementsPerS }},
	{name: "mysql_bytes_read_per_s", some: true, value: func(r *Report) float64 { return r.MySQLBytesReadPerS }},
	{name: "mysql_bytes_written_per_s", some: true, value: func(r *Report) float64 { return r.MySQLBytesWrittenPerS }},
	{name: "origin_messages_per_s", some: true, value: func(r *Report) float64 { return r.OriginMessagesPerS }},
	{name: "origin_message_cells_per_s", some: true, value: func(r *Report) float64 { return r.OriginMessageCellsPerS }},
	{name: "relay_cpu_share", some: true, value: func(r *Report) float64 { return r.RelayCPUShare }},
	{name: "redis_commands_per_s", value: func(r *Report) float64 { return r.RedisCommandsPerS }},
	{name: "redis_round_trips_per_s", value: func(r *Report) float64 { return r.RedisRoundTripsPerS }},
	{name: "origin_reads_per_tick", value: func(r *Report) float64 { return r.OriginReadsPerTick }},
	{name: "origin_increments_per_tick", value: func(r *Report) float64 { return r.OriginIncrementsPerTick }},
	{name: "origin_reads_per_tick_untiered", value: func(r *Report) float64 {
		return r.OriginReadsPerTickUntiered
	}, some: true},
	{name: "locked_out_s", some: true, value: func(r *Report) float64 { return r.LockedOutS }},
	{name: "lost_cost", value: func(r *Report) float64 { return float64(r.LostCost) }},
	{name: "dropped_cost", value: func(r *Report) float64 { return float64(r.DroppedCost) }},
	{name: "doubled_cost", value: func(r *Report) float64 { return float64(r.DoubledCost) }},
	{name: "bytes_per_key", value: func(r *Report) float64 { return r.BytesPerKey }},
}

// Comparison is the result of the same scenario and seed with two tunings.
type Comparison struct {
	First  Report `json:"first"`
	Second Report `json:"second"`

	// Ratios are the second report's figures divided by the first's, by their names in the JSON form. A figure that is 0
	// in the first report has no ratio.
	Ratios map[string]float64 `json:"ratios"`
}

// Compare compares two reports figure by figure.
func Compare(first, second Report) Comparison {
	c := Comparison{First: first, Second: second, Ratios: make(map[string]float64)}
	for _, f := range figures {
		if v := f.value(&first); v != 0 {
			c.Ratios[f.name] = round(f.value(&second)/v, 4)
		}
	}
	return c
}

// WriteTable writes the report as a table for people.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	r.writeHead(t)
	for _, f := range shown(&r) {
		fmt.Fprintf(t, "%s\t%s\n", f.name, digits(f.value(&r)))
	}
	fmt.Fprintf(t,
		"\nKEYS\tCOUNT\tAT LIMIT\tADMITTED/LIMIT\tMEAN\tREAL WINDOW/LIMIT\tRATE/LIMIT\tOFFERED\t"+
			"ADMITTED\tDEGRADED\tLOST\tDOUBLED\n")
	for _, g := range r.Groups {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", g.Name, g.Keys, g.KeysAtLimit,
			digits(g.AdmittedOverLimit), digits(g.AdmittedOverLimitMean), digits(g.RealWindowOverLimit),
			digits(g.AdmittedRateOverLimit), g.OfferedCost, g.AdmittedCost, g.Degraded, g.LostCost, g.DoubledCost)
	}
	r.writeViolations(t)
	return t.Flush()
}

func (r *Report) writeHead(w io.Writer) {
	s := &r.Simulated
	fmt.Fprintf(w, "%s, seed %d, tuning %s\n%s\n", r.Scenario, r.Seed, r.Tuning.Name, r.Summary)
	fmt.Fprintf(w, "%d nodes in %d regions, %d keys, %g s of traffic, the last %g s measured; %d requests allowed, %d "+
		"denied, %d decided without an answer that they needed\n\n",
		s.Nodes, s.Regions, s.Keys, s.DurationS, s.MeasuredS, s.Allowed, s.Denied, s.Degraded)
}

func (r *Report) writeViolations(w io.Writer) {
	for _, v := range r.Violations {
		fmt.Fprintf(w, "\nVIOLATED: %s, %d times, first %s\n", v.Promise, v.Times, v.First)
	}
}

// WriteTable writes the figures of both reports, and their ratios.
func (c Comparison) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	c.First.writeHead(t)
	fmt.Fprintf(t, "\t%s\t%s\tRATIO\n", strings.ToUpper(c.First.Tuning.Name), strings.ToUpper(c.Second.Tuning.Name))
	for _, f := range shown(&c.First, &c.Second) {
		ratio := "-"
		if v, ok := c.Ratios[f.name]; ok {
			ratio = digits(v)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.name, digits(f.value(&c.First)), digits(f.value(&c.Second)), ratio)
	}
	c.First.writeViolations(t)
	c.Second.writeViolations(t)
	return t.Flush()
}

// digits formats a figure with its significant digits.
func digits(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
