// Package dataplane is a rate limiter that API nodes embed. It decides from the node's own memory whether a request
// may pass, and exchanges counts with the region's other nodes and with other regions in the background.
//
//  1. [New] makes a [Limiter] from a [Config]. The zero Config limits one process. With Region and Origin, the
//     region's Redis (package redisorigin), the limiter counts together with all other nodes.
//  2. [Limiter.Start] begins to exchange counts, and [Limiter.Stop] sends the remaining counts.
//  3. [Limiter.Allow] decides a [Request] and returns a [Decision]. On a warm key it takes no lock, does no I/O and
//     allocates nothing. Decision.Err is only about the request: a server that is down causes no error.
//  4. [Limiter.AllowMany] decides several requests as one: either all of them pass, or none counts. [Limiter.Peek]
//     counts nothing. Use [Limiter.Handle] for a key that you decide about many times, such as a connection's.
//  5. [Limiter.Reserve] is for costs that can only be measured afterwards, and [Limiter.Acquire] for concurrency
//     limits.
//  6. [Limiter.Metrics], [Limiter.Health], [Limiter.Explain] and [Limiter.TopKeys] are for operators. Package
//     metrics has a collector for Prometheus.
//
// Packages httplimit and connectlimit are middleware. ACCURACY.md states how exact the limiter is, with a test for
// each line, and README.md when to use another tool. DESIGN.md has the formula and the code's structure.
//
// # Requirements
//
// Weir needs Go 1.26. A program that imports only this package links two modules: Weir, and github.com/sony/gobreaker.
//
// Weir's servers are in the same module as this package. So go get raises the versions of modules that your program
// requires too, such as grpc, protobuf, OpenTelemetry or the MySQL driver, to at least the versions in Weir's go.mod.
// Your program links them only if it imports a package that needs them. For example, redisorigin needs go-redis.
package dataplane
