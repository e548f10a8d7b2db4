package rls

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// violationsMax bounds the number of faults in the error about a call.
const violationsMax = 16

// EntriesMax bounds the entries of all descriptors of a call together.
const EntriesMax = 10 * dataplane.BatchMax

// faults are the errors of a call that the configuration of its proxy causes, for example a wrong domain or limit.
// Keys, values and hits, which a limited caller can choose, must never cause an error: proxies may let a request pass
// if the call returns an error, and then none of its descriptors would be charged.
type faults []*errdetails.BadRequest_FieldViolation

func (f *faults) add(field, format string, args ...any) {
	if len(*f) < violationsMax {
		*f = append(*f, &errdetails.BadRequest_FieldViolation{Field: field, Description: fmt.Sprintf(format, args...)})
	}
}

// err returns nil, or an error with code invalid_argument. The error has all faults in its message for people, and as a
// google.rpc.BadRequest for programs.
func (f *faults) err() error {
	if len(*f) == 0 {
		return nil
	}
	words := make([]string, len(*f))
	for i, v := range *f {
		words[i] = v.Field + " " + v.Description
	}
	refusal := status.New(codes.InvalidArgument, strings.Join(words, "; "))
	if detailed, err := refusal.WithDetails(&errdetails.BadRequest{FieldViolations: *f}); err == nil {
		refusal = detailed
	}
	return refusal.Err()
}

func check(call *rlsv3.RateLimitRequest) error {
	var found faults
	found.check(call, dataplane.BatchMax)
	return found.err()
}

// check checks a call, which can have at most `most` descriptors.
func (f *faults) check(call *rlsv3.RateLimitRequest, most int) {
	switch n := len(call.GetDomain()); {
	case n == 0 || n > window.NamespaceBytesMax:
		f.add("domain", "is %d bytes long (1 to %d)", n, window.NamespaceBytesMax)
	case !utf8.ValidString(call.GetDomain()):
		f.add("domain", "is not UTF-8")
	}
	if n := len(call.GetDescriptors()); n == 0 || n > most {
		f.add("descriptors", "has %d items (1 to %d)", n, most)
	}
	entries := 0
	for i, d := range call.GetDescriptors() {
		entries += len(d.GetEntries())
		if o := d.GetLimit(); o != nil {
			if overrideDuration(o) == 0 {
				f.add(fmt.Sprintf("descriptors[%d].limit", i), "is per %d %s (1 second to 366 days)",
					multiplier(o), o.GetUnit())
			}
			if len(d.GetEntries()) == 0 {
				f.add(fmt.Sprintf("descriptors[%d].entries", i), "is empty, and there is a limit for it")
			}
		}
	}
	if entries > EntriesMax {
		f.add("descriptors", "have %d entries (0 to %d)", entries, EntriesMax)
	}
}

// override returns the limit that a descriptor carries. The caller must have called check.
func override(o *ratelimitv3.RateLimitDescriptor_RateLimitOverride) *Limit {
	return &Limit{
		limit:    int64(o.GetRequestsPerUnit()),
		duration: overrideDuration(o),
		onTheWire: &rlsv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: o.GetRequestsPerUnit(),
			Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(o.GetUnit()),
			UnitMultiplier:  o.GetUnitMultiplier(),
		},
	}
}

// overrideDuration returns 0 if the duration is missing, or longer than a window can be.
func overrideDuration(o *ratelimitv3.RateLimitDescriptor_RateLimitOverride) time.Duration {
	unit, n := unitDuration(int32(o.GetUnit())), multiplier(o)
	if unit == 0 || n == 0 || n > uint32(window.DurationMax/time.Second) || time.Duration(n) > window.DurationMax/unit {
		return 0
	}
	return time.Duration(n) * unit
}

func multiplier(o *ratelimitv3.RateLimitDescriptor_RateLimitOverride) uint32 {
	if o.GetUnitMultiplier() == nil {
		return 1
	}
	return o.GetUnitMultiplier().GetValue()
}
