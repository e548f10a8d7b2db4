// Package cleanup deletes rows that have expired, in partitions or in bounded batches, and heartbeats of nodes that are
// long gone.
//
// [Cleanup.Run] is the order of the steps, [Sweep] the arithmetic of batch sizes and
// bounds. What must hold:
//
//  1. Only rows with expires_at < cutoff go, where cutoff = the database's clock when
//     the run started - grace. A replay uses the cutoff it started with.
//  2. No statement deletes more than BatchRowsMax rows and no run makes more than
//     BatchesMax of them, or takes much longer than RunTimeMax.
//  3. A batch that takes longer than BatchSlow halves the next; one that does so at
//     the smallest size ends the run. The fleet's own writes come first.
//  4. A run that stopped at BatchesMax or RunTimeMax asks for the next one at once;
//     one that stopped because the database is slow does not.
package cleanup
