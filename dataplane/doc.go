// Package dataplane is a rate limiter that API nodes embed: it answers, from the
// node's own memory, whether a request may pass, and keeps that memory close to what
// the other nodes and regions have let pass.
//
// # Layers
//
//	request ──► Limiter ──► entry ──► verdict ──► Decision          nanoseconds, one node
//	             ▲    │
//	       reply │    │ read, send, claim (100 ms)
//	             │    ▼
//	            Origin: the region's Redis, two totals a cell       milliseconds, one region
//	             ▲    │
//	     foreign │    │ changes (200 ms)
//	             │    ▼
//	            the region's relay ◄──► MySQL: news, counts         a second, all regions
//
// Each layer goes on without the ones below it in this picture. A decision waits for the origin only when the key is
// cold, has had no answer for a while or was denied lately, or when the cost is a large part of what is left; it waits
// Config.ReadTimeout at most, and never for another region. This package does not know package relay, nor relay this
// package: both know package store.
//
// # One request
//
//  1. limiter.go: Allow takes the time and checks the request (request.go). The settings in force may change its limit
//     and duration, and give it a reset (settings.go, reset.go).
//  2. internal/cell, identity.go and table.go: the key's hash finds the entry in the table, or makes one (guests.go
//     here). A full table evicts an idle entry (evict.go, group.go); if it has none, the key gets an entry outside of
//     the table while requests use it: a guest.
//  3. hydrate.go: if the entry wants a read of the origin, the request joins the one in flight or starts one. Unless
//     what is known already denies, it waits.
//  4. internal/cell/judge.go: the entry weighs its two cells and counts the cost, in one compare-and-swap.
//     batch.go takes this step for several entries at once; headroom.go and claim.go, in a namespace that waits for its
//     share; estimate_decide.go, in one that estimates.
//  5. decide.go: the verdict becomes the Decision: remaining, reset, retry time.
//  6. limiter.go: leave marks an entry that counted as dirty, and one that denied as strict.
//
// # One count
//
//  1. The cost is in the entry's word, and the entry in the dirty list (internal/cell: word.go, dirty.go).
//  2. run.go, replay.go: each tick (100 ms) the loop of each shard takes the list into the shards' queues. A key near
//     its limit does not wait for the tick: it is kicked (headroom.go).
//  3. internal/cell/replay.go: Load puts what the origin has not confirmed into a chunk and counts it as settled, so
//     that no other chunk has it too.
//  4. stream.go: the chunk is sent. Without an answer it is sent again unchanged, before any other; by its number the
//     origin applies it once (redisorigin/send.go).
//  5. internal/cell, replay.go and merge.go: the answer has the region's total. What exceeds the settled cost, other
//     nodes of the region have accepted, and the word grows by it. Answers to reads and claims are merged alike.
//  6. epoch.go, internal/cell/restore.go: an answer of another epoch says that the origin has lost its counts. Each
//     entry of the lost epoch then sends all that it accepted, once.
//  7. stream.go: a stream that has nothing to send, that of claims too, sends a chunk without costs each second, as
//     long as the origin may have lost what it had answered. So a silent node notices a failover.
//  8. claim_lost.go: a claim that got no answer has been decided without the origin. The same call is made again with
//     room for nothing, before any other claim of the shard: it tells what was added, and that has paid for the cost.
//  9. probe.go: each second a node reads a cell of each epoch in which it has cost, if no answer has told of the epoch
//     for a second. So a silent node notices an emptied origin; on a Cluster, each bucket that was emptied.
//
// # One foreign count
//
//  1. In the other region the origin adds the cost to the cell, and the cell to the shard's changes
//     (redisorigin/scripts.go).
//  2. relay/take.go: the relay of that region takes the changes. Those that are due (relay/tell.go) become a row of
//     news in MySQL (mysqlcounts/news.go).
//  3. relay/read.go: the relay of this region reads the row, or a peer hands it over (relay/hear.go), and adds up what
//     each other region has of the cell (relay/cells.go).
//  4. relay/foreign.go: it tells the sum to its origin, which stores it beside the region's own total and announces it.
//  5. listen.go: nodes that hold the key hear the announcement. Every answer about the cell has the sum as well.
//  6. internal/cell/merge.go: the entry keeps the larger of the sum and what it knows, apart from the word. Decisions
//     add it; a send never has it.
//
// Cells are numbered by the origin's clock, which each answer has (time.go, internal/clock).
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
//
// # Resets
//
// An operator may forget what was counted of an identifier, in all of its windows
// (store.ResetRow). Nodes have it with their next settings, and decide from then on by an empty
// count; what they accept until they have it is forgotten with the rest, except for what falls
// into the next cell. The cell of the reset goes on under another name, that of the reset's
// generation, in the origin and in other regions; the next cell has the key's own name again. So a
// fleet in which some nodes do not know resets agrees on one count again two windows later.
// See reset.go.
//
// # Invariants
//
// For a cell, with C its count, as tests hold them:
//
//  1. With nothing foreign, the cost accepted by one process in a cell plus the
//     weighted previous cell, cut to whole units, never exceeds the limit, under any
//     concurrency; singles and batches together. TestOneProcessIsExact, TestSinglesAndBatchesAreExactTogether
//  2. C only grows, except for refunds of own cost that was not sent yet, and is never
//     below what the origin has confirmed. TestCountsNeverFallBelowTheOrigins,
//     TestNodesConvergeToWhatWasAccepted
//  3. A batch is counted whole or not at all, at one instant: no part of one that is
//     still being decided, or was denied, is ever sent or seen by a request.
//     TestSendsNeverSeeReservations, TestSinglesAndBatchesAreLinearizable
//  4. What other regions and other nodes have accepted is never sent: in any history of calls and answers a node
//     sends its own cost. TestAnyHistoryAgreesWithTheDumbLimiter
//  5. A denial changes no count anywhere, except where offered cost counts.
//     TestDenialsChangeNothing, TestOfferedCostReachesTheOrigin
//  6. An origin that loses its counts, whatever is lost, late or repeated around it, ends with no less than what the
//     nodes that are left have accepted, and with no more than was accepted.
//     TestAnyHistoryOfAnOriginThatForgetsEndsWithWhatWasAccepted, TestAnOriginEmptiedUnderLoadLosesNothing
//  7. Own cost that the origin has not confirmed is neither lost nor counted twice, however often it is sent.
//     TestNodesConvergeToWhatWasAccepted, TestALostReplyIsCountedOnce, TestALostClaimCountsOnce,
//     TestStopSendsEverything
//  8. Settling a reservation never makes a count negative or smaller than what the
//     origin confirmed, and what was truly spent is never under-counted.
//     TestSettlementsKeepTheTruth
//  9. In a namespace that waits for its share, a limit of up to 2n costs, n nodes and
//     nothing foreign, is exact across the nodes of a region: a cost that the origin
//     added is counted and settled in one step. Cost on its way in a claim is counted
//     from before it leaves, and taken back if it is refused: singles, batches and handles
//     of the node see it. What a batch has claimed is counted while the batch is decided, and is
//     credit if that fails. A caller that leaves changes nothing for others.
//     TestSmallLimitsAreExactAcrossNodes, TestSmallLimitsAreExactHoweverAsked,
//     TestAClaimOnItsWayIsACommitment, TestABatchThatFailsLeavesItsClaimsAsCredit,
//     TestNodesThatWaitAccountForEverything, TestACallerWhoLeavesChangesNothingForOthers
//  10. A shard of the origin that fails or hangs delays no other, and an open breaker
//     loses no count. TestASlowShardDelaysNoOther, TestABreakerSparesADeadOrigin
//  11. What an open namespace lets pass in an outage is counted and sent; what a closed
//     one refuses leaves no trace. TestOutagePolicies
//  12. Of what was counted before a reset of its key, in the cell of the reset or before
//     it, a node that has read the reset never counts anything again, even if
//     another node still sends it. TestAResetLetsPassInAllRegions,
//     TestResetsAgreeWithAMap, TestResetsOnlyRise
//  13. In a full table no namespace keeps entries that another one, which has fewer, needs; and no
//     key passes its limit for want of room: what is accepted without an entry, or was counted in one
//     that was evicted, is at the origin or in a sketch that never under-counts.
//     TestAFloodOfPinnedKeysLeavesOthersTheirLimit, TestAKeyWithoutRoomIsJudged,
//     TestAKeyThatHadToGoIsNotWashedClean, TestTheOverflowNeverUnderCounts
//
// # Precision given up
//
//   - The previous cell's cost is taken to be spread evenly over it. Any span of y durations
//     (y <= 1) admits at most (1 + y) times the limit, so one duration up to twice the limit, and
//     a long time at most the limit a duration. TestWhatASpanOfTimeAdmits
//   - A limiter that runs (Start) judges by a time that is up to a millisecond old, or
//     some milliseconds where no processor is idle; a denial that would be over in less
//     than 20 ms is judged again by the clock itself, so a retry time stays exact.
//   - Nodes of a region learn of each other within a replay tick and a round trip;
//     what they accept meanwhile adds up. A burst that lands on n nodes at once can be
//     admitted up to n times; in a namespace that waits for its share (headroom.go) up
//     to about 1.05 times, batches included. There a claim leaves room for what the other
//     nodes may have accepted: a cost above (n+1)/2n of what is left is denied for two ticks,
//     and then granted if no other node's count has come in. TestALargeClaimLeavesRoomForOthers
//   - In the estimate mode nodes learn of each other at their next sync: every half base
//     interval near the limit. A first contact is allowed whatever its cost. What a node
//     has counted of a key below its floor is never sent.
//   - Regions learn of each other through relays, within two intervals of 200 ms, or four after a second region has
//     begun to use the key, plus the time that the stores take. A relay keeps back less than 10 % of the limit on a key
//     that no other region is known to use, less than a step of 1 % below 60 % of the limit, and what was accepted
//     within one interval. A caller who visits ten regions in turn gets at most 2 % more than the limit.
//     TestRegionsInTurn, TestR2WithinIntervals, TestR5WhatIsTold
//   - A limit whose window is shorter than min_global_duration_ms (2 s) holds in each region separately.
//     TestShortWindowsStayInTheirRegion
//   - A node that is cut off from its origin for more than a day has what was on its way counted twice, in windows that
//     last longer. TestAChunkIsRememberedWhileItsWindowsLast
//   - A claim whose answer is lost, on a key that its node has never heard of, counts twice if the origin is emptied
//     before the node asks again, and another node restores what it knows of it.
//   - A claim that the origin has added and whose caller was denied, since the answer was lost or late, is this node's
//     credit: others take the key for that much more until the node has accepted as much, or the cell ends.
//     TestWhatBecameOfALostClaimIsFoundOut
//   - What was accepted without an entry and got no answer is sent again and is at the origin once; its node takes the
//     key for that much more until the window ends, as it is in the sketch too. What a Reservation without an entry
//     is charged on top is in the sketch alone. TestALostReplyAboutGuestsIsCountedOnceAtTheOrigin
//   - An origin that is emptied, and then replaced by a replica from before that, counts twice what nodes had restored
//     meanwhile: an epoch that has ended goes on.
//   - When an origin loses its counts, what only dead nodes had accepted comes back if a node that is left knows it
//     from an answer, or if a relay has told it. TestAnEmptiedOriginHasWhatADeadNodeHadToldOf, TestR6WithoutMySQL
//   - A node that is killed loses at most one replay tick of its own accepted cost.
//   - A full table forgets idle keys that are below half their limits, of namespaces that hold
//     no fewer entries than the one that needs room. The origin decides keys without an entry; without its
//     answer a sketch does, which may over-count a key by about the cost in the sketch divided by its
//     32,768 columns (fewer with a small EntriesMax). An exact key that the origin counts and the
//     sketch does not begins anew in an outage of the origin. See internal/cell;
//     weir_table_full_total and weir_untracked_decisions_total count these.
//   - A node that hears of a reset in a later cell than the reset's begins the key anew: without an answer of its
//     origin it does not know what it has accepted in that cell, and may admit up to a limit once more.
//     TestALateResetBeginsItsKeyAnew
//   - Keys are told apart by 128 bits of keyed hash; see internal/cell/identity.go for the odds.
//
// # When not to use it
//
// Where every single unit must be exact across machines (money, stock), use a
// transaction. Where requests should be delayed instead of denied, use a queue or
// golang.org/x/time/rate.
package dataplane
