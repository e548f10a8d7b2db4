package permits

import "github.com/weirhq/weir/dataplane/internal/collect"

// Collect passes the metrics of leases and reservations to a sink.
func (p *Permits) Collect(to collect.Sink) {
	p.Leases.collect(to)
	p.Reservations.collect(to)
}

// collect passes the metrics of leases: of those that this process holds, and of those by id.
func (l *Leases) collect(to collect.Sink) {
	of := l.slots.Stats()
	held, granted, refused := l.book.Stats()
	to.Value(descLeases, of.Leases+held)
	to.Value(descLeaseWaiters, of.Waiters)
	to.Value(descAcquired, of.Granted+granted, "granted")
	to.Value(descAcquired, of.Refused+refused, "refused")
	for of, name := range [bounds]string{"keys", "waiters", "leases", "calls"} {
		to.Value(descBounds, l.full[of].Load(), name)
	}
	to.Value(descLeasesLost, of.Lost)
	to.Value(descSlotCalls, of.Calls)
	to.Value(descSlotKeys, of.Asks)
	to.Value(descSlotErrors, of.Errors)
}

// collect passes the metrics of reservations: of this process, and at the origin.
func (s *Reservations) collect(to collect.Sink) {
	h, t := &s.own.Stats, &s.region.Stats
	to.Value(descReservations, int64(s.own.Len()+s.region.Len()))
	to.Value(descReserved, h.Granted.Load()+t.Granted.Load(), "granted")
	to.Value(descReserved, h.Refused.Load()+t.Refused.Load(), "refused")
	to.Value(descSettled, h.Settled.Load()+t.Settled.Load())
	to.Value(descExceeded, h.Exceeded.Load()+t.Exceeded.Load())
	to.Value(descUnchanged, h.Late.Load()+t.Late.Load(), "late")
	to.Value(descUnchanged, h.Unknown.Load()+t.Unknown.Load(), "unknown")
	to.Value(descUnchanged, h.NoReply.Load()+t.NoReply.Load(), "origin")
	for of, name := range [heldBounds]string{"reservations", "holds", "calls"} {
		to.Value(descHeldBounds, s.full[of].Load(), name)
	}
}

var (
	descLeases = collect.NewGauge("weir_concurrency_leases",
		"Leases of concurrency limits that are held on this node, and those "+
			"by id that it has granted or renewed last: another node may know of those too.")
	descLeaseWaiters = collect.NewGauge("weir_concurrency_waiters",
		"Requests that wait for a lease, or for the origin's word on one.")
	descAcquired = collect.NewCounter("weir_concurrency_requests_total",
		"Requests for leases, by what this node made of them before shadow mode and outage policies.", "result")
	descBounds = collect.NewCounter("weir_concurrency_bounds_total",
		"Requests for leases that were refused because this node has no room in the caller's and the namespace's shares: "+
			"for further keys or leases by id (keys), waiters or leases of the key, or calls to the origin.", "bound")
	descLeasesLost = collect.NewCounter("weir_concurrency_leases_lost_total",
		"Leases that ended because their slots could not be renewed, or the origin had lost them.")
	descSlotCalls = collect.NewCounter("weir_concurrency_calls_total",
		"Calls to the origin about slots, failed ones included.")
	descSlotKeys = collect.NewCounter("weir_concurrency_call_keys_total",
		"Keys that calls about slots carried, failed ones included.")
	descSlotErrors = collect.NewCounter("weir_concurrency_call_errors_total",
		"Calls to the origin about slots that failed.")

	descReservations = collect.NewGauge("weir_reservations",
		"Reservations that this node keeps: those it has made or changed and that have not ended, at most 100,000.")
	descReserved = collect.NewCounter("weir_reservation_requests_total",
		"Requests for new reservations that were decided. What is reserved under an id again is not counted.", "result")
	descSettled = collect.NewCounter("weir_reservations_settled_total",
		"Reservations that were settled or cancelled at this node; any node may have made them. Of all nodes, those "+
			"granted and never settled have ended by themselves.")
	descHeldBounds = collect.NewCounter("weir_reservation_bounds_total",
		"Calls about reservations that were refused because there is no room: in the caller's and the namespace's shares of "+
			"what this node keeps (reservations), for holds of the key (holds), or for calls to the origin (calls).", "bound")
	descExceeded = collect.NewCounter("weir_reservations_exceeded_total",
		"Settled reservations of which more was spent than was reserved.")
	descUnchanged = collect.NewCounter("weir_reservation_calls_failed_total",
		"Calls about reservations that changed nothing: it was settled or had ended before (late), nothing is known of "+
			"its id (unknown), or the origin did not answer (origin).", "cause")
)
