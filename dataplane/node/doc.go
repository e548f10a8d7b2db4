// Package node is a limiter as a server.
//
// One port speaks weir.v1.RateLimitService to every client: gRPC and Connect
// over HTTP/2 without TLS (h2c), gRPC-Web, and plain JSON over HTTP/1.1. Another
// speaks gRPC alone, at a third of the cost. Both answer grpc.health.v1 and
// reflection, as gRPC clients expect. One more is for the people who run the node:
// liveness, readiness, metrics, profiles.
//
// A call walks through these files, in this order:
//
//	gate.go      counts it, sheds it when too many are in flight, bounds its body, survives its panic;
//	             grpc.go does so on the port for gRPC, stream.go for the requests of a stream
//	fastpath.go  answers the plain case of JSON at once, as the others would
//	codec.go     reads and writes JSON with every field shown and none unknown
//	validate.go  holds every field to its bound, and names it by its name on the wire
//	service.go   calls the limiter, and converts the decision
//
// Package access reads the tokens that callers show; holder.go requires a token, and needs.go lists the permission that
// each call requires. routes.go lets calls of the HTTP routes (package routes) through the same gate, api.go the calls
// of a further API.
//
// A denial is an answer and not an error: status 200, `"allowed":false`. Errors
// are for requests that are at fault (invalid_argument), for a node with too much
// to do (unavailable) and for callers out of time (deadline_exceeded). A Redis or
// MySQL that is down is never an error: the limiter goes on with its own counts.
//
// Any client that reaches the ports can spend any budget and read the process's profiles, unless
// Config requires tokens or certificates. Without them, listen on loopback or in a network that
// only your own services reach.
package node
