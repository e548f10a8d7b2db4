// Package cleanup deletes rows that have expired, by partition or in bounded batches, and heartbeats of nodes that have
// been silent for long. It also deletes expired resets, and the usage of namespaces that is older than [UsageKept].
//
// [Cleanup.Run] executes the steps of a run on a journal; restate/handlers calls it at an interval. [Sweep] decides the
// sizes and bounds of batches. Package store has the statements, and schema/procedures the procedures that drop and add
// partitions. Invariants:
//
//  1. Only rows with expires_at < cutoff are deleted, where cutoff = the database's clock when the run started - grace.
//     A replay uses the cutoff of the first attempt.
//  2. No statement deletes more than BatchRowsMax rows and no run makes more than BatchesMax of them, or takes much
//     longer than RunTimeMax.
//  3. A batch that takes longer than BatchSlow halves the next batch; a slow batch of the smallest size ends the run.
//     The fleet's own writes come first.
//  4. If a run stopped at BatchesMax or RunTimeMax, the next run begins at once. If it stopped because the database is
//     slow, the next run begins at its time.
package cleanup
