// Package bounded limits the connections, calls, bytes and time that callers can take from a server.
//
// A call passes through these files, in this order:
//
//	listener.go  bounds connections; it always accepts a new connection, and closes another of the address with the most
//	pace.go      delays a caller's data while the caller keeps the processors from serving others
//	memory.go    bounds the bytes that all calls hold together, and each caller's part of them
//	body.go      reads a whole body before any work begins
//	unpack.go    decompresses the body, up to a bound
//	heavy.go     admits few large bodies to work at a time, in turn
//	slots.go     bounds the calls in work, and each caller's part of them
//	answer.go    buffers a response until it is complete, and then sends it
//	handler.go   applies all of the above to an http.Handler
//
// A call takes a slot after its body was read, and returns it before its response is sent. So a caller that sends
// slowly or does not read holds no slot, but it holds memory. If the memory is used up, a new call makes room by
// cutting off a call that waits for its caller: the call that has waited longest, of the caller that holds the most
// bytes. So new calls are served for any number of slow callers.
package bounded
