package store

// Granter is the part of an Origin that grants rights which end by themselves, so that all nodes of a region share
// them: reservations by ID, the slots of concurrency limits, and leases by ID. An origin must have either all of its
// methods or none.
//
// Without it, each process grants by itself:
//
//   - A reservation counts at the origin, as accepted cost does. But only the process that made it can settle it. If
//     that process ends first, the whole reserved cost stays counted until its window is over.
//   - A concurrency limit holds for each process separately: n processes grant up to n times the limit.
//   - Only the process that granted a lease by ID can renew or release it.
//
// All methods must be safe to call concurrently, obey ctx's deadline, never retry, and not keep their arguments.
type Granter interface {
	Reservations
	Grants
}
