// Package redisorigin is the Origin that the nodes and the relay of a region meet at: one Redis
// server (a plain one, one behind Sentinel, or another that speaks its protocol), one
// Redis Cluster, or several of these as fixed partitions, through
// github.com/redis/go-redis/v9. Its README says what each layout does to counters, and
// how the servers must be set up.
//
//	origin, err := redisorigin.Open([]string{"redis://127.0.0.1:6379"}, redisorigin.Options{})
//
// A cell is one hash:
//
//	weir:{origin}:exact:{acme:api:alice:60000}:29340112
//	prefix bucket mode workspace namespace identifier duration_ms  sequence
//
// with every byte escaped that could be taken for a delimiter, so that two cells
// never share a key. On a Cluster the bucket is what is hashed: the two cells that
// a decision needs are always on one node.
//
// What it promises: a count and its expiry are one script, applied as a whole
// or not at all, so no key is ever without an expiry. A decision's read is one round trip, or one
// to each node of a Cluster that is concerned. So is a chunk, but it takes a second round trip for a
// first send. A relay's calls take a round trip for each page. Each command is sent
// once: a chunk is sent again by its node, under the number that makes it count once. New refuses a client that sends
// commands again. A
// partition that is down fails its own keys, and no key is ever looked for in another
// one than its own: unlike go-redis's Ring, which answers for a dead server's keys
// with zeros.
//
// What it gives up: durability, beyond what the server itself has (what is lost is restored by nodes and relay, see
// store.Epoch); and, on a Cluster, redirections: while a slot moves,
// calls that name one of its cells fail, and work again once the client has learnt where the slot is.
package redisorigin
