// Package dataplane is a rate limiter that API nodes embed: it answers, from the
// node's own memory, whether a request may pass, and keeps that memory close to what
// the other nodes and regions have let pass.
//
// # Layers
//
//	request ──► Limiter ──► entry ──► verdict ──► Decision          nanoseconds, one node
//	               ▲          │
//	        hydrate│          │replay (100 ms)
//	               │          ▼
//	             Origin: the region's Redis                         milliseconds, one region
//	                          │
//	               ▲          │flush (1–5 s)
//	         import│          ▼
//	           CountStore: MySQL, one component a region and cell   seconds, all regions
//
// Each layer stays useful when the ones below it in this picture are gone. A decision
// waits for the origin only when the key is cold, has not been heard of for a while,
// or was denied lately, and never longer than Config.ReadTimeout; it never waits for
// another region.
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
// what all other regions have reported, and weight is the covered share. What the previous
// cell carries over counts in whole units, so that a caller who asks all the time gets a small
// limit in full: 1 a minute lets one request pass each minute. Only
// accepted cost is counted; a denial changes nothing.
//
// # Two modes
//
// A namespace is in the exact mode or, where store.NamespaceRow.Mode says so, in the estimate
// mode: for very high volumes, where no request may ever wait. The modes share the table,
// the origin and the count store, and no cell: an identity, a key in Redis and a row in
// MySQL have the mode in them, so a namespace that changes its mode starts from nothing.
//
//	                     exact                       estimate
//	first contact        reads the origin            is allowed, and asks for a sync
//	I/O before deciding  cold, stale or strict keys  never
//	counts               accepted                    accepted, or offered ("count")
//	between syncs        cells and weight            the same, or a leaky drain ("drain")
//	own cost is sent     every tick                  every tick from 80 % of the limit, else once
//	                                                 it passes a step (1–2 % of the limit)
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
// are published in both.
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
// count; what they accept until they have it is forgotten with the rest, but for what falls
// into the next cell. The cell of the reset goes on under another name, of the reset's
// generation, in the origin and the count store; the next cell has its own again. So a
// fleet of which a part does not know resets is of one count again two windows later.
// reset.go has the rest.
//
// # Invariants
//
// For a cell, with C its count, as tests hold them:
//
//  1. With nothing foreign, the cost accepted by one process in a cell plus the
//     weighted previous cell, cut to whole units, never exceeds the limit, under any
//     concurrency; singles and batches together. TestOneProcessIsExact, TestSinglesAndBatchesAreExactTogether
//  2. C only grows, but for refunds of own cost that was not sent yet, and is never
//     below what the origin has confirmed. TestCountsNeverFallBelowTheOrigins,
//     TestNodesConvergeToWhatWasAccepted
//  3. A batch is counted whole or not at all, at one instant: no part of one that is
//     still being decided, or was denied, is ever replayed, published or seen by a
//     request. TestPublishersNeverSeeReservations, TestSinglesAndBatchesAreLinearizable,
//     TestSoakPublishersReadExactlyWhatWasAccepted
//  4. What other regions reported is never published again. TestImportTakesOnlyWhatMatters,
//     TestARemoteRowSeenMeansMineIsFlushedToo
//  5. A denial changes no count anywhere, but where all that is offered counts.
//     TestDenialsChangeNothing, TestOfferedCostReachesTheOrigin
//  6. What is marked as published was accepted. TestFlushWritesWhatChangedAndRepeatsWhatFailed
//  7. Own cost that the origin has not confirmed is neither lost nor, after a definite
//     answer, sent twice. TestNodesConvergeToWhatWasAccepted, TestStopSendsEverything
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
//  10. A shard of the origin that fails or hangs delays no other, and nothing is lost
//     to an open breaker. TestASlowShardDelaysNoOther, TestABreakerSparesADeadOrigin
//  11. What an open namespace lets pass in an outage is counted and sent; what a closed
//     one refuses leaves no trace. TestOutagePolicies
//  12. Of what was counted before a reset of its key, in the cell of the reset or before
//     it, a node that has read the reset never counts anything again, even if
//     another node still sends, publishes or replays it. TestAResetLetsPassInAllRegions,
//     TestResetsAgreeWithAMap, TestResetsOnlyRise
//  13. In a full table no namespace keeps entries that another one, which has fewer, needs; and no
//     key passes its limit for want of room: what is accepted without an entry is at the origin
//     or in a sketch that never under-counts, and so is what had to go.
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
//     and then granted if nothing was heard of others. TestALargeClaimLeavesRoomForOthers
//   - In the estimate mode nodes learn of each other at their next sync: every half base
//     interval near the limit. A first contact is allowed whatever its cost. What a node
//     has counted of a key below its floor is never sent.
//   - As a rule, regions learn of each other's cost on a key that several of them use within
//     2 to 4 s at the default intervals, once all that is known of it comes to 60 % of its
//     limit, and of its first tenth within a digest interval. deploy/faults measures which
//     keys are told later. A region's first contact with a key does not look at what others
//     told before it: a caller who visits R regions in turn gets up to R times the limit.
//     TestRegionsInTurn
//   - Without digests (tuning digest_interval_ms 0, or while those of a region are missing)
//     regions learn within a flush and an import interval, and only of cells past the
//     floor: a caller who spreads evenly over R regions can take up to R * floor * limit
//     before anybody notices.
//   - With digests a region that loses its origin, and all nodes that remember, gets back
//     what its rows hold: each count as it was at half the limit, 80 % or the limit.
//   - In the window in which a key was reset, regions tell each other of it by rows alone,
//     as without digests.
//   - Cost that is sent and gets no answer within a second is sent again, and counts once more each time that the origin
//     has added it: the safe side. Nodes agree on it, and weir_replay_ambiguous_cost_total bounds it.
//     TestNodesAgreeAfterATroubledStart
//   - A node that is killed loses at most one replay tick of its own accepted cost.
//   - A full table forgets idle keys that are below half their limits, of namespaces that hold
//     no fewer entries than the one that needs room. What it has no room for at all is decided by
//     the origin, and this node does not report it to other regions; without an origin's answer
//     by a sketch that may take a key for more than it is, by about the cost in it divided by its
//     32,768 columns (fewer with a small EntriesMax). An exact key that the origin counts and the
//     sketch does not begins anew in an outage of the origin. See internal/cell;
//     weir_table_full_total and weir_untracked_decisions_total count these.
//   - Keys are told apart by 128 bits of keyed hash; see internal/cell/identity.go for the odds.
//
// # When not to use it
//
// Where every single unit must be exact across machines (money, stock), use a
// transaction. Where requests should be delayed instead of denied, use a queue or
// golang.org/x/time/rate.
package dataplane
