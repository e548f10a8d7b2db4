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

// asideMax is the number of calls about reservations that a stream can have in progress. A further call is rejected,
// because waiting for room would delay the stream's requests.
const asideMax = 32

// aside has a stream's calls about reservations that are in progress. They wait for the origin while the stream's
// requests continue. Each holds a slot meanwhile, as such a call outside of a stream does.
type aside struct {
	sync.WaitGroup            // added to while the turn is held
	failed         chan error // capacity 1: the reason why the stream ends
	calls          atomic.Int64
}

// beginAside begins a call whose response is sent later. It returns a response immediately if the call has no room or
// is invalid. The caller must hold the turn.
func (g *gate) beginAside(ctx context.Context, c *conversation,
	m *weirv1.LimitStreamRequest) *weirv1.LimitStreamResponse {
	if m.GetRequest() != nil {
		var found violations
		found.add("request", "is set together with a call about a reservation (set one of them)")
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

// asideFailed returns the response for a failed call: its violations, or the error that the call would return outside
// of a stream.
func asideFailed(err error) *weirv1.LimitStreamResponse {
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		return &weirv1.LimitStreamResponse{Violations: writeViolations(err)}
	}
	return &weirv1.LimitStreamResponse{Problem: &weirv1.StreamProblem{Code: connect.CodeOf(err).String(),
		Message: message(err)}}
}
