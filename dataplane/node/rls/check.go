package rls

import (
	"fmt"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// violationsMax bounds the error about a call in which everything is wrong.
const violationsMax = 16

// EntriesMax bounds the entries of all descriptors of a call together.
const EntriesMax = 10 * dataplane.BatchMax

// check is nil, or invalid_argument with all violations in its message for people, and
// as a google.rpc.BadRequest for programs.
func check(call *rlsv3.RateLimitRequest) error {
	var found []*errdetails.BadRequest_FieldViolation
	violation := func(field, format string, args ...any) {
		if len(found) < violationsMax {
			found = append(found, &errdetails.BadRequest_FieldViolation{Field: field, Description: fmt.Sprintf(format, args...)})
		}
	}
	if n := len(call.GetDomain()); n == 0 || n > window.NamespaceBytesMax {
		violation("domain", "is %d bytes long (1 to %d)", n, window.NamespaceBytesMax)
	}
	if n := len(call.GetDescriptors()); n == 0 || n > dataplane.BatchMax {
		violation("descriptors", "has %d items (1 to %d)", n, dataplane.BatchMax)
	}
	entries := 0
	for i, d := range call.GetDescriptors() {
		entries += len(d.GetEntries())
		if d.GetLimit() == nil && d.GetHitsAddend() == nil {
			continue // nothing in it has a bound
		}
		if hits := d.GetHitsAddend().GetValue(); hits > window.LimitMax {
			violation(fmt.Sprintf("descriptors[%d].hits_addend", i), "is %d (0 to %d)", hits, int64(window.LimitMax))
		}
		if o := d.GetLimit(); o != nil {
			if overrideDuration(o) == 0 {
				violation(fmt.Sprintf("descriptors[%d].limit", i), "is per %d %s (1 second to 366 days)",
					multiplier(o), o.GetUnit())
			}
			if len(d.GetEntries()) == 0 {
				violation(fmt.Sprintf("descriptors[%d].entries", i), "is empty, and there is a limit for it")
			}
		}
	}
	if entries > EntriesMax {
		violation("descriptors", "have %d entries (0 to %d)", entries, EntriesMax)
	}
	if len(found) == 0 {
		return nil
	}
	words := make([]string, len(found))
	for i, v := range found {
		words[i] = v.Field + " " + v.Description
	}
	refusal := status.New(codes.InvalidArgument, strings.Join(words, "; "))
	if detailed, err := refusal.WithDetails(&errdetails.BadRequest{FieldViolations: found}); err == nil {
		refusal = detailed
	}
	return refusal.Err()
}

// override is the limit that a descriptor carries itself; check has been there.
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

// overrideDuration is 0 where it is none, or longer than a window may be.
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
