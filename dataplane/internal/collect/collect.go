// Package collect writes the metrics of a node, its leases and its reservations.
package collect

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// Node writes the series that identifies the node. Rules and dashboards join it to the other series
// of the same target to get the region, so a limiter that is embedded in a program publishes it
// too.
func Node(ch chan<- prometheus.Metric, region, id, build string) {
	ch <- prometheus.MustNewConstMetric(descNode, prometheus.GaugeValue, 1, region, id, build)
}

// Leases writes those of leases: of those that this process holds, and of those by id.
func Leases(ch chan<- prometheus.Metric, of slots.Stats, byID *leases.Book) {
	held, granted, refused := byID.Stats()
	gauge(ch, descLeases, of.Leases+held)
	gauge(ch, descLeaseWaiters, of.Waiters)
	counter(ch, descAcquired, of.Granted+granted, "granted")
	counter(ch, descAcquired, of.Refused+refused, "refused")
	counter(ch, descLeasesLost, of.Lost)
	counter(ch, descSlotCalls, of.Calls)
	counter(ch, descSlotKeys, of.Asks)
	counter(ch, descSlotErrors, of.Errors)
}

// Reservations writes those of reservations: of this process, and at the origin.
func Reservations(ch chan<- prometheus.Metric, here *held.Here, there *held.There) {
	h, t := &here.Stats, &there.Stats
	gauge(ch, descReservations, int64(here.Len()+there.Len()))
	counter(ch, descReserved, h.Granted.Load()+t.Granted.Load(), "granted")
	counter(ch, descReserved, h.Refused.Load()+t.Refused.Load(), "refused")
	counter(ch, descSettled, h.Settled.Load()+t.Settled.Load())
	counter(ch, descExceeded, h.Exceeded.Load()+t.Exceeded.Load())
	counter(ch, descUnchanged, h.Late.Load()+t.Late.Load(), "late")
	counter(ch, descUnchanged, h.Unknown.Load()+t.Unknown.Load(), "unknown")
	counter(ch, descUnchanged, h.NoReply.Load()+t.NoReply.Load(), "origin")
}

var (
	descNode = desc("weir_node_info", "Always 1: the node's region, id and build.", "region", "node_id", "build")

	descLeases = desc("weir_concurrency_leases", "Leases of concurrency limits that are held on this node, and those "+
		"by id that it has granted or renewed last: another node may know of those too.")
	descLeaseWaiters = desc("weir_concurrency_waiters",
		"Requests that wait for a lease, or for the origin's word on one.")
	descAcquired = desc("weir_concurrency_requests_total",
		"Requests for leases, by what this node made of them before shadow mode and outage policies.", "result")
	descLeasesLost = desc("weir_concurrency_leases_lost_total",
		"Leases that ended because their slots could not be renewed, or the origin had lost them.")
	descSlotCalls  = desc("weir_concurrency_calls_total", "Calls to the origin about slots, failed ones included.")
	descSlotKeys   = desc("weir_concurrency_call_keys_total", "Keys that calls about slots carried, failed ones included.")
	descSlotErrors = desc("weir_concurrency_call_errors_total", "Calls to the origin about slots that failed.")

	descReservations = desc("weir_reservations",
		"Reservations that this node keeps: those it has made or changed and that have not ended, at most 100,000.")
	descReserved = desc("weir_reservation_requests_total",
		"Requests for new reservations that were decided. What is reserved under an id again is not counted.", "result")
	descSettled = desc("weir_reservations_settled_total",
		"Reservations that were settled or cancelled at this node; any node may have made them. Of all nodes, those "+
			"granted and never settled have ended by themselves.")
	descExceeded = desc("weir_reservations_exceeded_total",
		"Settled reservations of which more was spent than was reserved.")
	descUnchanged = desc("weir_reservation_calls_failed_total",
		"Calls about reservations that changed nothing: it was settled or had ended before (late), nothing is known of "+
			"its id (unknown), or the origin did not answer (origin).", "cause")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v int64) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
}
