package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/window"
)

// The limiter validates requests too. The validation here returns better errors: with the field's name on the wire, its
// place in a batch, milliseconds as they were sent (a time.Duration would have overflowed), and all faults together.

const (
	durationMsMin = int64(window.DurationMin / time.Millisecond)
	durationMsMax = int64(window.DurationMax / time.Millisecond)

	// violationsMax bounds the number of faults in the error about a batch.
	violationsMax = 16
)

// asking has the fields that all calls about a key share.
type asking interface {
	GetWorkspace() string
	GetNamespace() string
	GetIdentifier() string
	GetLimit() int64
	GetDurationMs() int64
	GetCost() int64
	GetZeroCost() bool
}

func readLimit(m asking) (dataplane.Request, error) {
	var found violations
	request := found.readLimit(m)
	return request, found.err()
}

// readRefund leaves out the limit, which does not matter.
func readRefund(m *weirv1.RefundRequest) (dataplane.Request, error) {
	var found violations
	request := found.readKey(m)
	found.readCost(m, &request)
	return request, found.err()
}

func readLimitMany(m *weirv1.LimitManyRequest) ([]dataplane.Request, error) {
	var found violations
	items := m.GetRequests()
	switch n := len(items); {
	case n == 0:
		found.add("requests", "is empty (1 to %d items)", dataplane.BatchMax)
	case n > dataplane.BatchMax:
		found.add("requests", "has %d items (1 to %d)", n, dataplane.BatchMax)
		return nil, found.err()
	}
	requests := make([]dataplane.Request, len(items))
	for i, item := range items {
		requests[i] = found.readItem(i, item)
	}
	return requests, found.err()
}

// violations collects the faults of a message. It allocates nothing if there are none.
type violations []*errdetails.BadRequest_FieldViolation

// readItem reads requests[i]. The path is built only for an invalid item.
func (v *violations) readItem(i int, m *weirv1.LimitRequest) dataplane.Request {
	var found violations
	request := found.readLimit(m)
	for _, f := range found {
		if len(*v) == violationsMax {
			break
		}
		f.Field = fmt.Sprintf("requests[%d].%s", i, f.Field)
		*v = append(*v, f)
	}
	return request
}

func (v *violations) readLimit(m asking) dataplane.Request {
	request := v.readKey(m)
	request.Limit = v.amount("limit", m.GetLimit())
	v.readCost(m, &request)
	return request
}

func (v *violations) readCost(m asking, r *dataplane.Request) {
	r.Cost, r.ZeroCost = v.amount("cost", m.GetCost()), m.GetZeroCost()
	if r.ZeroCost && r.Cost != 0 {
		v.add("zero_cost", "is set together with a cost of %d (set one of them)", r.Cost)
	}
}

func (v *violations) readKey(m asking) dataplane.Request {
	v.name("workspace", m.GetWorkspace(), window.WorkspaceBytesMax)
	v.name("namespace", m.GetNamespace(), window.NamespaceBytesMax)
	identifier := v.identifier(m.GetIdentifier())
	durationMs := m.GetDurationMs()
	if durationMs < durationMsMin || durationMs > durationMsMax {
		v.add("duration_ms", "is %d (%d to %d)", durationMs, durationMsMin, durationMsMax)
	}
	return dataplane.Request{
		Workspace:  m.GetWorkspace(),
		Namespace:  m.GetNamespace(),
		Identifier: identifier,
		Duration:   time.Duration(durationMs) * time.Millisecond,
	}
}

func (v *violations) name(field, value string, bytesMax int) {
	if value == "" {
		v.add(field, "is empty (1 to %d bytes)", bytesMax)
	}
	v.bytes(field, value, 1, bytesMax)
}

// identifier returns the identifier under which a name is counted. Names of any length are
// accepted, because a limited caller may have chosen the name. An empty name is an error, because
// the field was probably left out.
func (v *violations) identifier(name string) string {
	if name == "" {
		v.add("identifier", "is empty (1 byte or more)")
		return ""
	}
	return window.BoundIdentifier(name)
}

// bytes bounds an optional text. least is only for the message.
func (v *violations) bytes(field, value string, least, most int) {
	if len(value) > most {
		v.add(field, "is %d bytes long (%d to %d bytes)", len(value), least, most)
	}
}

func (v *violations) amount(field string, value int64) int64 {
	if value < 0 || value > window.LimitMax {
		v.add(field, "is %d (0 to %d)", value, int64(window.LimitMax))
	}
	return value
}

func (v *violations) add(field, format string, args ...any) {
	*v = append(*v, &errdetails.BadRequest_FieldViolation{
		Field:       field,
		Description: fmt.Sprintf(format, args...),
	})
}

// err returns nil, or invalid_argument with all violations in its message for people,
// and as a google.rpc.BadRequest for programs.
func (v violations) err() error {
	if len(v) == 0 {
		return nil
	}
	var message strings.Builder
	for i, f := range v {
		if i > 0 {
			message.WriteString("; ")
		}
		message.WriteString(f.Field + " " + f.Description)
	}
	err := connect.NewError(connect.CodeInvalidArgument, errors.New(message.String()))
	if detail, detailErr := connect.NewErrorDetail(&errdetails.BadRequest{FieldViolations: v}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}
