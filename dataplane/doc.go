// Package dataplane is a rate limiter that API nodes embed. It decides from the node's own memory whether a request may
// pass, and exchanges counts with the region's other nodes and with other regions in the background.
//
//  1. [New] makes a [Limiter] from a [Config]. The zero Config limits one process. With Region and Origin, the region's
//     Redis (package redisorigin), the limiter counts together with all other nodes.
//  2. [Limiter.Start] begins to exchange counts, and [Limiter.Stop] sends the remaining ones.
//  3. [Limiter.Allow] decides a [Request] and returns a [Decision]. On a warm key that takes no lock, no I/O and no
//     allocation. Decision.Err is only ever about the request: a server that is down is no error.
//  4. [Limiter.AllowMany] decides several requests as one: all of them pass, or none counts. [Limiter.Peek] counts
//     nothing. [Limiter.Handle] is for a key that you decide about many times, such as a connection's.
//  5. [Limiter.Reserve] is for costs that are known only afterwards, and [Limiter.Acquire] for concurrency limits.
//  6. [Limiter.Metrics], [Limiter.Health], [Limiter.Explain] and [Limiter.TopKeys] are for operators. Package metrics
//     has a collector for Prometheus.
//
// Packages httplimit and connectlimit are middleware. ACCURACY.md states how exact the limiter is, with a test for each
// line, and README.md when to use another tool. DESIGN.md has the formula and the code's structure.
package dataplane
