// Package bounded holds what the callers of a server can make it keep: connections, calls, bytes
// and time.
//
// A call walks through these files, in this order:
//
//	listener.go  bounds connections; a new one is always let in, and the address with the most pays for it
//	memory.go    bounds the bytes that all calls hold together, and each caller's part of them
//	body.go      reads a body whole, before anything is done for it
//	unpack.go    unpacks it, no further than it may go
//	heavy.go     lets few large bodies be worked on at a time; one that waits lets another one in
//	slots.go     bounds the calls that are worked on, and each caller's part of them
//	answer.go    keeps an answer until it is whole, and then sends it
//	handler.go   does all of that for an http.Handler
//
// A call takes a slot after it has been read and gives it back before its answer is sent: a
// caller that sends slowly, or does not read, holds none. It does hold memory. When that is all
// in use, a call that keeps the server waiting is cut off in favor of a new one: of the caller that holds
// most the one that has waited longest. So slow callers make room for others, however many they are.
package bounded
