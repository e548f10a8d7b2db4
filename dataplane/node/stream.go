package node

import (
	"context"
	"errors"
	"io"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

const streamProcedure = weirv1connect.RateLimitServiceLimitStreamProcedure

// conversation is one LimitStream, on either wire. Requests are answered one after
// another, in order. Where a call is shed, a stream waits: it takes its next request
// when there is a slot for it, and HTTP/2's flow control slows its sender down.
type conversation struct {
	service
	receive func() (*weirv1.LimitStreamRequest, error)
	send    func(*weirv1.LimitStreamResponse) error

	turn  sync.Mutex // held from a request's arrival until its answer is out
	ended bool       // guarded by turn: no further request is decided
}

// errEnding tells a stream's caller to go to another node.
var errEnding = connect.NewError(connect.CodeUnavailable, errors.New("this node is stopping"))

// endStreams ends each stream after the answer it is at. Call it once.
func (g *gate) endStreams() { close(g.ending) }

// converse returns when the caller has no more to ask, or streams are to end. Only a
// stream's end wakes whoever waits for its next request, so that waiting is done by a
// goroutine of its own, which ends right after the stream.
func (g *gate) converse(ctx context.Context, c *conversation) error {
	finished := make(chan error, 1)
	g.readers.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				finished <- g.recovered(ctx, streamProcedure, p)
			}
		}()
		finished <- g.answerAll(ctx, c)
	})
	select {
	case err := <-finished:
		return err
	case <-g.ending:
		c.turn.Lock()
		defer c.turn.Unlock()
		c.ended = true
		return errEnding
	}
}

func (g *gate) answerAll(ctx context.Context, c *conversation) error {
	for {
		message, err := c.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := g.answerNext(ctx, c, message); err != nil {
			return err
		}
	}
}

func (g *gate) answerNext(ctx context.Context, c *conversation, message *weirv1.LimitStreamRequest) error {
	if err := g.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.slots.Release(1)
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.ended {
		return errEnding
	}
	answer, err := c.answer(ctx, message.GetRequest())
	if err != nil {
		return err
	}
	g.metrics.streamed.Inc()
	return c.send(answer)
}

// answer is an error only where the server is at fault.
func (c *conversation) answer(ctx context.Context, m *weirv1.LimitRequest) (*weirv1.LimitStreamResponse, error) {
	response, _, err := c.limit(ctx, m)
	if err == nil {
		return &weirv1.LimitStreamResponse{Response: response}, nil
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		return nil, err
	}
	return &weirv1.LimitStreamResponse{Violations: writeViolations(err)}, nil
}

func writeViolations(err error) (written []*weirv1.FieldViolation) {
	var refused *connect.Error
	_ = errors.As(err, &refused)
	for _, detail := range refused.Details() {
		value, _ := detail.Value()
		bad, _ := value.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			written = append(written, &weirv1.FieldViolation{Field: v.Field, Description: v.Description})
		}
	}
	if len(written) == 0 { // the limiter's own word, which names the field itself
		written = append(written, &weirv1.FieldViolation{Field: "request", Description: refused.Message()})
	}
	return written
}
