// Package outbox sends a node's accepted cost to the shards of its origin, reads counts from them, and merges their
// answers into the node's table. Nothing else in the limiter calls Read, Send and Listen of a store.Origin.
//
// Every shard has streams of its own, so that a shard that is slow or dead delays no other shard's keys:
//
//	replay     replay.go     accepted cost, at each tick, and flushed keys at once
//	syncs      sync.go       keys of the estimate mode, which it also reads
//	untracked  untracked.go  cost that batches have counted on keys for which the table has no room
//	claims     claim.go      claims: costs with a bound, which the origin adds only if there is room
//
// A stream numbers its chunks. A chunk that got no answer is sent again unchanged before anything new, and the origin
// applies it once, however often it comes (stream.go; claims use claim_lost.go). After a failover the origin may lack
// chunks that it had answered: the stream keeps the chunks of the last seconds, and sends them again (package resend).
// An answer of another epoch means that the origin has lost its counts: the node then sends all of its cost in the lost
// epoch again (epoch.go, probe.go).
//
// Claims or untracked costs that arrive while a call is on its way go together in the next call (queue.GroupCommit).
//
// read.go reads keys before decisions, and time.go takes the origin's clock from each answer. The other files are:
//
//	outbox.go  all shards: collecting dirty entries, foreign totals, figures for operators
//	shard.go   one shard: its streams, breakers and epochs
//	drain.go   Stop: sending the remaining cost
//	stats.go   metrics
package outbox
