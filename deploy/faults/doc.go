// Package faults has the tests of a fleet on real servers that fail. They run several regions of several limiters in
// one process, with a Redis for each region and a MariaDB or MySQL for all. A proxy between each node and its servers
// can cut, silence and delay connections and drop replies. Leases and reservations are tested with processes: nodes,
// clients and programs that embed a limiter are killed. The package has only tests; README.md has the measurements.
//
// Each test keeps a load running, causes a fault, ends it, and checks the invariants of the fleet: callers see no
// error, decisions continue during the fault, and at the end Redis and MySQL have exactly the accepted cost, of the own
// region and of the others.
package faults
