// Package store defines the interfaces of the layers above a node:
//
//   - Origin: the store in which the nodes of one region meet.
//   - Feed: the change feed that the relays of regions exchange.
//   - CountStore: the permanent counts of the relays.
//   - Settings: the settings that operators make.
//
// You need this package only to implement one of them. If you embed a limiter, pass an implementation to
// dataplane.Config.
//
// Package memstore keeps all of them in memory. Packages redisorigin and mysqlcounts keep them in real servers.
// Packages storetest and storetest/counttest test every implementation against the contracts in this package.
//
// # Writing an Origin
//
// An Origin must have the methods of Origin, which count. A limiter needs no others, and the other parts are
// optional. A limiter or a relay finds the parts of an origin by type assertion, once, when the limiter or relay is
// made, as package database/sql does:
//
//	part     who uses it           what it gives                    without it
//	Granter  the limiter           reservations, concurrency        each process grants by itself
//	                               limits and leases by ID of the
//	                               whole region
//	Mailbox  the limiter, a relay  settings from, and heartbeats    settings come from Config.Settings;
//	                               to, the fleet's store            without it, there are none
//	Relayed  a relay               limits of all regions together   each region counts by itself
//
// An origin should have either all methods of a part, or none. A method with another signature, or a missing method,
// hides the whole part; storetest.TestOrigin finds both, and tests each part that an origin has. A wrapper hides each
// part that it does not forward: see FullOrigin.
//
// The guide dataplane/guides/store.md describes an origin over a map and a mutex, and lists the additional needs of
// real servers. The words key, cell and sequence are defined in package shared/window.
package store
