package main

import (
	"errors"
	"sync"

	"google.golang.org/grpc"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// turns lets many callers ask over one stream: answers come in the order of the
// requests, so that the first who asked takes the first answer.
type turns struct {
	stream  grpc.BidiStreamingClient[weirv1.LimitStreamRequest, weirv1.LimitStreamResponse]
	mu      sync.Mutex // held to send: the order in waiting is the order on the wire
	waiting chan chan error
}

func newTurns(stream grpc.BidiStreamingClient[weirv1.LimitStreamRequest, weirv1.LimitStreamResponse]) *turns {
	t := &turns{stream: stream, waiting: make(chan chan error, 1<<16)}
	go t.receive()
	return t
}

func (t *turns) ask(message *weirv1.LimitStreamRequest) error {
	answered := make(chan error, 1)
	t.mu.Lock()
	t.waiting <- answered
	err := t.stream.Send(message)
	t.mu.Unlock()
	return errors.Join(err, <-answered)
}

// receive ends with its stream.
func (t *turns) receive() {
	for answered := range t.waiting {
		answer, err := t.stream.Recv()
		answered <- allowed(answer.GetResponse().GetAllowed(), err)
	}
}
