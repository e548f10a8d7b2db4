package permits

import "github.com/weirhq/weir/dataplane/internal/collect"

// Collect passes the metrics of leases and reservations to a sink.
func (p *Permits) Collect(to collect.Sink) {
	p.Leases.collect(to)
	p.Reservations.collect(to)
}

// collect passes the metrics of leases: of leases that this process holds, and of leases by id.
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
	to.Value(descReservations, int64(s.region.Len()), "region")
	to.Value(descReservations, int64(s.own.Len()), "process")
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
		"Leases that are held in this process, and leases by ID that this node granted or renewed last. If another node has "+
			"renewed a lease by ID since, both nodes count it until the time to live of the earlier renewal has passed.")
	descLeaseWaiters = collect.NewGauge("weir_concurrency_waiters",
		"Requests on this node that wait for a free slot, or for the origin to answer whether there is one.")
	descAcquired = collect.NewCounter("weir_concurrency_requests_total",
		"Requests for leases that this node decided. A request counts as refused if its key had no free slot, even if "+
			"shadow mode or an outage policy then let it pass.", "result")
	descBounds = collect.NewCounter("weir_concurrency_bounds_total",
		"Requests about leases that were refused because a bound of this node was reached, by bound: keys (keys with "+
			"leases, or leases by ID), waiters (requests that wait for one key), leases (leases of one key), calls (no turn "+
			"for a call to the origin in time). A caller is refused if it has its share of a bound, even if others are not.",
		"bound")
	descLeasesLost = collect.NewCounter("weir_concurrency_leases_lost_total",
		"Leases that ended before they were released, because this node could not renew their slots in time, or because the "+
			"origin lost its data.")
	descSlotCalls = collect.NewCounter("weir_concurrency_calls_total",
		"Calls to the origin that take, renew and return slots, including calls that failed.")
	descSlotKeys = collect.NewCounter("weir_concurrency_call_keys_total",
		"Keys in the calls that weir_concurrency_calls_total counts. One call has up to 500 keys.")
	descSlotErrors = collect.NewCounter("weir_concurrency_call_errors_total",
		"Calls of weir_concurrency_calls_total that failed.")

	descReservations = collect.NewGauge("weir_reservations",
		"Open reservations that this node made or changed, by the origin that has them: region (all nodes can settle them), "+
			"or process (only this process can, because the region's origin did not answer or there is none). Of each kind a "+
			"node keeps at most 100,000, or fewer if they take 256 MiB, and refuses further ones.", "origin")
	descReserved = collect.NewCounter("weir_reservation_requests_total",
		"Requests for reservations that were granted or refused by the limits of their keys. A repeated request for a "+
			"reservation that exists is not counted again.", "result")
	descSettled = collect.NewCounter("weir_reservations_settled_total",
		"Reservations that were settled or cancelled at this node, whichever node made them. Over all nodes of a region, "+
			"reservations that were granted and not settled end at their time to live.")
	descHeldBounds = collect.NewCounter("weir_reservation_bounds_total",
		"Calls about reservations that were refused because a bound was reached, by bound: reservations (of this node), "+
			"holds (open reservations of one key), calls (no turn for a call to the origin in time). A caller is refused if it "+
			"has its share of a bound, even if others are not.", "bound")
	descExceeded = collect.NewCounter("weir_reservations_exceeded_total",
		"Settled reservations of which more was spent than was reserved.")
	descUnchanged = collect.NewCounter("weir_reservation_calls_failed_total",
		"Calls about reservations that changed nothing, by cause: late (the reservation was settled before, or had ended), "+
			"unknown (no reservation has the ID), origin (the origin did not answer).", "cause")
)
