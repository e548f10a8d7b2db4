package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

var (
	asked = dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "üser:42", Limit: 1<<53 - 1, Duration: time.Minute, Cost: 7}

	askedOnTheWire = &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: "üser:42", Limit: 1<<53 - 1, DurationMs: 60_000, Cost: 7}

	decided = dataplane.Decision{
		Allowed:    true,
		Shadowed:   true,
		Source:     dataplane.SourceDegraded,
		Limit:      1<<53 - 1,
		Duration:   time.Hour,
		Remaining:  3,
		Current:    7.25,
		ResetAt:    time.UnixMilli(1_700_000_040_000),
		RetryAfter: 1500*time.Microsecond + 1,
		Override:   "user_*",

		CandidateDenied: true,
		NeverPasses:     true,
	}

	decidedOnTheWire = &weirv1.LimitResponse{
		Allowed:      true,
		Shadowed:     true,
		Source:       weirv1.Source_SOURCE_DEGRADED,
		Limit:        1<<53 - 1,
		Remaining:    3,
		Current:      7.25,
		ResetAtMs:    1_700_000_040_000,
		RetryAfterMs: 2, // rounded up: with one millisecond less it would not pass
		Override:     "user_*",
		DurationMs:   3_600_000,

		CandidateDenied: true,
		NeverPasses:     true,
	}
)

// Every field of a request reaches the limiter, and every field of its decision
// the caller, through every door.
func TestEveryDoorLeadsToTheSameLimiter(t *testing.T) {
	expect := func(got, want dataplane.Request) dataplane.Decision {
		if got != want {
			return dataplane.Decision{Err: fmt.Errorf("limiter was asked %+v, want %+v", got, want)}
		}
		return decided
	}
	h := start(t, scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision { return expect(r, asked) },
		peek:  func(_ context.Context, r dataplane.Request) dataplane.Decision { return expect(r, asked) },
		many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
			batch := dataplane.Batch{Allowed: true}
			for _, r := range r {
				d := expect(r, asked)
				batch.Decisions, batch.Err = append(batch.Decisions, d), errors.Join(batch.Err, d.Err)
			}
			return batch
		},
		back: func(r dataplane.Request) (int64, error) {
			r.Limit = asked.Limit // a refund has no limit
			return 5, expect(r, asked).Err
		},
	})
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) { askEverything(t, connectCaller{door.open(t, h)}) })
	}
	t.Run("gRPC by grpc-go on its own port", func(t *testing.T) { askEverything(t, dialGRPC(t, h.GRPCAddr())) })
	t.Run("gRPC by grpc-go", func(t *testing.T) { askEverything(t, dialGRPC(t, h.Addr())) })
}

// caller is a client of any kind.
type caller interface {
	call(ctx context.Context, procedure string, request, response proto.Message) error
}

func askEverything(t *testing.T, c caller) {
	same := func(got, want proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("answer is\n%v\nwant\n%v", got, want)
		}
	}
	one := new(weirv1.LimitResponse)
	same(one, decidedOnTheWire, c.call(t.Context(), weirv1connect.RateLimitServiceLimitProcedure, askedOnTheWire, one))

	many := new(weirv1.LimitManyResponse)
	err := c.call(t.Context(), weirv1connect.RateLimitServiceLimitManyProcedure,
		&weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{askedOnTheWire, askedOnTheWire}}, many)
	same(many, &weirv1.LimitManyResponse{Allowed: true, Responses: []*weirv1.LimitResponse{decidedOnTheWire, decidedOnTheWire}}, err)

	peek := new(weirv1.PeekResponse)
	err = c.call(t.Context(), weirv1connect.RateLimitServicePeekProcedure,
		&weirv1.PeekRequest{Workspace: "acme", Namespace: "api", Identifier: "üser:42", Limit: 1<<53 - 1, DurationMs: 60_000, Cost: 7}, peek)
	same(peek, &weirv1.PeekResponse{Response: decidedOnTheWire}, err)

	back := new(weirv1.RefundResponse)
	err = c.call(t.Context(), weirv1connect.RateLimitServiceRefundProcedure,
		&weirv1.RefundRequest{Workspace: "acme", Namespace: "api", Identifier: "üser:42", DurationMs: 60_000, Cost: 7}, back)
	same(back, &weirv1.RefundResponse{Refunded: 5}, err)
}

// A missing cost and a cost of 0 are the same in every protocol, and the limiter counts 1. A request that should count
// nothing has a field for that.
func TestCostsReachTheLimiter(t *testing.T) {
	requests := make(chan dataplane.Request, 1)
	h := start(t, scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
		requests <- r
		return dataplane.Decision{Allowed: true}
	}})
	for _, door := range doors {
		client := door.open(t, h)
		for _, step := range []struct {
			cost int64
			zero bool
		}{{0, false}, {1, false}, {5, false}, {0, true}} {
			request := proto.CloneOf(askedOnTheWire)
			request.Cost, request.ZeroCost = step.cost, step.zero
			if _, err := client.Limit(t.Context(), connect.NewRequest(request)); err != nil {
				t.Fatalf("%s: %v", door.name, err)
			}
			if got := <-requests; got.Cost != step.cost || got.ZeroCost != step.zero {
				t.Errorf("%s: %+v reached the limiter as cost %d, ZeroCost %v", door.name, step, got.Cost, got.ZeroCost)
			}
		}
	}
}

// The same body is valid for Limit, Peek, Refund and Explain, so a new user needs only one format.
func TestOneBodyIsGoodForAllCalls(t *testing.T) {
	h := start(t, newLimiter(t, nil))
	const body = `{"workspace":"acme","namespace":"api","identifier":"k","limit":10,"duration_ms":86400000,"cost":4}`
	for _, step := range []struct{ procedure, want string }{
		{weirv1connect.RateLimitServiceLimitProcedure, `"remaining":"6"`},
		{weirv1connect.RateLimitServicePeekProcedure, `"remaining":"2"`},
		{weirv1connect.RateLimitServiceExplainProcedure, `"remaining":"2"`},
		{weirv1connect.RateLimitServiceRefundProcedure, `"refunded":"4"`},
		{weirv1connect.RateLimitServicePeekProcedure, `"remaining":"6"`},
	} {
		if status, _, answer := curl(t, h.base+step.procedure, body); status != 200 || !strings.Contains(answer, step.want) {
			t.Errorf("%s: status %d %s, want %s", step.procedure, status, answer, step.want)
		}
	}
	shape := fieldsOf(new(weirv1.LimitRequest))
	for _, m := range []proto.Message{new(weirv1.PeekRequest), new(weirv1.RefundRequest), new(weirv1.ExplainRequest)} {
		if got := fieldsOf(m); got != shape {
			t.Errorf("%s has\n%s\nand LimitRequest\n%s", m.ProtoReflect().Descriptor().Name(), got, shape)
		}
	}
}

func fieldsOf(m proto.Message) (all string) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		all += fmt.Sprintln(fields.Get(i).Number(), fields.Get(i).Name(), fields.Get(i).Kind())
	}
	return all
}

// A denial over HTTP has a standard header for the retry time: whole seconds, never too early, and no header if waiting
// does not help.
func TestDenialSaysRetryAfter(t *testing.T) {
	var next dataplane.Decision
	h := start(t, scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision { return next }})
	for _, step := range []struct {
		decision dataplane.Decision
		want     string
	}{
		{dataplane.Decision{RetryAfter: time.Millisecond}, "1"},
		{dataplane.Decision{RetryAfter: time.Second}, "1"},
		{dataplane.Decision{RetryAfter: time.Second + time.Millisecond}, "2"},
		{dataplane.Decision{RetryAfter: 366 * 24 * time.Hour}, "31622400"},
		{dataplane.Decision{}, ""}, // cost > limit: it never will pass
		{dataplane.Decision{Allowed: true}, ""},
	} {
		next = step.decision
		status, header, _ := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal)
		if got := header.Get("Retry-After"); status != 200 || got != step.want {
			t.Errorf("%+v: status %d, Retry-After %q, want 200 and %q", step.decision, status, got, step.want)
		}
	}
	next = dataplane.Decision{RetryAfter: time.Second}
	// gRPC has no such field of its own; the answer's retry_after_ms is all there
	for _, door := range slices.Concat(doors[:3], doors[7:]) {
		response, err := door.open(t, h).Limit(t.Context(), connect.NewRequest(askedOnTheWire))
		if err != nil || response.Header().Get("Retry-After") != "" {
			t.Errorf("%s: header %v, error %v", door.name, response.Header(), err)
		}
	}
}

// The caller's deadline is the limiter's deadline.
func TestDeadlineReachesTheLimiter(t *testing.T) {
	left := make(chan time.Duration, 1)
	h := start(t, scripted{allow: func(ctx context.Context, _ dataplane.Request) dataplane.Decision {
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(-time.Hour)
		}
		left <- time.Until(deadline)
		return dataplane.Decision{Allowed: true}
	}})
	for _, door := range doors {
		client := door.open(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := client.Limit(ctx, connect.NewRequest(askedOnTheWire))
		cancel()
		if got := <-left; err != nil || got <= 0 || got > 5*time.Second {
			t.Errorf("%s: the limiter had %v left of 5 s (error %v)", door.name, got, err)
		}
	}
}

// A disconnected caller does not keep its call waiting.
func TestCallerGoingAwayCancelsTheCall(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	h := start(t, scripted{allow: func(ctx context.Context, _ dataplane.Request) dataplane.Decision {
		in <- struct{}{}
		<-ctx.Done()
		out <- struct{}{}
		return dataplane.Decision{}
	}})
	for _, door := range doors {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error)
		go func() {
			_, err := door.open(t, h).Limit(ctx, connect.NewRequest(askedOnTheWire))
			answered <- err
		}()
		<-in
		cancel()
		<-out
		if err := <-answered; connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("%s: error %v, want canceled", door.name, err)
		}
	}
}

// A request that the limiter itself rejects is reported as the caller's fault.
func TestLimiterRefusesARequest(t *testing.T) {
	refused := fmt.Errorf("%w: identifier is on fire", dataplane.ErrInvalid)
	h := start(t, scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision { return dataplane.Decision{Err: refused} },
		peek:  func(context.Context, dataplane.Request) dataplane.Decision { return dataplane.Decision{Err: refused} },
		many:  func(context.Context, []dataplane.Request) dataplane.Batch { return dataplane.Batch{Err: refused} },
	})
	c := connectCaller{doors[0].open(t, h)}
	for procedure, request := range map[string]proto.Message{
		weirv1connect.RateLimitServiceLimitProcedure:     askedOnTheWire,
		weirv1connect.RateLimitServiceLimitManyProcedure: &weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{askedOnTheWire}},
		weirv1connect.RateLimitServicePeekProcedure:      &weirv1.PeekRequest{Workspace: "a", Namespace: "b", Identifier: "c", DurationMs: 1000},
	} {
		err := c.call(t.Context(), procedure, request, nil)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || err.Error() != "invalid_argument: "+refused.Error() {
			t.Errorf("%s: error %v", procedure, err)
		}
	}
}

// connectCaller calls through connect's generated client.
type connectCaller struct {
	client weirv1connect.RateLimitServiceClient
}

func (c connectCaller) call(ctx context.Context, _ string, request, response proto.Message) error {
	var answer proto.Message
	switch m := request.(type) {
	case *weirv1.LimitRequest:
		r, err := c.client.Limit(ctx, connect.NewRequest(m))
		if err != nil {
			return err
		}
		answer = r.Msg
	case *weirv1.LimitManyRequest:
		r, err := c.client.LimitMany(ctx, connect.NewRequest(m))
		if err != nil {
			return err
		}
		answer = r.Msg
	case *weirv1.RefundRequest:
		r, err := c.client.Refund(ctx, connect.NewRequest(m))
		if err != nil {
			return err
		}
		answer = r.Msg
	case *weirv1.PeekRequest:
		r, err := c.client.Peek(ctx, connect.NewRequest(m))
		if err != nil {
			return err
		}
		answer = r.Msg
	}
	proto.Merge(response, answer)
	return nil
}

// grpcCaller calls through grpc-go, which shares no code with the server.
type grpcCaller struct{ conn *grpc.ClientConn }

func dialGRPC(t testing.TB, address net.Addr) grpcCaller {
	return grpcCaller{dial(t, address.String())}
}

// dial connects to a node, without TLS unless an option says otherwise, and closes the connection when the test ends.
func dial(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{plaintext}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c grpcCaller) call(ctx context.Context, procedure string, request, response proto.Message) error {
	return c.conn.Invoke(ctx, procedure, request, response)
}
