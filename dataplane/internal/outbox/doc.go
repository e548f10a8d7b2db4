// Package outbox sends what a node has accepted to the shards of its origin, reads from them, and merges what they
// answer into the node's table of counts. Nothing else calls store.Origin's Read, Send, Claim and Listen.
//
// Every shard has streams of its own, so that one that is slow or dead delays no other shard's keys:
//
//   - replay sends accepted cost at each tick, and at once what is flushed;
//   - syncs sends and reads the keys of the estimate mode, as they ask for it;
//   - untracked sends what batches have counted on keys that the table has no room for;
//   - claims makes decisions where the count is.
//
// A stream numbers its chunks. One that got no answer is sent again as it was before anything new, and the origin
// applies it once, however often it comes. An answer of another epoch means that the origin has lost its counts:
// what this node has had in the lost epoch is sent again.
package outbox
