package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Bounds of a body, framing included, and of the message it unpacks to. The longest names make
// 0.8 KB a request in protobuf's own form, and 0.9 KB in JSON that escapes nothing.
const (
	bodyBytesMax      = 16 << 10  // a single request
	reserveBytesMax   = 40 << 10  // Reserve: 32 of the longest requests
	leasesBytesMax    = 160 << 10 // Renew and Release: 100 of the longest leases
	batchBodyBytesMax = 1 << 20   // LimitMany in JSON: 1000 of the longest requests
	messageBytesMax   = 768 << 10 // LimitMany and ShouldRateLimit in protobuf's form: as many
	probeBytesMax     = 1 << 10   // health and reflection: a service's name
)

// Memory that all calls of a kind can hold together. A single caller can hold half of it.
const (
	callsMemoryBytes  = 64 << 20
	streamMemoryBytes = 128 << 20
	probeMemoryBytes  = 16 << 20 // separate, so that a busy node still answers probes
)

// An open stream counts as so many bytes. On the port for gRPC it may keep a message of any length waiting, and on the
// port for HTTP as much as HTTP/2 lets it send ahead.
const (
	grpcStreamBytes = bounded.CallBytes + messageBytesMax
	httpStreamBytes = bounded.CallBytes + streamWindowBytes
)

// begunMax is the number of calls that a port begins for one address. Memory, with its waiting calls, bounds fewer
// calls; the rest is room for calls that are about to be rejected.
const begunMax = 1536

// bounds are shared by the callers of all ports.
type bounds struct {
	callers bounded.Callers
	calls   *bounded.Memory
	streams *bounded.Memory
	probes  *bounded.Memory
	refused map[bounded.Bound]prometheus.Counter
}

func newBounds(m *metrics) *bounds {
	return &bounds{
		calls:   bounded.NewMemory(bounded.Calls, callsMemoryBytes),
		streams: bounded.NewMemory(bounded.Streams, streamMemoryBytes),
		probes:  bounded.NewMemory(bounded.Probes, probeMemoryBytes),
		refused: m.refused,
	}
}

// listen bounds a port's connections.
func (b *bounds) listen(l net.Listener, most int) net.Listener {
	return bounded.Listen(l, &b.callers, most, b.refused[bounded.BoundConnections].Inc)
}

// count counts a refusal, if err is a refusal.
func (b *bounds) count(err error) {
	if refusal, ok := errors.AsType[*bounded.Refusal](err); ok {
		b.countBound(refusal.Bound)
	}
}

func (b *bounds) countBound(bound bounded.Bound) { b.refused[bound].Inc() }

// settle gives memory back that calls held and no longer hold.
func (b *bounds) settle() {
	for _, m := range []*bounded.Memory{b.calls, b.streams, b.probes} {
		if m.Settle() {
			return // for all
		}
	}
}

// begin bounds the number of calls that an address begins.
func (b *bounds) begin(kind bounded.Kind, next http.Handler) http.Handler {
	return bounded.Begin(kind, begunMax, b.countBound, next)
}

// probe bounds a handler for probes. Calls in flight do not use up its memory.
func (b *bounds) probe(next http.Handler) http.Handler {
	return timed(writeTimeout, &bounded.Handler{
		Next:    next,
		Memory:  b.probes,
		Route:   func(*http.Request) bounded.Route { return bounded.Route{Bytes: probeBytesMax} },
		Refused: b.countBound,
	})
}

// listed is the list in a message: its name, its field in protobuf's form, and how many items it may have.
type listed struct {
	name     string
	field    protowire.Number
	most     int
	bytesMax int // of the message in protobuf's form
}

// lists are in the messages of these procedures. All other messages are short.
var lists = map[string]listed{
	weirv1connect.RateLimitServiceLimitManyProcedure: {"requests", 1, dataplane.BatchMax, messageBytesMax},
	weirv1connect.RateLimitServiceReserveProcedure:   {"requests", 2, dataplane.ReservedMax, reserveBytesMax},
	weirv1connect.RateLimitServiceRenewProcedure:     {"leases", 1, dataplane.LeaseTokensMax, leasesBytesMax},
	weirv1connect.RateLimitServiceReleaseProcedure:   {"leases", 1, dataplane.LeaseTokensMax, leasesBytesMax},

	rls.Procedure:        {"descriptors", 2, dataplane.BatchMax, messageBytesMax},
	rls.CheckProcedure:   {"descriptors", 2, dataplane.BatchMax, messageBytesMax},
	rls.ReportProcedure:  {"descriptors", 2, dataplane.BatchMax, messageBytesMax},
	rls.ReserveProcedure: {"descriptors", 2, dataplane.ReservedMax, messageBytesMax},
	rls.CommitProcedure:  {"descriptors", 2, dataplane.ReservedMax, messageBytesMax},
}

// routeOf bounds a call by its path.
func routeOf(procedure string) bounded.Route {
	l, ok := lists[procedure]
	switch {
	case procedure == streamProcedure: // of each message; checkStreamed looks at them
		return bounded.Route{Bytes: reserveBytesMax}
	case !ok:
		return bounded.Route{Bytes: bodyBytesMax}
	case l.bytesMax == messageBytesMax:
		l.bytesMax = batchBodyBytesMax // JSON is longer
	}
	return bounded.Route{Bytes: int64(l.bytesMax), Check: func(contentType string, message []byte) error {
		switch {
		case !strings.Contains(contentType, "json"):
			return checkMessage(procedure, message)
		case l.name == "leases": // they have no commas
			return checkItems(l.name, bytes.Count(message, []byte{','}), l.most)
		}
		return checkItems(l.name, ObjectsIn(message)-1, l.most)
	}}
}

// checkMessage checks a message in protobuf's form.
func checkMessage(procedure string, message []byte) error {
	l, ok := lists[procedure]
	if most := cmp.Or(l.bytesMax, bodyBytesMax); len(message) > most {
		return tooLong(most)
	}
	if !ok {
		return nil
	}
	if err := checkItems(l.name, FieldsIn(message, l.field), l.most); err != nil || l.name != "descriptors" {
		return err
	}
	if n := NestedIn(message, l.field, 1); n > rls.EntriesMax {
		return &bounded.Refusal{Bound: bounded.BoundItems, Message: fmt.Sprintf("descriptors have %d entries (0 to %d)", n,
			rls.EntriesMax)}
	}
	return nil
}

// checkStreamed checks a message of LimitStream before it is decoded, on every wire, because the calls in it have the
// bounds of other calls. Field 2 is the message of Reserve.
func checkStreamed(codec string, message []byte) error {
	items := 0
	if codec == "json" {
		items = max(0, ObjectsIn(message)-2)
	} else {
		items = NestedIn(message, 2, 2)
	}
	switch n := len(message); {
	case n > reserveBytesMax:
		return tooLong(reserveBytesMax)
	case n > bodyBytesMax && items == 0:
		return tooLong(bodyBytesMax)
	}
	return checkItems("requests", items, dataplane.ReservedMax)
}

func tooLong(bytesMax int) error {
	return &bounded.Refusal{Bound: bounded.BoundBody, Message: fmt.Sprintf("body is longer than %d bytes", bytesMax)}
}

// checkItems returns the error that validation would return if it decoded a list that is too long.
func checkItems(field string, n, most int) error {
	if n <= most {
		return nil
	}
	return &tooMany{field, n, most}
}

// tooMany is a refusal whose field programs can read.
type tooMany struct {
	field   string
	n, most int
}

func (t *tooMany) Error() string {
	return fmt.Sprintf("%s has %d items (1 to %d)", t.field, t.n, t.most)
}

func (t *tooMany) Unwrap() error {
	return &bounded.Refusal{Bound: bounded.BoundItems, Message: t.Error()}
}

// refusedBy returns the error that a call gets for a bound's refusal, or for a body that could not be read.
func refusedBy(err error) *connect.Error {
	var many *tooMany
	var refusal *bounded.Refusal
	var coded *connect.Error
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &many):
		var found violations
		found.add(many.field, "has %d items (1 to %d)", many.n, many.most)
		_ = errors.As(found.err(), &coded)
		return coded
	case errors.As(err, &refusal) && refusal.Shed():
		return tryLater(connect.CodeUnavailable, err)
	case refusal != nil && refusal.Bound == bounded.BoundTime:
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(bodyCode(err), err)
}

// retryInfo is for clients that read details of errors, as gRPC's do. They find no Retry-After on the port for gRPC.
var retryInfo = func() *connect.ErrorDetail {
	detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(bounded.RetryAfter)})
	if err != nil {
		panic(err) // a constant message can be written
	}
	return detail
}()

// tryLater returns an error that has bounded.RetryAfter as Retry-After and as google.rpc.RetryInfo.
func tryLater(code connect.Code, err error) *connect.Error {
	later := connect.NewError(code, err)
	later.Meta().Set("Retry-After", bounded.RetryAfterSeconds)
	later.AddDetail(retryInfo)
	return later
}
