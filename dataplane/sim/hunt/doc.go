// Package hunt searches for faults. It draws a fleet and a history from a seed, plays them with real limiters and real
// relays in virtual time, and compares the outcome with a ledger that no limiter writes.
//
// # A history
//
// Draw makes a Plan of a seed: regions, nodes, keys, and steps, each at its moment. Steps are requests, and faults
// between any two parties. The seed also decides which kinds of requests and faults a plan has at all. Package
// internal/plan draws plans. Play plays a plan in two phases: first all steps happen; then every fault is over, callers
// only look, and within Settle everything must converge.
//
// # Invariants
//
// Always, by the numbers of the invariants of packages dataplane and relay:
//
//	1   no life of a node accepts more of a key, in a cell, than the key's limit
//	R1  after each answer: a relay raises its origin by no more than other regions accepted, and no life counts more
//	    for them; a life's count of a cell never falls, unless its table is full or its clock was moved
//	R3  no origin holds more than its region's nodes accepted
//
//	wait   no decision waits for longer than Config.ReadTimeout
//	lease  no origin gives a shard's lease to a second relay before the first relay's lease has ended, by the first
//	       relay's own reckoning too, unless the origin forgets the lease
//	set    no life decides by a limit that was never set
//	closed in a namespace that an outage closes, no life grants anything beyond a limit once it has tried twice to send
//	       its accepted cost, and its origin refuses to count
//	claim  no origin grants a claim beyond the bound in the claim
//	clock  once its origin has answered, a life uses its origin's clock
//	ahead  no life denies a request for cost that is ahead: once an origin's clock, which was ahead, has been right for
//	       two windows, a request is granted if callers have not requested more than the limit in the last two windows
//
// In namespaces with a precise window, by a log outside of the limiters:
//
//	window  no real window, which is any interval of a limit's duration, has more than the limit. This is checked in
//	        histories of one node that keeps its accepted cost, and of several nodes without faults. With several
//	        nodes the check leaves out cost that a node need not have counted yet: cost of other nodes within
//	        Tuning.FreshFor and the time that it travels, and of each other region less than Tuning.Floor of the limit
//	admits  one node that is never started again denies nothing that a log would admit, but for two steps and two groups
//	        of a history
//
// Of reservations by id, in a namespace of their own, after each call about a reservation:
//
//	held   an origin counts of a cell exactly the cost that callers have reserved and spent: the whole of a reservation
//	       until it is settled or ends, then the cost spent of it, once, and nothing of a refused reservation. Its
//	       total is the most that this sum ever was
//	held   it grants no reservation beyond what the limit leaves, with the cell before included
//	id     calls about an id at any node agree. They agree with a repeated request, on the cost spent, which never
//	       falls, on the cost at settlement, and on the end: no call before it is late, and every call after it is
//
// Cost that is on its way, or whose call had no answer, may count or not. The end of a hold may be off by the
// difference between clocks of nodes. Two things are left out:
//
//   - Reservations that a node made by itself in an outage (store.NamespaceRow.Outage): only their most is certain.
//   - Reservations made before their origin lost data: they count at most as ACCURACY.md has it for an emptied Redis.
//     But 4 s after a failover the origin counts a reservation again, if the nodes that have made calls about it are
//     there and were answered.
//
// Of leases, of holders in nodes' processes and of holders with an id, by each holder's own reckoning:
//
//	slots  no more leases of a key that have not ended than its limit, at any moment; and no lease with an id is lost
//	       before its end. For a time to live after a failover of the origin this is not checked: see "Safe across a
//	       failover that loses writes" in ACCURACY.md
//	free   the leases of a node that has died, and a lease that is not renewed, are free a second after their time to
//	       live; a call that the network has delayed counts from its arrival
//	turn   a node serves waiting callers in their order
//	rest   in the end all leases of a limit can be had at one node
//
// At the end, of every cell that can still influence a decision:
//
//	6, 7, R6  unless it forgets data, an origin holds at least the cost accepted by the nodes that are left, and by
//	          stopped nodes that reported all of it as sent
//	7         in the estimate mode less than a step of each node may be missing; checked in single regions alone
//	R2        an origin holds all that other origins hold, and in the exact mode every node counts both
//	R2        in a history without faults the origins do within the bound of package relay
//	R6        an origin holds all that it has published to other regions, unless it or MySQL forgot
//	stored    MySQL has each count that must be stored durably, and no more than was accepted
//	taken     relays have acked all changes at their origins
//
//	set       every node decides by the operators' settings: limits, windows, resets, mode, node share and tuning. In a
//	          history without faults it does within the time of a change-feed round and two looks
//	memory    no node has more entries than it may have, and no relay more cells than were accepted in of late
//
// In some histories whose windows are short, once all of them have ended:
//
//	memory  no node holds or waits to send anything, and no relay holds a cell
//
// And every goroutine ends: Play waits until all nodes have stopped, and the bubble in which a history runs (package
// internal/bubble) fails if a goroutine is left that cannot go on.
//
// # One seed, one execution
//
// A plan is a function of its seed alone. Its play is not: Go's scheduler chooses between many. But if the program is
// built for WebAssembly, and runs with a seeded source of random numbers and clocks that only virtual time moves, as
// weir-hunt does, a seed has one play, and Result.Hash is always the same.
package hunt
