package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// testCase is a way into a server.
type testCase struct {
	name      string
	server    string
	beside    string // the case that does the same without deciding
	decisions int    // a call; 0 is 1
	connect   func(ctx context.Context, s *server, callers int) (callers, error)
}

var cases = []testCase{
	{"bare grpc-go", bareEcho, "", 0, limitBy(toGRPC)},
	{"bare grpc-go, RLS", bareEcho, "", 0, shouldRateLimit(1, 0)},
	{"bare net/http", bareEcho, "", 0, postJSON},
	{"grpc", weir, "bare grpc-go", 0, limitBy(toGRPC)},
	{"gubernator", gubernator, "bare grpc-go", 0, getRateLimits(1)},
	{"rls", weir, "bare grpc-go", 0, shouldRateLimit(1, 1)},
	{"ratelimit", ratelimit, "bare grpc-go", 0, shouldRateLimit(1, 1)},
	{"grpc batch of 10", weir, "bare grpc-go", 10, limitMany},
	{"gubernator batch of 10", gubernator, "bare grpc-go", 10, getRateLimits(10)},
	{"rls batch of 10", weir, "bare grpc-go", 10, shouldRateLimit(10, 10)},
	{"ratelimit batch of 10", ratelimit, "bare grpc-go", 10, shouldRateLimit(10, 10)},
	{"grpc stream", weir, "bare grpc-go", 0, limitStream},
	{"json", weir, "bare net/http", 0, postJSON},
	{"grpc on the port for all", weir, "bare grpc-go", 0, limitBy(toHTTP)},
}

// callers are as many calls as may be made at the same time.
type callers struct {
	call    []call
	closers []io.Closer
}

func (c callers) close() {
	for _, closer := range c.closers {
		_ = closer.Close()
	}
}

// connections is how many a proxy with as many workers would hold.
const connections = 4

func toGRPC(s *server) string { return s.grpc }
func toHTTP(s *server) string { return s.http }

// dial makes a call for each caller, spread over the connections.
func dial(address string, n int, newCall func(conn *grpc.ClientConn, i int) call) (c callers, err error) {
	var conns []*grpc.ClientConn
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			c.close()
			return callers{}, fmt.Errorf("dial %s: %w", address, err)
		}
		conns = append(conns, conn)
		c.closers = append(c.closers, conn)
	}
	for i := range n {
		c.call = append(c.call, newCall(conns[i%connections], i))
	}
	return c, nil
}

func request(i int) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("user_", i), Limit: 1e15,
		DurationMs: 60_000}
}

var errNotAllowed = errors.New("not allowed")

func allowed(yes bool, err error) error {
	if err == nil && !yes {
		return errNotAllowed
	}
	return err
}

func limitBy(address func(*server) string) func(context.Context, *server, int) (callers, error) {
	return func(_ context.Context, s *server, n int) (callers, error) {
		return dial(address(s), n, func(conn *grpc.ClientConn, i int) call {
			return invoke(conn, weirv1connect.RateLimitServiceLimitProcedure, encoded(request(i)), limitAllowed)
		})
	}
}

func limitMany(_ context.Context, s *server, n int) (callers, error) {
	return dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
		message := new(weirv1.LimitManyRequest)
		for j := range 10 {
			message.Requests = append(message.Requests, request(10*i+j))
		}
		return invoke(conn, weirv1connect.RateLimitServiceLimitManyProcedure, encoded(message), allAllowed(10))
	})
}

// shouldRateLimit sends as many descriptors in each call, and expects as many statuses.
func shouldRateLimit(descriptors, statuses int) func(context.Context, *server, int) (callers, error) {
	return func(_ context.Context, s *server, n int) (callers, error) {
		return dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
			message := &rlsv3.RateLimitRequest{Domain: "edge"}
			for j := range descriptors {
				message.Descriptors = append(message.Descriptors, &ratelimitv3.RateLimitDescriptor{
					Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint("user_", descriptors*i+j)}},
				})
			}
			return invoke(conn, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, encoded(message), withinLimits(statuses))
		})
	}
}

// limitStream makes callers share streams, one for each connection, as a sidecar's callers do: each sends its request
// and waits for the answer of its turn.
func limitStream(ctx context.Context, s *server, n int) (callers, error) {
	var failed error
	var shared []*turns
	c, err := dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
		if i < connections {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				weirv1connect.RateLimitServiceLimitStreamProcedure, grpc.ForceCodecV2(asIs{}))
			failed = errors.Join(failed, err)
			shared = append(shared, newTurns(stream))
		}
		t, message := shared[i%connections], encoded(&weirv1.LimitStreamRequest{Request: request(i)})
		return func(context.Context) error { return t.ask(message) }
	})
	return c, errors.Join(err, failed)
}

func postJSON(_ context.Context, s *server, n int) (c callers, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	for i := range n {
		body := fmt.Appendf(nil,
			`{"workspace":"acme","namespace":"api","identifier":"user_%d","limit":1000000000000000,"duration_ms":60000}`, i)
		c.call = append(c.call, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost,
				"http://"+s.http+weirv1connect.RateLimitServiceLimitProcedure, bytes.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return allowed(answer.StatusCode == http.StatusOK, err)
		})
	}
	return c, nil
}
