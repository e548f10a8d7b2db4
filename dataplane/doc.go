// Package dataplane is a rate limiter that API nodes embed: it answers, from the
// node's own memory, whether a request may pass, and keeps that memory close to what
// the other nodes and regions have let pass.
//
// # What you need, in this order
//
//  1. [Config] says what a node is. The zero value counts for one process. With Origin, the region's Redis
//     (package redisorigin), and Region it counts with the region's other nodes and with all regions.
//  2. [New] makes a [Limiter] from it, which decides from then on. [Limiter.Start] begins to share counts, and
//     [Limiter.Stop] sends what is left.
//  3. [Request] names a key (workspace, namespace, identifier), its limit in a duration, and a cost.
//  4. [Limiter.Allow] decides one, and counts its cost if it passes.
//  5. [Decision] is the answer: Allowed, Remaining, RetryAfter, and in Source what it was based on. Err is only ever
//     about the request; a server that is down is no error.
//  6. [Limiter.AllowMany] decides several requests as one: all of them pass, or none counts.
//  7. [Limiter.Peek] answers what Allow would, and counts nothing.
//  8. [Limiter.Handle] is for a key that you decide about many times, such as a connection's.
//  9. [Limiter.ReserveAll] is for costs that are known only afterwards: [Limiter.Settle] says what they were, at any
//     node of the region. [Limiter.Reserve] is the same within one process, and waits for nothing.
//  10. [Limiter.Metrics] and [Limiter.Health] show how the limiter is.
//
// Everything else is for special cases: [Limiter.Explain] and [Limiter.TopKeys] for support, AllowAt and AllowManyAt
// for callers with a time of their own. The middleware of packages httplimit and connectlimit does steps 3 to 5. Limits
// that operators change (overrides, namespaces, resets) need no code: they come through the Origin, or from
// Config.Settings.
//
// # When not to use it
//
// Where every single unit must be exact across machines (money, stock), use a
// transaction. Where requests should be delayed instead of denied, use a queue or
// golang.org/x/time/rate.
//
// # What a decision costs, and what it waits for
//
// On a key that the node knows and has heard of lately, Allow is a look-up, a few loads and one compare-and-swap: no
// lock, no I/O, no allocation. A decision reads the origin first only when the key is cold, has had no answer for a
// while or was denied lately, or when the cost is a large part of what is left. It then waits for Config.ReadTimeout at
// most, and never for another region. While the origin is down, nodes decide by what they know, or let all or no
// requests pass, as store.NamespaceRow.Outage says.
//
// # How exact it is
//
//   - One process never accepts more than the limit in a fixed window, under any concurrency.
//   - The previous window's cost is taken to be spread evenly over it. So any one duration accepts at most twice the
//     limit, and a long time the limit a duration.
//   - Nodes of a region learn of each other within a tick (100 ms) and a round trip to Redis; a burst that lands on n
//     nodes at once can be accepted n times. In a namespace that waits for its share it is about 1.05 times.
//   - Regions learn of each other within two intervals of 200 ms, or four once a second region has begun to use the
//     key, plus the time that the stores take. Windows of less than 2 s hold in each region separately.
//   - A node that is killed loses the cost that it accepted since its last send arrived: as a rule one replay tick, at
//     most two (0.24 s with the defaults) while Redis answers.
//
// ACCURACY.md has all of it, with the test of each line. DESIGN.md follows a request and a count through the files, and
// has the invariants.
//
// # The window
//
// Time is cut into fixed cells of one duration. A request at t is judged against its
// own cell plus the part of the previous one that a window of that length, ending at
// t, still covers:
//
//	        previous cell            current cell
//	├─────────────────────────┼────────────●────────────┤
//	             ├─────────────────────────┤
//	             the window that ends at t ●
//
//	effective = (regional + global)(current) + floor((regional + global)(previous) * weight) + cost
//	allowed   ⇔ effective <= limit
//
// where regional is what this node knows its own region to have accepted, global is
// what it knows all other regions to have accepted, and weight is the covered share. What the previous
// cell carries over counts in whole units, so that a caller who asks all the time gets a small
// limit in full: 1 a minute lets one request pass each minute. Only
// accepted cost is counted; a denial changes nothing.
//
// # Two modes
//
// A namespace is in the exact mode or, where store.NamespaceRow.Mode says so, in the estimate
// mode: for very high volumes, where no request may ever wait. The modes share the table,
// the origin and the relay, and no cell: an identity, a key in Redis and a row in
// MySQL have the mode in them, so a namespace that changes its mode starts from nothing.
//
//	                     exact                       estimate
//	first contact        reads the origin            is allowed, and asks for a sync
//	I/O before deciding  cold, stale or strict keys  never
//	counts               accepted                    accepted, or offered ("count")
//	between syncs        cells and weight            the same, or a leaky drain ("drain")
//	own cost is sent     every tick                  every tick from 80 % of the limit, else once
//	                                                 it comes to a step (2 % of the limit)
//	hears of others      every tick                  by pressure, below
//	long outage          decides by its own count    leaky: local cost is left out after a window
//
// With a base interval of 15 s a key hears from the origin every 60 s from 10 % of its limit, 15 s
// from 50 %, 7.5 s from 80 %; below 10 % every 60 s if it has gathered cost of
// min(10, 1 % of the limit) since, and else not at all. The reply of an increment is the
// region's total, so cells that were written are not read. The leaky level is
//
//	max(0, known - elapsed * limit/duration) + all local cost since
//
// where known is the level by two cells at the last sync. The preset "posthog" is leaky,
// counts what is offered, and denies a level that reaches the limit: a cut-off rather than
// a throttle. Other regions' counts are part of the level in both modes, and the own ones
// are told in both.
//
// store.NamespaceRow.Estimate is a JSON document of these fields; what is left out is the
// preset's:
//
//	preset              "default", or "posthog": leaky, offered, >=
//	drain               "cells" (default) or "leaky"
//	count               "accepted" (default) or "offered"
//	test                ">" (default) denies what exceeds the limit, ">=" what reaches it
//	sync_base_ms        1,000 to 600,000, default 15,000. Lower: closer to the truth, more
//	                    commands
//	floor               0 or more, default 10: the cost in min(10, 1 % of the limit) above
//	pending_max         1 to 1,000,000, default 10,000: keys that may wait for a sync; those
//	                    beyond ask again with their next requests
//	batch_max           1 to 20,000, default 1,000: keys that a tick syncs, of each shard
//	max_read_outage_ms  0 (one window, the default) to a day: how long a sync may be wanting
//	                    before local cost is left out of a leaky level
//	overrides           "key=limit,key=limit": limits of identifiers without a stored override of their own
package dataplane
