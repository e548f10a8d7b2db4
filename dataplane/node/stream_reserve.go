package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// asideMax is how many calls about reservations a stream has under way. A further one is not made and is answered so:
// to wait for room would hold up the stream's requests.
const asideMax = 32

// aside are a stream's calls about reservations that are under way. They wait for the origin beside the stream's
// requests, and each holds a slot meanwhile, as such a call outside of a stream does.
type aside struct {
	sync.WaitGroup            // added to while the turn is held
	failed         chan error // of one: why the stream ends
	calls          atomic.Int64
}

// beginAside begins a call, which is answered later. It returns an answer if there is no room for the call, or
// something is wrong with it. The turn is its caller's.
func (g *gate) beginAside(ctx context.Context, c *conversation,
	m *weirv1.LimitStreamRequest) *weirv1.LimitStreamResponse {
	if m.GetRequest() != nil {
		var found violations
		found.add("request", "is set beside a call about a reservation (one of them)")
		return asideFailed(found.err())
	}
	if err := g.takeAside(c); err != nil {
		g.count(err)
		return asideFailed(refusedBy(err))
	}
	c.aside.Add(1)
	g.readers.Go(func() {
		defer c.aside.Done()
		if err := g.answerAside(ctx, c, m); err != nil {
			select {
			case c.aside.failed <- err:
			default: // it ends already
			}
		}
	})
	return nil
}

func (g *gate) takeAside(c *conversation) error {
	if c.aside.calls.Add(1) > asideMax {
		c.aside.calls.Add(-1)
		return &bounded.Refusal{Bound: bounded.BoundSlots,
			Message: fmt.Sprintf("more than %d calls about reservations are under way in this stream", asideMax)}
	}
	if err := g.slots.Take(c.holder.caller); err != nil {
		c.aside.calls.Add(-1)
		return err
	}
	return nil
}

// answerAside makes a call and sends its answer.
func (g *gate) answerAside(ctx context.Context, c *conversation, m *weirv1.LimitStreamRequest) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = g.recovered(ctx, streamProcedure, p)
		}
	}()
	answer := g.callAside(ctx, c, m)
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return g.say(c, m, answer)
}

// callAside makes a call, and holds its slot no longer.
func (g *gate) callAside(ctx context.Context, c *conversation,
	m *weirv1.LimitStreamRequest) *weirv1.LimitStreamResponse {
	defer c.aside.calls.Add(-1)
	defer g.slots.Give(c.holder.caller)
	answer, err := c.reservation(ctx, m)
	if err != nil {
		return asideFailed(err)
	}
	return answer
}

func (s service) reservation(ctx context.Context, m *weirv1.LimitStreamRequest) (*weirv1.LimitStreamResponse, error) {
	switch call := m.GetReservation().(type) {
	case *weirv1.LimitStreamRequest_Reserve:
		reserved, err := s.reserve(ctx, call.Reserve)
		return &weirv1.LimitStreamResponse{Reserved: reserved}, err
	case *weirv1.LimitStreamRequest_Settle:
		settled, err := s.settle(ctx, call.Settle)
		return &weirv1.LimitStreamResponse{Settlement: settled.GetSettlement()}, err
	case *weirv1.LimitStreamRequest_Cancel:
		cancelled, err := s.cancel(ctx, call.Cancel)
		return &weirv1.LimitStreamResponse{Settlement: cancelled.GetSettlement()}, err
	case *weirv1.LimitStreamRequest_Extend:
		extended, err := s.extend(ctx, call.Extend)
		return &weirv1.LimitStreamResponse{Settlement: extended.GetSettlement()}, err
	}
	panic(fmt.Sprintf("%T is no call about a reservation", m.GetReservation()))
}

// asideFailed answers a call that has failed, with what is wrong with it or with the error it would have ended with
// outside of a stream.
func asideFailed(err error) *weirv1.LimitStreamResponse {
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		return &weirv1.LimitStreamResponse{Violations: writeViolations(err)}
	}
	return &weirv1.LimitStreamResponse{Problem: &weirv1.StreamProblem{Code: connect.CodeOf(err).String(),
		Message: message(err)}}
}
