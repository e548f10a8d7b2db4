// Package redisorigin implements store.FullOrigin, the origin that a region's nodes and relay share, in Redis. It uses
// github.com/redis/go-redis/v9. The origin can be a Redis server (plain, behind Sentinel, or another server that speaks
// its protocol), a Redis Cluster, or several of these as fixed partitions. For example, begin with a plain server, and
// add partitions when it is full. The README describes the effect of each layout on counters, and how the servers must
// be set up.
//
//	origin, err := redisorigin.Open([]string{"redis://127.0.0.1:6379"}, redisorigin.Options{})
//
// A cell is one hash:
//
//	weir:{origin}:exact:{acme:api:alice:60000}:29340112
//	prefix bucket mode workspace namespace identifier duration_ms  sequence
//
// with every byte escaped that could be taken for a delimiter, so that two cells never share a key. On a Cluster the
// bucket is hashed, so the two cells of a decision are always on the same node.
//
// Guarantees: a count and its expiry are written by the same script, applied as a whole or not at all, so no key is
// ever without an expiry. A decision's read takes a round trip to each server that holds its cells: to one server, or
// to several nodes of a Cluster. So does a chunk, but a first send needs a second round trip. A relay's calls take a
// round trip for each page. Each command is sent once: only its node sends a chunk again, under the same number, so it
// counts once. New refuses a client that sends commands again. If a partition is down, only its own keys fail, and no
// key is ever read from another partition. (go-redis's Ring, for example, answers with zeros for a dead server's keys.)
//
// Not guaranteed: durability beyond the server's own. Nodes and relay restore lost counts, see store.Epoch. On a
// Cluster there are no redirections: while a slot moves, calls that name one of its cells fail, and work again once the
// client has found the slot.
package redisorigin
