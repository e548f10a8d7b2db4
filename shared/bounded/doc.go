// Package bounded limits what a server's callers can make it hold: connections, calls, bytes and
// time.
//
// A call passes through these files, in this order:
//
//	listener.go  bounds connections; it always accepts a new one, and closes one of the address with the most
//	pace.go      delays what a caller sends while it keeps the processors from serving others
//	memory.go    bounds the bytes that all calls hold together, and each caller's part of them
//	body.go      reads a body whole before any work begins
//	unpack.go    decompresses the body, up to a bound
//	heavy.go     admits few large bodies to work at a time, in turn
//	slots.go     bounds the calls in work, and each caller's part of them
//	answer.go    buffers an answer until it is complete, and then sends it
//	handler.go   applies all of the above to an http.Handler
//
// A call takes a slot after its body was read, and returns it before its answer is sent. So a
// caller that sends slowly or does not read holds no slot. It does hold memory. When the memory is
// used up, a new call makes room by cutting off a call that waits for its caller: of the caller
// that holds the most bytes, the call that has waited longest. So new calls are served however many
// slow callers there are.
package bounded
