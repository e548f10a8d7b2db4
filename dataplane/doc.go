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
//	effective = (regional + global)(current) + (regional + global)(previous) * weight + cost
//	allowed   ⇔ effective <= limit
//
// where regional is what this node knows its own region to have accepted, global is
// what all other regions have reported, and weight is the covered share. Only
// accepted cost is counted; a denial changes nothing.
//
// # Invariants
//
// For a cell, with C its count, as tests hold them:
//
//  1. With nothing foreign, the cost accepted by one process in a cell plus the
//     weighted previous cell never exceeds the limit, under any concurrency; singles
//     and batches together. TestOneProcessIsExact, TestSinglesAndBatchesAreExactTogether
//  2. C only grows, but for refunds of own cost that nobody else knows of, and is never
//     below what the origin has confirmed. TestCountsNeverFallBelowTheOrigins,
//     TestNodesConvergeToWhatWasAccepted
//  3. A batch is counted whole or not at all, at one instant: no part of one that is
//     still being decided, or was denied, is ever replayed, published or seen by a
//     request. TestPublishersNeverSeeReservations, TestSinglesAndBatchesAreLinearizable,
//     TestSoakPublishersReadExactlyWhatWasAccepted
//  4. What other regions reported is never published again. TestImportTakesOnlyWhatMatters,
//     TestARemoteRowSeenMeansMineIsFlushedToo
//  5. A denial changes no count anywhere. TestDenialsChangeNothing
//  6. What is marked as published was accepted. TestFlushWritesWhatChangedAndRepeatsWhatFailed
//  7. Own cost that the origin has not confirmed is neither lost nor, after a definite
//     answer, sent twice. TestNodesConvergeToWhatWasAccepted, TestStopSendsEverything
//  8. Settling a reservation never makes a count negative or smaller than what the
//     origin confirmed, and what was truly spent is never under-counted.
//     TestSettlementsKeepTheTruth
//
// # Precision given up
//
//   - The previous cell's cost is taken to be spread evenly over it.
//   - A limiter that runs (Start) judges by a time that is up to a millisecond old, or
//     some milliseconds where no processor is idle; a denial that would be over in less
//     than 20 ms is judged again by the clock itself, so a retry time stays exact.
//   - Nodes of a region learn of each other within a replay tick and a round trip;
//     what they accept meanwhile adds up. A burst that lands on n nodes at once can be
//     admitted up to n times.
//   - Regions learn of each other within a flush and an import interval, and only of
//     cells past the floor: a caller who spreads evenly over R regions can take up to
//     R * floor * limit before anybody notices.
//   - A lost reply of the origin counts a tick's cost twice, on the safe side.
//   - A node that is killed loses at most one replay tick of its own accepted cost.
//   - A full table forgets idle keys that are below half their limits. One that is full
//     of keys that must stay, pressed or unsent, decides about new ones without
//     remembering them: weir_table_full_total counts those.
//   - Keys are told apart by 128 bits of keyed hash; see identity.go for the odds.
//
// # When not to use it
//
// Where every single unit must be exact across machines (money, stock), use a
// transaction. Where requests should be delayed instead of denied, use a queue or
// golang.org/x/time/rate.
package dataplane
