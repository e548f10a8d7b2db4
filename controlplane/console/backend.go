package console

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// backend calls the operators' API in process.
type backend struct{ apiclient.Clients }

func newBackend(service http.Handler) backend {
	return backend{apiclient.New(&http.Client{Transport: inProcess{service}}, "http://weir-control")}
}

// whoAmI returns the identity of the context's caller, or of the holder of a token if the token is not empty.
func (b backend) whoAmI(ctx context.Context, token string) (*controlv1.WhoAmIResponse, error) {
	req := connect.NewRequest(&controlv1.WhoAmIRequest{})
	if token != "" {
		req.Header().Set("Authorization", "Bearer "+token)
	}
	answer, err := b.Tokens.WhoAmI(ctx, req)
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func (b backend) fleet(ctx context.Context) (*controlv1.FleetResponse, error) {
	return apiclient.Ask(ctx, b.Control.Fleet, &controlv1.FleetRequest{})
}

// inProcess is a transport without a network. The service gets the request's context as it is, and with it the caller's
// identity.
type inProcess struct{ service http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI, in.Host, in.RemoteAddr = r.URL.RequestURI(), r.URL.Host, "127.0.0.1:0"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() { _ = in.Body.Close() }()
	out := &recorder{header: make(http.Header)}
	t.service.ServeHTTP(out, in)
	out.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: http.StatusText(out.status), StatusCode: out.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: out.header, Body: io.NopCloser(&out.body), ContentLength: int64(out.body.Len()), Request: r,
	}, nil
}

// recorder records a response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// statuses are the HTTP statuses of a page for the API's error codes.
var statuses = map[connect.Code]int{
	connect.CodeInvalidArgument:    http.StatusBadRequest,
	connect.CodeOutOfRange:         http.StatusBadRequest,
	connect.CodeUnauthenticated:    http.StatusUnauthorized,
	connect.CodePermissionDenied:   http.StatusForbidden,
	connect.CodeNotFound:           http.StatusNotFound,
	connect.CodeFailedPrecondition: http.StatusConflict,
	connect.CodeAlreadyExists:      http.StatusConflict,
	connect.CodeAborted:            http.StatusConflict,
	connect.CodeUnavailable:        http.StatusServiceUnavailable,
	connect.CodeDeadlineExceeded:   http.StatusGatewayTimeout,
	connect.CodeUnimplemented:      http.StatusNotImplemented,
}

func status(err error) int {
	if s, ok := statuses[connect.CodeOf(err)]; ok {
		return s
	}
	return http.StatusInternalServerError
}

func unauthenticated(err error) bool { return connect.CodeOf(err) == connect.CodeUnauthenticated }
