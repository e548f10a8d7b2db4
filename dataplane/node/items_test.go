package node

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane/node/rls"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Items are counted as they lie on the wire, at the bound and above it, on each wire.
func TestItemsAreCountedBeforeTheyAreDecoded(t *testing.T) {
	many := func(n int) []byte {
		b, _ := proto.Marshal(&weirv1.LimitManyRequest{Requests: make([]*weirv1.LimitRequest, n)})
		return b
	}
	call := func(descriptors, entries int) []byte {
		c := &rlsv3.RateLimitRequest{Domain: "d"}
		for range descriptors {
			c.Descriptors = append(c.Descriptors, &ratelimitv3.RateLimitDescriptor{Entries: make([]*ratelimitv3.RateLimitDescriptor_Entry, entries)})
		}
		b, _ := proto.Marshal(c)
		return b
	}
	text := func(n int) []byte {
		return []byte(`{"requests":[` + strings.Repeat(`{"identifier":"{\"{"},`, n-1) + `{}]}`)
	}
	limitMany := routeOf(weirv1connect.RateLimitServiceLimitManyProcedure).Check
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"a batch by gRPC", checkMessage(weirv1connect.RateLimitServiceLimitManyProcedure, many(1000)), ""},
		{"a longer one by gRPC", checkMessage(weirv1connect.RateLimitServiceLimitManyProcedure, many(1001)), "requests has 1001 items (1 to 1000)"},
		{"a batch by protobuf", limitMany("application/proto", many(1000)), ""},
		{"a longer one by protobuf", limitMany("application/proto", many(1001)), "requests has 1001 items (1 to 1000)"},
		{"a batch by JSON", limitMany("application/json", text(1000)), ""},
		{"a longer one by JSON", limitMany("application/json", text(1001)), "requests has 1001 items (1 to 1000)"},
		{"descriptors", checkMessage(rls.Procedure, call(1000, 10)), ""},
		{"more descriptors", checkMessage(rls.Procedure, call(1001, 0)), "descriptors has 1001 items (1 to 1000)"},
		{"more entries", checkMessage(rls.Procedure, call(1, rls.EntriesMax+1)), "descriptors have 10001 entries (0 to 10000)"},
		{"a report's descriptors", checkMessage(rls.ReportProcedure, call(1001, 0)), "descriptors has 1001 items (1 to 1000)"},
		{"a check's entries", checkMessage(rls.CheckProcedure, call(1, rls.EntriesMax+1)), "descriptors have 10001 entries (0 to 10000)"},
		{"a reservation's descriptors", checkMessage(rls.ReserveProcedure, call(32, 1)), ""},
		{"more of them", checkMessage(rls.ReserveProcedure, call(33, 1)), "descriptors has 33 items (1 to 32)"},
		{"a commit's", checkMessage(rls.CommitProcedure, call(33, 1)), "descriptors has 33 items (1 to 32)"},
		{"a commit with long headers", checkMessage(rls.CommitProcedure, make([]byte, reserveBytesMax+1)), ""},
		{"a long single", checkMessage(weirv1connect.RateLimitServiceLimitProcedure, make([]byte, bodyBytesMax+1)), "body is longer than 16384 bytes"},
		{"no message", checkMessage(rls.Procedure, []byte("\xff\xff")), ""},
	} {
		if step.err == nil && step.want != "" || step.err != nil && step.err.Error() != step.want {
			t.Errorf("%s: %v, want %q", step.name, step.err, step.want)
		}
		if step.err != nil && connect.CodeOf(refusedBy(step.err)) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", step.name, connect.CodeOf(refusedBy(step.err)))
		}
	}
}
