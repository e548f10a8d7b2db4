package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/streamed"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// overTheWire makes the calls about reservations at nodes, by turns: a load balancer between a client of package
// streamed and its nodes.
type overTheWire struct {
	nodes []weirv1connect.RateLimitServiceClient
	turn  atomic.Uint64
}

func (w *overTheWire) next() weirv1connect.RateLimitServiceClient {
	return w.nodes[w.turn.Add(1)%uint64(len(w.nodes))]
}

// Reserve implements streamed.Reservations.
func (w *overTheWire) Reserve(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
	request := &weirv1.ReserveRequest{Id: r.ID, TtlMs: r.TTL.Milliseconds(), Returned: r.Returned, Holder: r.Holder}
	for i := range r.Requests {
		request.Requests = append(request.Requests, limitOf(&r.Requests[i]))
	}
	answer, err := w.next().Reserve(ctx, connect.NewRequest(request))
	if err != nil {
		return dataplane.Reserved{Err: asLimiter(err)}
	}
	return dataplane.Reserved{ID: answer.Msg.Id, Allowed: answer.Msg.Allowed, EndsAt: time.UnixMilli(answer.Msg.EndsAtMs)}
}

func limitOf(r *dataplane.Request) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Limit: r.Limit,
		DurationMs: r.Duration.Milliseconds(), Cost: r.Cost}
}

// asLimiter returns an error in the form of a limiter's errors.
func asLimiter(err error) error {
	if connect.CodeOf(err) == connect.CodeNotFound {
		return errors.Join(dataplane.ErrNoReservation, err)
	}
	return err
}

// Spend implements streamed.Reservations.
func (w *overTheWire) Spend(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	return w.settle(ctx, id, costs, true)
}

// Settle implements streamed.Reservations.
func (w *overTheWire) Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	return w.settle(ctx, id, costs, false)
}

func (w *overTheWire) settle(ctx context.Context, id string, costs []int64, more bool) (dataplane.Settlement, error) {
	answer, err := w.next().Settle(ctx, connect.NewRequest(&weirv1.SettleRequest{Id: id, Costs: costs, More: more}))
	if err != nil {
		return dataplane.Settlement{}, asLimiter(err)
	}
	return settlementOf(answer.Msg.Settlement), nil
}

// Extend implements streamed.Reservations.
func (w *overTheWire) Extend(ctx context.Context, id string, ttl time.Duration) (dataplane.Settlement, error) {
	answer, err := w.next().Extend(ctx, connect.NewRequest(&weirv1.ExtendRequest{Id: id, TtlMs: ttl.Milliseconds()}))
	if err != nil {
		return dataplane.Settlement{}, asLimiter(err)
	}
	return settlementOf(answer.Msg.Settlement), nil
}

func settlementOf(s *weirv1.Settlement) dataplane.Settlement {
	return dataplane.Settlement{ID: s.Id, Spent: s.Spent, Settled: s.Settled, Late: s.Late,
		EndsAt: time.UnixMilli(s.EndsAtMs)}
}

// streamsClient is a client process. It begins streams of package streamed on a key, spends a part of each ceiling,
// sends the amounts to its parent, and continues until it is killed.
type streamsClient struct {
	URLs     []string
	Prefix   string // of the ids
	Request  dataplane.Request
	TTL      time.Duration
	Returned bool
	Streams  int
}

// spentLine is the client's JSON line about a stream.
type spentLine struct {
	ID    string
	Spent int64
}

func (c *streamsClient) main() error {
	wire := &overTheWire{}
	for _, url := range c.URLs {
		wire.nodes = append(wire.nodes, weirv1connect.NewRateLimitServiceClient(http.DefaultClient, url))
	}
	streams, err := streamed.New(streamed.Config{Reservations: wire, Every: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := range c.Streams {
		meter, got := streams.Begin(ctx, dataplane.ReserveRequest{ID: fmt.Sprintf("%s-%d", c.Prefix, i),
			Requests: []dataplane.Request{c.Request}, TTL: c.TTL, Returned: c.Returned, Holder: "client"})
		if meter == nil {
			return fmt.Errorf("stream %d: %+v", i, got)
		}
		go func() {
			var spent int64
			for range 5 {
				part := rand.Int64N(c.Request.Cost / 6)
				meter.Spent(part)
				spent += part
				pause(ctx, rand.N(200*time.Millisecond))
			}
			_ = json.NewEncoder(os.Stdout).Encode(spentLine{meter.ID(), spent}) // a single write
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
