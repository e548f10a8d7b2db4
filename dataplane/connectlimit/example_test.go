package connectlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/connectlimit"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// A limit of one call a minute for each key.
func Example() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	limits, err := connectlimit.New(httplimit.Config{
		Limiter: limiter,
		Policies: []httplimit.Policy{{
			Name: "key", Workspace: "acme", Namespace: "api",
			Key:   httplimit.Header("X-Api-Key"),
			Quota: httplimit.Quota{Limit: 1, Duration: time.Minute},
		}},
	})
	if err != nil {
		panic(err)
	}
	const procedure = "/greet.v1.Greeter/Greet"
	greet := func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String("hello " + r.Msg.Value)), nil
	}
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, greet, connect.WithInterceptors(limits)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure)
	for range 2 {
		request := connect.NewRequest(wrapperspb.String("world"))
		request.Header().Set("X-Api-Key", "k1")
		answer, err := client.CallUnary(context.Background(), request)
		if err != nil {
			fmt.Println(connect.CodeOf(err))
			continue
		}
		fmt.Println(answer.Msg.Value, answer.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// hello world "key";q=1;w=60
	// resource_exhausted
}
