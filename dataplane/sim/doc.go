// Package sim runs regions of real limiters in virtual time, and measures from outside
// what they admit, how fast news travel, and what they ask of Redis and MySQL.
//
// # What is real
//
// Each node is a dataplane.Limiter with its loops started: the code that serves. It
// runs in a testing/synctest bubble, where time passes when everybody waits, so that
// minutes take seconds. Origins and the count store are those of package memstore, each
// node behind a simulated network of its own: delay, jitter, loss, partition.
//
// MySQL, links and processes are made, started, stopped and killed by package internal/fleet, for package hunt as well.
//
// In the scenarios of relays, relay.Relays are real and run in the same way, each over an origin of package
// memstore and one store of news; their nodes are synthetic.
//
// # Who watches
//
// Every decision is written into a ledger, by the cell that it was made in. Figures and
// checks compare what relays tell and what origins hold with the ledger; of a limiter they
// ask the size of its table alone. See violation for what is checked.
//
// # What a seed repeats
//
// Callers, network, faults and the moments at which nodes start draw from streams of
// their own, all of one seed. What is left to chance:
//
//   - the limiters' own jitter, which is switched off unless Options.KeepJitter;
//   - the order in which goroutines run that wake at the same nanosecond: requests of
//     one burst, those that waited for the same read;
//   - which keys a full table forgets, since it hashes with a seed of its own;
//   - BytesPerKey, which weighs the real heap, and RelayCPUShare, which takes real time.
package sim
