// Package sim runs regions of real limiters in virtual time. It measures from outside how much they admit, how fast
// counts reach other regions, and the load on Redis and MySQL. Use it to compare tunings before a rollout, for example
// with the weir-sim command, or to reproduce a fault with a seed.
//
// # What is real
//
// Each node is a dataplane.Limiter with its loops started: the code that serves requests. It runs in a testing/synctest
// bubble, where time passes when all goroutines wait, so that minutes take seconds. Origins and the count store are
// those of package memstore. Each node has a simulated network of its own, with delay, jitter, loss and partitions.
//
// Package internal/fleet makes, starts, stops and kills MySQL, links and processes. Package hunt uses it too.
//
// In the scenarios of relays, real relay.Relays run in the same way, each over an origin of package memstore and one
// change feed, but the nodes are synthetic.
//
// # The ledger
//
// Every decision is recorded in a ledger, by the cell that it was made in. Figures and checks compare the counts that
// relays publish, and the totals of origins, with the ledger. The only figure that comes from the limiters is the size
// of their tables. The constants of type violation list all checks.
//
// # Seeds
//
// Callers, network, faults and the moments at which nodes start draw from streams of their own, all derived from the
// same seed. A seed can still give different results in:
//
//   - the limiters' own jitter, which is off unless Options.KeepJitter is set;
//   - the order of goroutines that wake at the same nanosecond, for example requests of one burst that wait for the
//     same read;
//   - the keys that a full table forgets, because it hashes with a random seed;
//   - BytesPerKey, which measures the real heap, and RelayCPUShare, which measures real time.
package sim
