package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// streamDoors returns the doors over HTTP/2, which support streams.
func streamDoors() (open []door) {
	for _, d := range doors {
		if d.client(discardT{}).Transport.(*http.Transport).Protocols.UnencryptedHTTP2() {
			open = append(open, d)
		}
	}
	return open
}

// discardT lets a client be made only to look at it.
type discardT struct{ testing.TB }

func (discardT) Cleanup(func()) {}

func numbered(i int) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("user_", i), Limit: int64(i), DurationMs: 60_000}
}

// Requests of a stream are processed in order, however many are sent before the first response is read. An invalid
// request gets its error in order, and does not affect other requests.
func TestStreamAnswersInOrder(t *testing.T) {
	h := start(t, scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
		return dataplane.Decision{Allowed: true, Limit: r.Limit}
	}})
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			before := h.streamed()
			stream := door.open(t, h).LimitStream(t.Context())
			const n = 100
			for i := range n {
				request := numbered(i)
				switch i {
				case 7:
					request.Workspace = ""
				case 8:
					request = nil // a message of no bytes
				}
				if err := stream.Send(&weirv1.LimitStreamRequest{Request: request}); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				answer, err := stream.Receive()
				if err != nil {
					t.Fatal(err)
				}
				want := &weirv1.LimitStreamResponse{Response: writeDecision(dataplane.Decision{Allowed: true, Limit: int64(i)})}
				if i == 7 {
					want = &weirv1.LimitStreamResponse{Violations: []*weirv1.FieldViolation{{Field: "workspace", Description: "is empty (1 to 191 bytes)"}}}
				}
				if i == 8 {
					want = &weirv1.LimitStreamResponse{Violations: answer.GetViolations()}
					if fields := answer.GetViolations(); len(fields) != 4 || fields[0].GetField() != "workspace" || fields[3].GetField() != "duration_ms" {
						t.Errorf("a message without a request: %v", fields)
					}
				}
				if !proto.Equal(answer, want) {
					t.Fatalf("answer %d is %v, want %v", i, answer, want)
				}
			}
			if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
				t.Errorf("after the last answer: %v, want the end", err)
			}
			if err := stream.CloseResponse(); err != nil {
				t.Error(err)
			}
			if got := h.streamed() - before; got != n {
				t.Errorf("weir_rpc_stream_requests_total grew by %v, want %d", got, n)
			}
		})
	}
}

// A node that stops ends a stream after the current response with unavailable. No request after that response reaches
// the limiter.
func TestDrainEndsStreams(t *testing.T) {
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			in, out := make(chan struct{}), make(chan struct{})
			asked := 0
			h := start(t, scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision {
				asked++
				in <- struct{}{}
				<-out
				return dataplane.Decision{Allowed: true}
			}})
			stream := door.open(t, h).LimitStream(t.Context())
			for i := range 2 {
				if err := stream.Send(&weirv1.LimitStreamRequest{Request: numbered(i)}); err != nil {
					t.Fatal(err)
				}
			}
			<-in
			drained := make(chan error)
			go func() { drained <- h.Drain() }()
			<-h.gate.ending
			// The stream's end waits for the answer: it is refused the turn now, or
			// queues for it.
			close(out)
			if _, err := stream.Receive(); err != nil {
				t.Errorf("the answer it was at: %v", err)
			}
			// The second request may have got its turn before the end did.
			select {
			case <-in:
				if _, err := stream.Receive(); err != nil {
					t.Errorf("a second answer that was begun: %v", err)
				}
			case err := <-drained:
				drained = make(chan error, 1)
				drained <- err
			}
			if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("the end: %v, want unavailable", err)
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
			if err := <-drained; err != nil {
				t.Errorf("drain: %v", err)
			}
		})
	}
}

// A panic in a stream ends only that stream, with an internal error.
func TestPanicInAStream(t *testing.T) {
	h := start(t, scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision { panic("secret") }})
	for _, door := range streamDoors() {
		stream := door.open(t, h).LimitStream(t.Context())
		_ = stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)})
		if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%s: %v, want internal", door.name, err)
		}
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	}
}
