package main

import (
	"errors"
	"sync"

	"google.golang.org/grpc"
)

// turns lets many callers share a stream. Answers come in the order of the requests, so the first caller that sent a
// request takes the first answer.
type turns struct {
	stream  grpc.ClientStream // of messages as they are on the wire
	mu      sync.Mutex        // held to send: the order in waiting is the order on the wire
	waiting chan chan error
}

func newTurns(stream grpc.ClientStream) *turns {
	t := &turns{stream: stream, waiting: make(chan chan error, 1<<16)}
	go t.receive()
	return t
}

func (t *turns) ask(message []byte) error {
	answered := make(chan error, 1)
	t.mu.Lock()
	t.waiting <- answered
	err := t.stream.SendMsg(&message)
	t.mu.Unlock()
	return errors.Join(err, <-answered)
}

// receive ends with its stream.
func (t *turns) receive() {
	for answered := range t.waiting {
		a := answer{read: streamAllowed}
		err := t.stream.RecvMsg(&a)
		answered <- allowed(a.allowed, errors.Join(err, a.err))
	}
}
