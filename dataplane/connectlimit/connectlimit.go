// Package connectlimit applies limits to calls of Connect, gRPC and gRPC-Web: an interceptor for handlers, with the
// policies and the fields of package httplimit.
//
// A denied call ends as resource_exhausted, or as unavailable if the limiter itself cannot decide. Its metadata has
// RateLimit-Policy, RateLimit and Retry-After. Its details have the same in Google's messages (QuotaFailure,
// RetryInfo), which gRPC clients read. A call that passes gets the fields with the header of its answer, unless its
// handler fails.
//
// The policies apply to a stream once, when it begins.
package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/dataplane/httplimit"
)

// New makes an interceptor for handlers. It does not apply to clients' calls. Errors are httplimit.New's. Config.Denied
// must be nil, because it has no effect here.
func New(config httplimit.Config) (connect.Interceptor, error) {
	if config.Denied != nil {
		return nil, errors.New("connectlimit: Config.Denied is for net/http alone")
	}
	guard, err := httplimit.New(config)
	if err != nil {
		return nil, err
	}
	return interceptor{policies{guard}.hold}, nil
}

// Message returns the message of a call, for quota and cost functions; nil for a stream, which has none yet, and for
// calls by other protocols.
func Message(c httplimit.Call) any {
	if c, ok := c.(call); ok {
		return c.message
	}
	return nil
}

// rest is the rest of a call or a stream: its handler.
type rest func(context.Context, connect.StreamingHandlerConn) (connect.AnyResponse, error)

// interceptor limits handlers, and does not apply to clients. hold runs the rest of a call or a stream, unless it is
// over a limit; stream is nil for a call.
type interceptor struct {
	hold func(ctx context.Context, of call, stream connect.StreamingHandlerConn, next rest) (connect.AnyResponse, error)
}

func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		return i.hold(ctx, call{ctx, request.Header(), request.Peer(), request.Spec(), request.Any()}, nil,
			func(ctx context.Context, _ connect.StreamingHandlerConn) (connect.AnyResponse, error) {
				return next(ctx, request)
			})
	}
}

func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		_, err := i.hold(ctx, call{ctx, stream.RequestHeader(), stream.Peer(), stream.Spec(), nil}, stream,
			func(ctx context.Context, stream connect.StreamingHandlerConn) (connect.AnyResponse, error) {
				return nil, next(ctx, stream)
			})
		return err
	}
}

func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

type policies struct{ guard *httplimit.Guard }

func (p policies) hold(ctx context.Context, of call, stream connect.StreamingHandlerConn,
	next rest) (connect.AnyResponse, error) {
	outcome := p.guard.Check(ctx, of)
	if !outcome.Allowed {
		return nil, refusal(outcome)
	}
	if stream != nil {
		outcome.WriteFields(stream.ResponseHeader())
	}
	answer, err := next(ctx, stream)
	if err == nil && stream == nil { // an error may be shared between calls: nothing is added to it
		outcome.WriteFields(answer.Header())
	}
	return answer, err
}

// call is Connect's call as an httplimit.Call.
type call struct {
	ctx     context.Context
	header  http.Header
	peer    connect.Peer
	spec    connect.Spec
	message any
}

func (c call) Context() context.Context { return c.ctx }
func (c call) Header() http.Header      { return c.header }
func (c call) RemoteAddr() string       { return c.peer.Addr }
func (c call) Path() string             { return c.spec.Procedure }

// refusal returns the error of a call that did not pass.
func refusal(o *httplimit.Outcome) *connect.Error {
	err := connect.NewError(code(o), errors.New(o.Explain()))
	o.WriteFields(err.Meta())
	if failure := quotaFailure(o); failure != nil {
		addDetail(err, failure)
	}
	if seconds, ok := o.RetryAfterSeconds(); ok {
		addDetail(err, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	}
	return err
}

func code(o *httplimit.Outcome) connect.Code {
	switch {
	case o.Fault == httplimit.FaultNoKey:
		return connect.CodeInvalidArgument
	case o.Fault != httplimit.FaultNone:
		return connect.CodeInternal
	case o.Unknown():
		return connect.CodeUnavailable
	}
	return connect.CodeResourceExhausted
}

// quotaFailure returns the violated policies, or nil if no quota is used up.
func quotaFailure(o *httplimit.Outcome) *errdetails.QuotaFailure {
	if code(o) != connect.CodeResourceExhausted {
		return nil
	}
	failure := new(errdetails.QuotaFailure)
	for _, name := range o.Violated() {
		failure.Violations = append(failure.Violations,
			&errdetails.QuotaFailure_Violation{Subject: name, Description: "the quota is used up"})
	}
	return failure
}

// retried adds the time until a call may be tried again to the metadata and the details.
func retried(err *connect.Error, wait time.Duration) *connect.Error {
	err.Meta().Set("Retry-After", strconv.FormatInt(httplimit.Seconds(wait), 10))
	addDetail(err, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	return err
}

func addDetail(err *connect.Error, message proto.Message) {
	if detail, detailErr := connect.NewErrorDetail(message); detailErr == nil {
		err.AddDetail(detail)
	}
}
