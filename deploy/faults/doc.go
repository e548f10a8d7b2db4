// Package faults holds the tests of a fleet on real servers that break: several
// regions of several limiters in one process, a Redis for each region, one MariaDB or MySQL for
// all, and between each node and its servers a proxy that can cut, silence, delay and
// forget. Leases and reservations are tested with processes: nodes, clients and what embeds a limiter are killed there.
// There is nothing in it but tests; README.md has what they measured.
//
// Each test keeps a load going, breaks something, heals it, and holds the fleet to what
// no fault may change: callers see no error, decisions go on while the fault lasts, and at
// the end what Redis and MySQL hold, of the own region and of the others, is what was accepted.
package faults
