package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/connectlimit"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/streamed"
)

// A stream's first message has its ceiling. The cost that its handler reports counts when the handler returns or
// panics.
func TestStreamedMetersStreamsAndCalls(t *testing.T) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := streamed.New(streamed.Config{Reservations: limiter})
	if err != nil {
		t.Fatal(err)
	}
	tokens := dataplane.Request{Workspace: "acme", Namespace: "tokens", Identifier: "ann", Limit: 100, Duration: time.Hour,
		Cost: 60}
	meters := connect.WithInterceptors(connectlimit.Streamed(streams,
		func(c httplimit.Call) (dataplane.ReserveRequest, error) {
			if m, ok := connectlimit.Message(c).(*text); !ok || m.Value == "" {
				return dataplane.ReserveRequest{}, errors.New("nothing is asked")
			}
			return dataplane.ReserveRequest{Requests: []dataplane.Request{tokens}, Returned: true}, nil
		}))
	begun := make(chan *streamed.Meter, 1)
	say := func(ctx context.Context, value string) {
		meter := streamed.MeterOf(ctx)
		begun <- meter
		meter.Spent(10)
		if value == "panic" {
			panic(http.ErrAbortHandler)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/test.v1.Test/Tell", connect.NewServerStreamHandler("/test.v1.Test/Tell",
		func(ctx context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
			say(ctx, r.Msg.Value)
			return s.Send(r.Msg)
		}, meters))
	mux.Handle("/test.v1.Test/Echo", connect.NewUnaryHandler("/test.v1.Test/Echo",
		func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			say(ctx, r.Msg.Value)
			return connect.NewResponse(r.Msg), nil
		}, meters))
	server := httptest.NewServer(mux)
	defer server.Close()
	tell := func(value string) error {
		s, err := connect.NewClient[text, text](server.Client(), server.URL+"/test.v1.Test/Tell").
			CallServerStream(context.Background(), connect.NewRequest(&text{Value: value}))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		for s.Receive() {
			_, _ = io.WriteString(io.Discard, s.Msg().Value)
		}
		return s.Err()
	}
	echo := func(value string) error {
		_, err := connect.NewClient[text, text](server.Client(), server.URL+"/test.v1.Test/Echo").
			CallUnary(context.Background(), connect.NewRequest(&text{Value: value}))
		return err
	}
	for i, ask := range []func(string) error{tell, echo, tell, echo} {
		value := "x"
		if i > 1 {
			value = "panic"
		}
		if err := ask(value); (err != nil) != (i > 1) {
			t.Errorf("%d: %v", i, err)
		}
		if err := (<-begun).Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := tell(""); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("nothing: %v", err)
	}
	held := limiter.Reserve(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{tokens}})
	for _, ask := range []func(string) error{tell, echo} {
		var refused *connect.Error
		if err := ask("x"); !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted ||
			refused.Meta().Get("Retry-After") == "" {
			t.Errorf("40 are spent, and 60 held (%v): %v", held.Allowed, err)
		}
	}
	if err := streams.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := echo("x"); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("after Stop: %v", err)
	}
}
