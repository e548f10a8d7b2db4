// Package node serves a limiter.
//
// One port serves weir.v1.RateLimitService to every client: gRPC and Connect over HTTP/2 without TLS (h2c), gRPC-Web,
// and plain JSON over HTTP/1.1. Another port serves only gRPC, at a third of the cost. Both serve grpc.health.v1 and
// reflection, as gRPC clients expect. A third port is for the people who operate the node: liveness, readiness,
// metrics, profiles.
//
// A call passes these files, in this order:
//
//	gate.go      counts the call, sheds it if too many are in flight, bounds its body, recovers its panic;
//	             grpc.go does so on the port for gRPC, stream.go for the requests of a stream
//	fastpath.go  responds directly to plain JSON, with the same result as the other files
//	codec.go     reads JSON without unknown fields, and writes JSON with every field
//	validate.go  checks every field's bounds, and names the field as on the wire
//	service.go   calls the limiter, and converts the decision
//
// Package access reads the tokens of callers. holder.go requires a token, and needs.go lists the permission that each
// call requires. routes.go passes calls of the HTTP routes (package routes) through the same gate, and api.go passes
// calls of a further API.
//
// A denial is a response and not an error: status 200, `"allowed":false`. Errors are for faulty requests
// (invalid_argument), for a node that is too busy (unavailable) and for callers whose deadline has passed
// (deadline_exceeded). An outage of Redis or MySQL is never an error, because the limiter continues with its own
// counts.
//
// Any client that reaches the ports can spend any budget and read the process's profiles, unless Config requires tokens
// or certificates. Without them, a node should listen on loopback or in a network that only your own services reach.
package node
