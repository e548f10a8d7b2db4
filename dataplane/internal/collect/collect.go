// Package collect describes a limiter's metrics and counts its calls to the origin. It emits metrics to a Sink, so it
// depends on no monitoring system.
package collect

import (
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/histogram"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// Kind is how a metric changes.
type Kind uint8

// Kinds of metrics.
const (
	Counter   Kind = iota // only grows
	Gauge                 // may fall
	Histogram             // counts values by their size
)

// Desc describes all series of a name.
type Desc struct {
	Name, Help string
	Kind       Kind
	Labels     []string // names
}

// Sink receives one series: its description, the values of its labels in the order of Desc.Labels, and its value.
// A histogram has counts instead of a value; for other kinds counted is nil.
type Sink func(d *Desc, value float64, counted *histogram.Snapshot, labels ...string)

// Value emits a counter or a gauge.
func (s Sink) Value(d *Desc, v int64, labels ...string) { s(d, float64(v), nil, labels...) }

// Histogram emits a histogram's counts so far.
func (s Sink) Histogram(d *Desc, h *histogram.Histogram, labels ...string) {
	counted := h.Snapshot()
	s(d, 0, &counted, labels...)
}

// Node writes the series that identifies the node. Rules and dashboards join it to the other series
// of the same target to get the region, so a limiter that is embedded in a program publishes it
// too.
func Node(to Sink, region, id, build string) {
	to.Value(descNode, 1, region, id, build)
}

// Leases writes those of leases: of those that this process holds, and of those by id.
func Leases(to Sink, of slots.Stats, byID *leases.Book) {
	held, granted, refused := byID.Stats()
	to.Value(descLeases, of.Leases+held)
	to.Value(descLeaseWaiters, of.Waiters)
	to.Value(descAcquired, of.Granted+granted, "granted")
	to.Value(descAcquired, of.Refused+refused, "refused")
	to.Value(descLeasesLost, of.Lost)
	to.Value(descSlotCalls, of.Calls)
	to.Value(descSlotKeys, of.Asks)
	to.Value(descSlotErrors, of.Errors)
}

// Reservations writes those of reservations: of this process, and at the origin.
func Reservations(to Sink, here *held.Here, there *held.There) {
	h, t := &here.Stats, &there.Stats
	to.Value(descReservations, int64(here.Len()+there.Len()))
	to.Value(descReserved, h.Granted.Load()+t.Granted.Load(), "granted")
	to.Value(descReserved, h.Refused.Load()+t.Refused.Load(), "refused")
	to.Value(descSettled, h.Settled.Load()+t.Settled.Load())
	to.Value(descExceeded, h.Exceeded.Load()+t.Exceeded.Load())
	to.Value(descUnchanged, h.Late.Load()+t.Late.Load(), "late")
	to.Value(descUnchanged, h.Unknown.Load()+t.Unknown.Load(), "unknown")
	to.Value(descUnchanged, h.NoReply.Load()+t.NoReply.Load(), "origin")
}

var (
	descNode = gauge("weir_node_info", "Always 1: the node's region, id and build.", "region", "node_id", "build")

	descLeases = gauge("weir_concurrency_leases", "Leases of concurrency limits that are held on this node, and those "+
		"by id that it has granted or renewed last: another node may know of those too.")
	descLeaseWaiters = gauge("weir_concurrency_waiters",
		"Requests that wait for a lease, or for the origin's word on one.")
	descAcquired = counter("weir_concurrency_requests_total",
		"Requests for leases, by what this node made of them before shadow mode and outage policies.", "result")
	descLeasesLost = counter("weir_concurrency_leases_lost_total",
		"Leases that ended because their slots could not be renewed, or the origin had lost them.")
	descSlotCalls = counter("weir_concurrency_calls_total", "Calls to the origin about slots, failed ones included.")
	descSlotKeys  = counter("weir_concurrency_call_keys_total",
		"Keys that calls about slots carried, failed ones included.")
	descSlotErrors = counter("weir_concurrency_call_errors_total", "Calls to the origin about slots that failed.")

	descReservations = gauge("weir_reservations",
		"Reservations that this node keeps: those it has made or changed and that have not ended, at most 100,000.")
	descReserved = counter("weir_reservation_requests_total",
		"Requests for new reservations that were decided. What is reserved under an id again is not counted.", "result")
	descSettled = counter("weir_reservations_settled_total",
		"Reservations that were settled or cancelled at this node; any node may have made them. Of all nodes, those "+
			"granted and never settled have ended by themselves.")
	descExceeded = counter("weir_reservations_exceeded_total",
		"Settled reservations of which more was spent than was reserved.")
	descUnchanged = counter("weir_reservation_calls_failed_total",
		"Calls about reservations that changed nothing: it was settled or had ended before (late), nothing is known of "+
			"its id (unknown), or the origin did not answer (origin).", "cause")
)

func counter(name, help string, labels ...string) *Desc { return &Desc{name, help, Counter, labels} }

func gauge(name, help string, labels ...string) *Desc { return &Desc{name, help, Gauge, labels} }

func counts(name, help string, labels ...string) *Desc { return &Desc{name, help, Histogram, labels} }
