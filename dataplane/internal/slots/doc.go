// Package slots gives a node's share of a concurrency limit to leases.
//
// A key has as many slots as its limit. The origin of the region grants some of them to this node, each until a time
// (see store.Grants), and the node gives them to leases by itself. An acquisition that finds a free slot is a look-up
// under a mutex. Otherwise it waits for the shard's next call to the origin. A shard has one call under way at a time,
// with all keys that are due:
//
//   - keys with waiting requests request more slots, and spare slots while the limit leaves many;
//   - keys of which a third of the time to live has passed renew the slots that they hold;
//   - keys with more spare slots than their share, or with spare slots that were not used since, hand them back.
//
// For example, with a limit of 100 and 4 nodes, a node whose callers hold 20 slots may keep up to 10 spare slots, if
// nothing else is taken. The next 10 acquisitions on it then need no call.
//
// A slot that is released goes to the first request that waits on this node; callers take turns. If other nodes or
// leases by ID are refused, the node hands released slots back every yieldEvery, and requests slots again after
// yieldFor.
//
// A lease may have an ID, with which holders outside of the process renew and release it, if there is no origin, or
// while the origin does not answer. Requests of a key with the same ID get the same lease, also while they wait for it.
// Otherwise the origin keeps leases by ID: see package leases.
//
// # Why the limit holds
//
// A node's slots end a time to live after the moment just before their call left. At the origin they end a time to live
// and Margin after the call arrived. So a lease has ended here before its slot is granted elsewhere. Done closes within
// a tick of the end, and Err returns an error at once.
//
// From the moment when a call leaves, the node holds no more slots than the call states, and for no longer, whether or
// not the call arrives, and whenever. The node ignores a reply that comes later than callTimeout. A call that could
// arrive after its slots have ended must not state them, because an origin that was emptied meanwhile would grant them.
//
// # Mutexes
//
// Keys are spread over stripes. A stripe's mutex guards all of its entries and their leases; no I/O happens under it. A
// shard's schedules have a mutex each, which may be taken under a stripe's mutex, but never the other way round. Only
// the shard's loops take its calling mutex, and hold it during a call.
//
// Run starts a loop for each shard's calls and a loop for its ends. Before Run, each waiting request runs these loops
// for as long as it waits.
package slots
