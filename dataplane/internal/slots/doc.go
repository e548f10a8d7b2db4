// Package slots gives a node's share of a concurrency limit to leases.
//
// A key has slots, as many as its limit. The origin of the region says how many of them this node holds, and until
// when (see store.Grants); the node gives them to leases by itself. An acquisition that finds a free slot is a look-up
// under a mutex; one that does not joins the shard's next call to the origin, one of which is out at a time and
// carries all keys that have something to say:
//
//   - those that somebody waits for want more slots, and some to spare while the limit leaves many;
//   - those of which a third of the time to live has passed say again what they hold;
//   - those with more spare slots than their share, or with any that were not used since, hand them back.
//
// A slot that is released goes to the first who waits on this node, where callers take turns. Every yieldEvery, where
// other nodes or leases by id are refused, it goes back instead, and this node asks again after yieldFor.
//
// # Why the limit holds
//
// A holding ends, for the node, its time to live after the moment before the call that said it left; for the origin,
// Margin later than that after the call arrived. So a lease has ended here before its slot is granted elsewhere: Done
// closes within a tick of the end, and Err tells it at once.
//
// When a call leaves, the node already holds no more than what the call says, and no longer: whether or not it arrives,
// and whenever. A reply that comes later than callTimeout is none. A call that could arrive after its holdings have
// ended does not say them: an origin that was emptied meanwhile would believe it.
//
// # Who guards what
//
// Keys are spread over stripes. A stripe's mutex guards all of its entries and their leases; no I/O happens under it. A
// shard's schedules have a mutex each, which is taken under a stripe's and never the other way round. A shard's calling
// is held during a call, by its loops alone.
//
// Run starts a loop for each shard's calls and one for its ends. Before that, whoever waits has them run for as long as
// it waits.
package slots
