package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

const streamProcedure = weirv1connect.RateLimitServiceLimitStreamProcedure

// How long a stream may be silent, and how long an answer may wait for its caller to take it.
const (
	streamIdleMax = 10 * time.Minute
	streamSendMax = 20 * time.Second
)

// streamedBytes is the length of a short message, framing included. Pacing counts each message as
// so many bytes, because messages that wait in a stream's buffer were read from the connection long
// before.
const streamedBytes = 100

// conversation is a LimitStream, in either protocol. Requests are processed one after another, in order; calls about
// reservations run concurrently to them (stream_reserve.go). If a call would be shed, a stream waits: it takes its next
// request when there is a free slot, and HTTP/2's flow control slows its sender down.
type conversation struct {
	service
	*standing
	receive func() (*weirv1.LimitStreamRequest, error)
	send    func(*weirv1.LimitStreamResponse) error

	hold     *bounded.Hold // renewed with each request, because the stream that has been silent longest makes room
	patience *time.Timer
	// capacity 1: full from a request's arrival until its response is sent, and while a response is being sent
	turn  chan struct{}
	ended bool        // guarded by turn: no further request is decided
	over  atomic.Bool // no further answer is sent
	aside aside
}

// Reasons for which a stream ends before its caller has ended it. The caller can begin another stream immediately.
var (
	errEnding = connect.NewError(connect.CodeUnavailable, errors.New("this node is stopping"))
	errSilent = connect.NewError(connect.CodeUnavailable,
		fmt.Errorf("the stream was silent for %v, or the caller read no answer for %v", streamIdleMax, streamSendMax))
	errCut = connect.NewError(connect.CodeUnavailable,
		errors.New("the stream was silent longer than all others, and another stream needs its place"))
)

// endStreams ends each stream after the answer it is at. Call it once.
func (g *gate) endStreams() { close(g.ending) }

// hold counts a stream as n bytes of a memory until Give is called. cut is closed if the stream
// must end to make room for another stream.
func (g *gate) hold(ctx context.Context, of *bounded.Memory, caller *bounded.Caller,
	n int64) (hold *bounded.Hold, cut <-chan struct{}, err error) {
	c := make(cutting, 1)
	hold = &bounded.Hold{Caller: caller, Cutter: c}
	if err := of.Take(ctx, hold, n); err != nil {
		g.count(err)
		return nil, nil, refusedBy(err)
	}
	return hold, c, nil
}

// cutting is a Cutter that sends to a channel.
type cutting chan struct{}

func (c cutting) Cut() { c <- struct{}{} } // once

// converse returns when the caller sends no more requests, or the stream must end. Only a
// stream's end wakes a goroutine that waits for its next request. So a separate goroutine waits,
// and ends right after the stream.
func (g *gate) converse(ctx context.Context, n int64, c *conversation) error {
	hold, cut, err := g.hold(ctx, g.streams, c.holder.caller, n)
	if err != nil {
		return err
	}
	defer hold.Give()
	c.hold, c.turn, c.patience = hold, make(chan struct{}, 1), time.NewTimer(streamIdleMax)
	defer c.patience.Stop()
	c.aside.failed = make(chan error, 1)
	defer c.close()
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
	case err := <-c.aside.failed:
		return err
	case <-c.patience.C:
		g.refused[bounded.BoundTime].Inc()
		return errSilent
	case <-cut:
		g.refused[bounded.BoundMemory].Inc()
		return errCut
	case err := <-c.standing.over:
		return err
	case <-g.ending:
		return g.endOne(c)
	}
}

// close prevents further responses, and waits for a response that is being sent. A send must not outlive its call,
// unless only the call's end interrupts it.
func (c *conversation) close() {
	c.over.Store(true)
	linger := time.NewTimer(lingerMax)
	defer linger.Stop()
	select {
	case c.turn <- struct{}{}:
		<-c.turn
	case <-linger.C:
	}
}

// endOne lets the answers out that a stream is at, if its caller takes them.
func (g *gate) endOne(c *conversation) error {
	linger := time.NewTimer(lingerMax)
	defer linger.Stop()
	select {
	case c.turn <- struct{}{}:
		c.ended = true
		<-c.turn
	case <-linger.C:
		return errEnding
	}
	answered := make(chan struct{})
	g.readers.Go(func() { c.aside.Wait(); close(answered) })
	select {
	case <-answered:
	case <-linger.C:
	}
	return errEnding
}

func (g *gate) answerAll(ctx context.Context, c *conversation) error {
	for {
		message, err := c.receive()
		if errors.Is(err, io.EOF) {
			c.aside.Wait() // its calls are answered all the same
			return nil
		}
		if err != nil {
			g.count(err)
			return err
		}
		c.address.Pace(streamedBytes)
		if err := g.answerNext(ctx, c, message); err != nil {
			return err
		}
	}
}

// answerNext answers a request, or begins a call about a reservation.
func (g *gate) answerNext(ctx context.Context, c *conversation, message *weirv1.LimitStreamRequest) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.ended {
		return errEnding
	}
	c.hold.Renew()
	var answer *weirv1.LimitStreamResponse
	var err error
	if message.GetReservation() != nil {
		answer = g.beginAside(ctx, c, message)
	} else {
		answer, err = g.decideNext(ctx, c, message)
	}
	if err != nil || answer == nil {
		c.patience.Reset(streamIdleMax)
		return err
	}
	return g.say(c, message, answer)
}

// say sends a response. The caller must hold the turn, so that only one response is sent at a time. The stream may be
// silent again after that.
func (g *gate) say(c *conversation, to *weirv1.LimitStreamRequest, answer *weirv1.LimitStreamResponse) error {
	if c.over.Load() {
		return errEnding
	}
	g.metrics.streamed.Inc()
	answer.Number = to.GetNumber()
	c.patience.Reset(streamSendMax)
	defer c.patience.Reset(streamIdleMax)
	return c.send(answer)
}

// decideNext holds a slot no longer than it takes to decide.
func (g *gate) decideNext(ctx context.Context, c *conversation,
	message *weirv1.LimitStreamRequest) (*weirv1.LimitStreamResponse, error) {
	if err := g.slots.Wait(ctx, c.holder.caller); err != nil {
		return nil, err
	}
	defer g.slots.GiveWaited(c.holder.caller)
	return c.answer(ctx, message.GetRequest())
}

// answer reports an invalid or forbidden request in the response. Other errors end the stream.
func (c *conversation) answer(ctx context.Context, m *weirv1.LimitRequest) (*weirv1.LimitStreamResponse, error) {
	response, _, err := c.limit(ctx, m)
	if err == nil {
		return &weirv1.LimitStreamResponse{Response: response}, nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument:
		return &weirv1.LimitStreamResponse{Violations: writeViolations(err)}, nil
	case connect.CodePermissionDenied:
		return asideFailed(err), nil
	}
	return nil, err
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
	if len(written) == 0 { // an error of the limiter, which names the field itself
		written = append(written, &weirv1.FieldViolation{Field: "request", Description: refused.Message()})
	}
	return written
}
