package main

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// An answer lets its call pass only if it allows all of the request. Otherwise a server that denies, or that leaves
// answers out, would look fast.
func TestVerdicts(t *testing.T) {
	yes, no := &weirv1.LimitResponse{Allowed: true, Limit: 10, Current: 1.5, Override: "user_*"}, &weirv1.LimitResponse{Limit: 10}
	many := func(allowed bool, responses ...*weirv1.LimitResponse) proto.Message {
		return &weirv1.LimitManyResponse{Allowed: allowed, Responses: responses}
	}
	statuses := func(overall rlsv3.RateLimitResponse_Code, codes ...rlsv3.RateLimitResponse_Code) proto.Message {
		m := &rlsv3.RateLimitResponse{OverallCode: overall}
		for _, code := range codes {
			m.Statuses = append(m.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: code, LimitRemaining: 1})
		}
		return m
	}
	const within, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	for _, step := range []struct {
		name   string
		read   verdict
		answer proto.Message
		want   bool
	}{
		{"allowed", limitAllowed, yes, true},
		{"denied", limitAllowed, no, false},
		{"two allowed", allAllowed(2), many(true, yes, yes), true},
		{"two denied", allAllowed(2), many(false, yes, no), false},
		{"one left out", allAllowed(2), many(true, yes), false},
		{"one denied", allAllowed(2), many(true, yes, no), false},
		{"within limits", withinLimits(2), statuses(within, within, within), true},
		{"over one limit", withinLimits(2), statuses(over, within, over), false},
		{"without a status", withinLimits(2), statuses(within, within), false},
		{"no statuses, none wanted", withinLimits(0), statuses(within), true},
		{"allowed in a stream", streamAllowed, &weirv1.LimitStreamResponse{Response: yes}, true},
		{"denied in a stream", streamAllowed, &weirv1.LimitStreamResponse{Response: no}, false},
		{"at fault in a stream", streamAllowed, &weirv1.LimitStreamResponse{Violations: []*weirv1.FieldViolation{{Field: "limit"}}}, false},
	} {
		message := encoded(step.answer)
		if got, err := step.read(message); err != nil || got != step.want {
			t.Errorf("%s: %v, error %v; want %v", step.name, got, err, step.want)
		}
		if len(message) == 0 {
			continue
		}
		if got, err := step.read(message[:len(message)-1]); got && err == nil {
			t.Errorf("%s, cut off: passes", step.name)
		}
	}
}
