package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/connectlimit"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// A call holds its slot until its handler returns or panics.
func TestConcurrency(t *testing.T) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	limit := &httplimit.Concurrency{Limiter: limiter, Workspace: "acme", Namespace: "at once",
		Key: httplimit.Header("X-Api-Key"), Limit: 1}
	began, goOn := make(chan struct{}), make(chan struct{})
	echo := func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		switch r.Msg.Value {
		case "panic":
			panic(http.ErrAbortHandler)
		case "wait":
			close(began)
			<-goOn
		}
		return connect.NewResponse(r.Msg), nil
	}
	server := httptest.NewServer(connect.NewUnaryHandler("/test.v1.Test/Echo", echo,
		connect.WithInterceptors(connectlimit.Concurrency(limit))))
	defer server.Close()
	client := connect.NewClient[text, text](server.Client(), server.URL+"/test.v1.Test/Echo")
	ask := func(caller, value string) error {
		r := connect.NewRequest(&text{Value: value})
		r.Header().Set("X-Api-Key", caller)
		_, err := client.CallUnary(context.Background(), r)
		return err
	}
	waited := make(chan error)
	go func() { waited <- ask("ann", "wait") }()
	<-began
	var refused *connect.Error
	if got := ask("ann", "x"); !errors.As(got, &refused) || refused.Code() != connect.CodeResourceExhausted ||
		refused.Meta().Get("Retry-After") != "1" {
		t.Errorf("a second one: %v", got)
	}
	if got := ask("", "x"); connect.CodeOf(got) != connect.CodeInvalidArgument {
		t.Errorf("without a key: %v", got)
	}
	close(goOn)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	for range 2 {
		_ = ask("ann", "panic")
	}
	if err := ask("ann", "x"); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}
