// Package hunt searches for faults. It draws a fleet and a history from a seed, plays them with real limiters and
// real relays in virtual time, and compares what is left with a ledger that no limiter writes.
//
// # A history
//
// Draw makes a Plan of a seed: regions, nodes, keys, and steps, each at its moment: requests, and faults between any
// two parties. Which kinds of requests and faults a plan has at all is drawn, too. Play plays it, in two phases:
// first all steps happen; then every fault is over, callers only look, and within Settle everything must converge.
//
// # What is checked
//
// Always, by the numbers of the invariants of packages dataplane and relay:
//
//	1   no life of a node accepts more of a key, in a cell, than the key's limit
//	R1  a relay tells its origin no more than other regions accepted, nor does any life believe more, after each answer;
//	    and while it lives what it believes of a cell never falls, unless its table is full or its clock was moved
//	R3  no origin holds more than its region's nodes accepted
//
//	wait   no decision waits for longer than Config.ReadTimeout
//	lease  no origin gives a shard's lease to a second relay before the first one's has ended and the first one knows
//	       it, unless the origin forgets it
//	set    no life decides by a limit that was never set
//	closed in a namespace that an outage closes, no life grants anything beyond a limit once it has tried twice to send
//	       what it has accepted, and its origin refuses to count
//	claim  no origin grants a claim beyond what it was asked for
//	clock  a life that its origin has answered goes by its origin's clock
//
// Of reservations by id, in a namespace of their own, after each call about one:
//
//	held   an origin counts of a cell what callers have reserved and spent, no less and no more: all of what is reserved
//	       until it is settled or ends, then what was spent of it, once, and nothing of what was refused. Its total is
//	       the most that this ever was
//	held   it grants no reservation beyond what the limit leaves, the cell before included
//	id     calls about an id at any node agree: with a request that is made again, on what was spent, which never
//	       falls, on what it was settled at, and on its end, before which nothing and after which everything is late
//
// What is on its way, or got no answer, may count or not; and the end of a hold may be off by what clocks of nodes are
// apart. Two things are left out: what an outage has had a node reserve by itself (store.NamespaceRow.Outage), of which
// only the most is known; and what was reserved before its origin has lost something, which counts at most as
// ACCURACY.md says of an emptied Redis. But 4 s after a failover the origin counts a reservation again, if the nodes
// that have made calls about it are there and were answered.
//
// Of leases, of holders in nodes' processes and of those with an id, by what each holder knows:
//
//	slots  no more leases of a key that have not ended than its limit, at any moment; and no lease with an id is lost
//	       before its end. For a time to live after its origin has failed over this is not asked: see "Safe across a
//	       failover that loses writes" in ACCURACY.md
//	free   what a node that has died held, and a lease that is not renewed, is free a second after its time to live; what
//	       the network has kept counts from when it arrives
//	turn   those who wait on a node are served in their order
//	rest   in the end all leases of a limit can be had at one node
//
// At the end, of every cell that can still influence a decision:
//
//	6, 7, R6  an origin holds no less than what the nodes that are left have accepted, and those that have stopped and
//	          say that they have sent it, if it forgets nothing
//	7         in the estimate mode less than a step of each node may be missing; asked of single regions alone
//	R2        an origin holds what all other origins hold, and in the exact mode every node knows both
//	R2        in a history without faults the origins do within the bound of package relay
//	R6        an origin holds what other regions were told of it, unless it or MySQL forgot
//	stored    MySQL has what is to be stored for good, and no more than was accepted
//	taken     relays have taken all changes off their origins
//
//	set       every node decides by what operators have set: limits, windows, resets, mode, node share and tuning; in a
//	          history without faults it does within the time that news and two looks take
//	memory    no node has more entries than it may have, and no relay more cells than were accepted in of late
//
// In some histories whose windows are short, once all of them have ended:
//
//	memory  no node holds or waits to send anything, and no relay holds a cell
//
// And every goroutine ends: Play waits until all nodes have stopped, and the bubble in which a history runs (package
// internal/bubble) fails if one is left that cannot go on.
//
// # One seed, one execution
//
// A plan is a function of its seed alone. Its play is one of many, as Go's scheduler chooses, unless the program is
// built for WebAssembly and runs with a seeded source of random numbers and clocks that only virtual time moves, as
// weir-hunt does: then Result.Hash is always the same.
package hunt
