// Package store defines the layers above a node: the Origin, where the nodes of one region
// meet; the Feed that the relays of regions exchange, and the CountStore in which they keep counts
// for good; and the Settings that operators make. Implementers of any of them need this package; an embedder hands an
// implementation to dataplane.Config and needs none of it.
//
// Package memstore keeps all of them in memory; redisorigin and mysqlcounts are the real
// ones. Packages storetest and storetest/counttest hold every implementation to the contracts written here.
//
// # Writing an Origin
//
// An Origin must have the methods of Origin: it counts, and that is all a limiter needs. The other parts are optional.
// Like package database/sql, whoever uses an origin finds them by type assertion, once, when it is made:
//
//	part     who uses it           what it gives                    without it
//	Granter  the limiter           reservations, concurrency        each process grants by itself
//	                               limits and leases by ID of the
//	                               whole region
//	Mailbox  the limiter, a relay  settings from, and heartbeats    settings come from Config.Settings;
//	                               to, the fleet's store            without it, there are none
//	Relayed  a relay               limits of all regions together   each region counts by itself
//
// An origin has all methods of a part, or none. A method with another signature, or a missing method, hides the whole
// part; storetest.TestOrigin finds both, and tests each part that an origin has. A wrapper hides each part that it does
// not forward: see FullOrigin.
//
// The guide dataplane/guides/store.md describes an origin over a map and a mutex, and lists what real servers need in
// addition. The words key, cell and sequence are those of package shared/window.
package store
