// Package redisorigin is the Origin that nodes of a region meet at: one Redis
// server (a plain one, one behind Sentinel, or whatever speaks its protocol), one
// Redis Cluster, or several of these as fixed partitions, through
// github.com/redis/go-redis/v9. Its README says what each layout does to counters, and
// how the servers must be set up.
//
//	origin, err := redisorigin.Open("redis://127.0.0.1:6379", redisorigin.Options{})
//
// A cell is one key, an integer in decimal:
//
//	weir:exact:{acme:api:alice:60000}:29340112
//	prefix mode workspace namespace identifier duration_ms  sequence
//
// with every byte escaped that could be taken for a delimiter, so that two cells
// never share a key. What is in braces is what a Cluster hashes: the two cells that
// a decision needs are always on one node.
//
// What it promises: an increment and its expiry are one script, applied as a whole
// or not at all, so no key is ever without an expiry. Every call is one round trip,
// or one to each partition and each node of a Cluster that is concerned, and is sent
// once: a reply that was lost is told as store.ErrMaybeApplied and never tried
// again, since trying again is how counts double. New refuses a client that would. A
// partition that is down fails its own keys, and no key is ever looked for in another
// one than its own: unlike go-redis's Ring, which answers for a dead server's keys
// with zeros.
//
// What it gives up: durability, beyond what the server itself has (a total that is
// lost is healed by Raise); and, on a Cluster, redirections: while a slot moves, its
// cells fail, and work again once the client has learnt where the slot is.
//
// Hub is where nodes and a region's relay meet, on the same servers and in keys of its own.
package redisorigin
