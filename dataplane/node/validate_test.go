package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// fault is a valid request with one field out of its bounds, and the expected error.
type fault struct {
	spoil func(*weirv1.LimitRequest)
	want  string
}

var faults = []fault{
	{func(m *weirv1.LimitRequest) { m.Workspace = "" }, "workspace is empty (1 to 191 bytes)"},
	{func(m *weirv1.LimitRequest) { m.Workspace = strings.Repeat("w", 192) }, "workspace is 192 bytes long (1 to 191 bytes)"},
	{func(m *weirv1.LimitRequest) { m.Namespace = "" }, "namespace is empty (1 to 255 bytes)"},
	{func(m *weirv1.LimitRequest) { m.Namespace = strings.Repeat("n", 256) }, "namespace is 256 bytes long (1 to 255 bytes)"},
	{func(m *weirv1.LimitRequest) { m.Identifier = "" }, "identifier is empty (1 byte or more)"},
	{func(m *weirv1.LimitRequest) { m.Limit = -1 }, "limit is -1 (0 to 9007199254740991)"},
	{func(m *weirv1.LimitRequest) { m.Limit = 1 << 53 }, "limit is 9007199254740992 (0 to 9007199254740991)"},
	{func(m *weirv1.LimitRequest) { m.DurationMs = 0 }, "duration_ms is 0 (1000 to 31622400000)"},
	{func(m *weirv1.LimitRequest) { m.DurationMs = 999 }, "duration_ms is 999 (1000 to 31622400000)"},
	{func(m *weirv1.LimitRequest) { m.DurationMs = 31622400001 }, "duration_ms is 31622400001 (1000 to 31622400000)"},
	{func(m *weirv1.LimitRequest) { m.DurationMs = -60000 }, "duration_ms is -60000 (1000 to 31622400000)"},
	// 2^64 / 10^6 + 60000: as nanoseconds it overflows into about a minute.
	{func(m *weirv1.LimitRequest) { m.DurationMs = 18446744133710 }, "duration_ms is 18446744133710 (1000 to 31622400000)"},
	{func(m *weirv1.LimitRequest) { m.DurationMs = math.MaxInt64 }, "duration_ms is 9223372036854775807 (1000 to 31622400000)"},
}

var costFaults = []fault{
	{func(m *weirv1.LimitRequest) { m.Cost = -1 }, "cost is -1 (0 to 9007199254740991)"},
	{func(m *weirv1.LimitRequest) { m.Cost = 1 << 53 }, "cost is 9007199254740992 (0 to 9007199254740991)"},
	{func(m *weirv1.LimitRequest) { m.Cost, m.ZeroCost = 2, true }, "zero_cost is set together with a cost of 2 (set one of them)"},
}

// Every field out of its bounds is refused by name, bound and place, through every
// door, and nothing reaches the limiter.
func TestEveryFieldIsHeldToItsBound(t *testing.T) {
	h := start(t, scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision { panic("an invalid request got through") },
		peek:  func(context.Context, dataplane.Request) dataplane.Decision { panic("an invalid request got through") },
		many:  func(context.Context, []dataplane.Request) dataplane.Batch { panic("an invalid request got through") },
	})
	callers := map[string]caller{"gRPC by grpc-go": dialGRPC(t, h.Addr()), "gRPC by grpc-go on its own port": dialGRPC(t, h.GRPCAddr())}
	for _, door := range doors {
		callers[door.name] = connectCaller{door.open(t, h)}
	}
	for name, c := range callers {
		for _, fault := range slices.Concat(faults, costFaults) {
			bad := proto.CloneOf(askedOnTheWire)
			fault.spoil(bad)
			refused(t, name, c, weirv1connect.RateLimitServiceLimitProcedure, bad, fault.want)

			batch := &weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{askedOnTheWire, askedOnTheWire, askedOnTheWire, bad}}
			refused(t, name, c, weirv1connect.RateLimitServiceLimitManyProcedure, batch, "requests[3]."+fault.want)
		}
		for _, fault := range slices.Concat(faults, costFaults) {
			bad := proto.CloneOf(askedOnTheWire)
			fault.spoil(bad)
			peek := &weirv1.PeekRequest{Workspace: bad.Workspace, Namespace: bad.Namespace, Identifier: bad.Identifier, Limit: bad.Limit, DurationMs: bad.DurationMs, Cost: bad.Cost, ZeroCost: bad.ZeroCost}
			refused(t, name, c, weirv1connect.RateLimitServicePeekProcedure, peek, fault.want)
		}
		refused(t, name, c, weirv1connect.RateLimitServiceLimitManyProcedure, &weirv1.LimitManyRequest{}, "requests is empty (1 to 1000 items)")
		refused(t, name, c, weirv1connect.RateLimitServiceLimitManyProcedure, &weirv1.LimitManyRequest{Requests: slices.Repeat([]*weirv1.LimitRequest{askedOnTheWire}, 1001)}, "requests has 1001 items (1 to 1000)")
	}
}

// refused checks that a call ends with invalid_argument, exactly this message, and
// the same in the form for programs.
func refused(t *testing.T, door string, c caller, procedure string, request proto.Message, want string) {
	t.Helper()
	err := c.call(t.Context(), procedure, request, new(weirv1.LimitResponse))
	code, message, violations := readError(err)
	if code != connect.CodeInvalidArgument || message != want {
		t.Errorf("%s, %s: %v %q, want invalid_argument %q", door, procedure, code, message, want)
		return
	}
	if len(violations) != 1 || violations[0].Field+" "+violations[0].Description != want {
		t.Errorf("%s, %s: field violations %v, want one that says %q", door, procedure, violations, want)
	}
}

func readError(err error) (connect.Code, string, []*errdetails.BadRequest_FieldViolation) {
	var details []any
	var code connect.Code
	var message string
	if connectErr, ok := errors.AsType[*connect.Error](err); ok {
		code, message = connectErr.Code(), connectErr.Message()
		for _, d := range connectErr.Details() {
			value, _ := d.Value()
			details = append(details, value)
		}
	} else {
		s := status.Convert(err)
		code, message, details = connect.Code(s.Code()), s.Message(), s.Details()
	}
	for _, d := range details {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return code, message, bad.FieldViolations
		}
	}
	return code, message, nil
}

// The bounds themselves are inside.
func TestBoundsAreInclusive(t *testing.T) {
	h := start(t, scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
			return dataplane.Decision{Err: r.Validate(), Allowed: true} // the limiter's own bounds are the same
		},
		many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
			return dataplane.Batch{Allowed: true, Decisions: make([]dataplane.Decision, len(r))}
		},
	})
	for _, door := range doors {
		client := door.open(t, h)
		for _, m := range []*weirv1.LimitRequest{
			{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 0, DurationMs: 1000, ZeroCost: true},
			longest(),
		} {
			if _, err := client.Limit(t.Context(), connect.NewRequest(m)); err != nil {
				t.Errorf("%s: %v", door.name, err)
			}
		}
		response, err := client.LimitMany(t.Context(), connect.NewRequest(longestBatch(dataplane.BatchMax)))
		if err != nil || len(response.Msg.Responses) != dataplane.BatchMax {
			t.Errorf("%s: a full batch of the longest requests: %v", door.name, err)
		}
	}
}

// longest returns the longest valid request. JSON writes each byte of its names as six.
func longest() *weirv1.LimitRequest {
	return &weirv1.LimitRequest{
		Workspace:  strings.Repeat("\x01", 191),
		Namespace:  strings.Repeat("\x02", 255),
		Identifier: strings.Repeat("\x03", 255),
		Limit:      1<<53 - 1,
		DurationMs: (366 * 24 * time.Hour).Milliseconds(),
		Cost:       1<<53 - 1,
	}
}

// An error has all faults, up to a bound, so that it does not become too long.
func TestAllFaultsAreToldAtOnce(t *testing.T) {
	h := start(t, scripted{})
	client := doors[0].open(t, h)

	_, err := client.Limit(t.Context(), connect.NewRequest(&weirv1.LimitRequest{Workspace: "a", Limit: -1, DurationMs: 60_000}))
	_, message, violations := readError(err)
	want := "namespace is empty (1 to 255 bytes); identifier is empty (1 byte or more); limit is -1 (0 to 9007199254740991)"
	if message != want || len(violations) != 3 {
		t.Errorf("%q with %d violations, want %q", message, len(violations), want)
	}

	_, err = client.LimitMany(t.Context(), connect.NewRequest(&weirv1.LimitManyRequest{Requests: slices.Repeat([]*weirv1.LimitRequest{{}}, 1000)}))
	_, message, violations = readError(err)
	if !strings.HasPrefix(message, "requests[0].workspace is empty") || len(violations) != violationsMax {
		t.Errorf("%d violations, %q", len(violations), message)
	}
}

// Strings on the wire are UTF-8; bytes that are not are the caller's fault in any
// protocol.
func TestBytesThatAreNoUTF8(t *testing.T) {
	h := start(t, scripted{})
	const workspaceFFFE = "\x0a\x02\xff\xfe"
	for _, step := range []struct{ contentType, body string }{
		{"application/proto", workspaceFFFE},
		{"application/json", "{\"workspace\":\"\xff\xfe\"}"},
	} {
		status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, step.body, "Content-Type", step.contentType)
		if status != 400 || !strings.Contains(answer, "invalid UTF-8") {
			t.Errorf("%s: status %d %s", step.contentType, status, answer)
		}
	}
	frame := fmt.Sprintf("\x00\x00\x00\x00%c%s", len(workspaceFFFE), workspaceFFFE)
	_, header, _ := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, frame, "Content-Type", "application/grpc-web+proto")
	if header.Get("Grpc-Status") != "3" || !strings.Contains(header.Get("Grpc-Message"), "invalid UTF-8") {
		t.Errorf("gRPC-Web: %v", header)
	}
}
