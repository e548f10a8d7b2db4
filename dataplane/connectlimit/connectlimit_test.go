package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/connectlimit"
	"github.com/weirhq/weir/dataplane/httplimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	text = wrapperspb.StringValue
	door struct {
		name    string
		options []connect.ClientOption
	}
)

var doors = []door{{"Connect", nil}, {"gRPC", []connect.ClientOption{connect.WithGRPC()}}, {"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}}}

var (
	began    = time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	errFixed = connect.NewError(connect.CodeNotFound, errors.New("no such thing"))
)

// serve runs a service of an echo, which fails on "fail", and of a stream that echoes,
// behind policies.
func serve(t testing.TB, config httplimit.Config) (client *http.Client, url string) {
	t.Helper()
	clock := func() time.Time { return began }
	if config.Limiter == nil {
		limiter, err := dataplane.New(dataplane.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		config.Limiter = limiter
	}
	config.Clock = clock
	limits, err := connectlimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/test.v1.Test/Echo", connect.NewUnaryHandler("/test.v1.Test/Echo", func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if r.Msg.Value == "fail" {
			return nil, errFixed
		}
		return connect.NewResponse(r.Msg), nil
	}, connect.WithInterceptors(limits)))
	mux.Handle("/test.v1.Test/Stream", connect.NewBidiStreamHandler("/test.v1.Test/Stream", func(_ context.Context, s *connect.BidiStream[text, text]) error {
		for {
			m, err := s.Receive()
			if err != nil {
				return nil //nolint:nilerr // the client's end is the stream's
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}, connect.WithInterceptors(limits)))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Client(), server.URL
}

func echo(t testing.TB, client *http.Client, url string, d door) func(key, value string) (*connect.Response[text], error) {
	c := connect.NewClient[text, text](client, url+"/test.v1.Test/Echo", d.options...)
	return func(key, value string) (*connect.Response[text], error) {
		r := connect.NewRequest(wrapperspb.String(value))
		if key != "" {
			r.Header().Set("X-Api-Key", key)
		}
		return c.CallUnary(t.Context(), r)
	}
}

func perKey(limit int64) httplimit.Policy {
	return httplimit.Policy{Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"), Quota: httplimit.Quota{Limit: limit, Duration: time.Minute}}
}

// For every protocol: a call that passes carries the fields, and a denied call is resource_exhausted, has a Retry-After
// not earlier than t, and names the policy.
func TestUnary(t *testing.T) {
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{perKey(1)}})
			call := echo(t, client, url, d)
			answer, err := call("alice", "hello")
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.Header().Get("RateLimit"); answer.Msg.Value != "hello" || got != `"key";r=0;t=30` {
				t.Errorf("%s with %s", answer.Msg.Value, got)
			}
			_, err = call("alice", "hello")
			var denied *connect.Error
			if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted {
				t.Fatalf("error %v", err)
			}
			for field, want := range map[string]string{"RateLimit-Policy": `"key";q=1;w=60`, "RateLimit": `"key";r=0;t=31`, "Retry-After": "31"} {
				if got := denied.Meta().Get(field); got != want {
					t.Errorf("%s: %s, want %s", field, got, want)
				}
			}
			subject, delay := details(t, denied)
			if subject != "key" || delay != 31*time.Second {
				t.Errorf("details: %q, %v", subject, delay)
			}
		})
	}
}

func details(t *testing.T, err *connect.Error) (subject string, delay time.Duration) {
	t.Helper()
	for _, detail := range err.Details() {
		message, valueErr := detail.Value()
		if valueErr != nil {
			t.Fatal(valueErr)
		}
		switch m := message.(type) {
		case *errdetails.QuotaFailure:
			subject = m.Violations[0].Subject
		case *errdetails.RetryInfo:
			delay = m.RetryDelay.AsDuration()
		}
	}
	return subject, delay
}

// A denial of Connect over HTTP is 429 for a client that reads only the status.
func TestDenialIs429(t *testing.T) {
	client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{perKey(0)}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/test.v1.Test/Echo", strings.NewReader(`"x"`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", "alice")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("RateLimit") == "" || answer.Header.Get("Retry-After") != "" {
		t.Errorf("status %d, %v", answer.StatusCode, answer.Header)
	}
}

// The policies apply to a stream when it begins, and count it once.
func TestStream(t *testing.T) {
	client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{perKey(1)}})
	c := connect.NewClient[text, text](client, url+"/test.v1.Test/Stream", connect.WithGRPC())
	open := func() (header string, err error) {
		s := c.CallBidiStream(t.Context())
		s.RequestHeader().Set("X-Api-Key", "alice")
		for range 3 {
			_ = s.Send(wrapperspb.String("x")) // Receive returns the reason if it fails
			if _, err := s.Receive(); err != nil {
				return "", errors.Join(err, s.CloseRequest(), s.CloseResponse())
			}
		}
		header = s.ResponseHeader().Get("RateLimit")
		return header, errors.Join(s.CloseRequest(), s.CloseResponse())
	}
	if header, err := open(); err != nil || header != `"key";r=0;t=30` {
		t.Errorf("first: %s, %v", header, err)
	}
	if _, err := open(); err == nil || connect.CodeOf(errors.Unwrap(err)) != connect.CodeResourceExhausted && !strings.Contains(err.Error(), "resource_exhausted") {
		t.Errorf("second: %v", err)
	}
}

// A call without a key is the caller's fault, a cost out of bounds is the server's fault, and an origin that does not
// answer is neither's. None of them is a quota that is used up.
func TestFaults(t *testing.T) {
	broken := perKey(1)
	broken.Cost = func(httplimit.Call) int64 { return -1 }
	out := outage{}
	for _, c := range []struct {
		config httplimit.Config
		key    string
		want   connect.Code
		retry  string
	}{
		{httplimit.Config{Policies: []httplimit.Policy{perKey(1)}}, "", connect.CodeInvalidArgument, ""},
		{httplimit.Config{Policies: []httplimit.Policy{broken}}, "alice", connect.CodeInternal, ""},
		{httplimit.Config{Policies: []httplimit.Policy{perKey(1)}, Limiter: out}, "alice", connect.CodeUnavailable, "1"},
	} {
		client, url := serve(t, c.config)
		_, err := echo(t, client, url, doors[0])(c.key, "x")
		var refused *connect.Error
		if !errors.As(err, &refused) || refused.Code() != c.want || refused.Meta().Get("Retry-After") != c.retry {
			t.Errorf("%v, want %v", err, c.want)
			continue
		}
		if subject, _ := details(t, refused); subject != "" {
			t.Errorf("%v names policy %q as used up", c.want, subject)
		}
	}
}

type outage struct{ *dataplane.Limiter }

func (outage) Allow(_ context.Context, r dataplane.Request) dataplane.Decision {
	return dataplane.Decision{Limit: r.Limit, Source: dataplane.SourceDegradedClosed, RetryAfter: time.Millisecond, ResetAt: began}
}

// A handler's error may be the same value for all calls: nothing of a caller's standing is written to it.
func TestHandlersErrorsAreLeftAlone(t *testing.T) {
	client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{perKey(5)}})
	if _, err := echo(t, client, url, doors[0])("alice", "fail"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("error %v", err)
	}
	if len(errFixed.Meta()) != 0 {
		t.Errorf("written on the handler's error: %v", errFixed.Meta())
	}
}

// Keys and costs can read procedure, address and message.
func TestWhatPoliciesSee(t *testing.T) {
	var path, message string
	p := perKey(100)
	address, err := httplimit.ClientIP(httplimit.IPConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var ip string
	p.Key = func(c httplimit.Call) (string, bool) { ip, _ = address(c); return ip, true }
	p.Cost = func(c httplimit.Call) int64 {
		path = c.Path()
		m, ok := connectlimit.Message(c).(*text)
		if ok {
			message = m.Value
		}
		return int64(len(message))
	}
	client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{p}})
	answer, err := echo(t, client, url, doors[0])("", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Header().Get("RateLimit"); path != "/test.v1.Test/Echo" || message != "hello" || ip != "127.0.0.1" || got != `"key";r=95;t=30` {
		t.Errorf("path %q, message %q, address %q, %s", path, message, ip, got)
	}
}

// New rejects settings that would be ignored silently, and a client's calls are not counted.
func TestConfigAndClients(t *testing.T) {
	if _, err := connectlimit.New(httplimit.Config{Denied: func(http.ResponseWriter, *http.Request, *httplimit.Outcome) {}}); err == nil {
		t.Error("Denied is taken")
	}
	if _, err := connectlimit.New(httplimit.Config{}); err == nil {
		t.Error("an empty Config is taken")
	}
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := connectlimit.New(httplimit.Config{Limiter: limiter, Policies: []httplimit.Policy{perKey(0)}})
	if err != nil {
		t.Fatal(err)
	}
	client, url := serve(t, httplimit.Config{Policies: []httplimit.Policy{perKey(1)}})
	if _, err := echo(t, client, url, door{options: []connect.ClientOption{connect.WithInterceptors(limits)}})("alice", "x"); err != nil {
		t.Errorf("a client's own call is held to the policies: %v", err)
	}
}
