package api

import (
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// A page of the log, every field of an entry, and pages that are refused.
func TestListAudit(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewAuditServiceClient(f.http, f.url)
	list := func(before int64, limit int32) (*controlv1.ListAuditResponse, error) {
		answer, err := client.ListAudit(t.Context(), connect.NewRequest(&controlv1.ListAuditRequest{BeforeId: before, Limit: limit}))
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	}
	for _, page := range []struct {
		before int64
		limit  int32
		asked  [2]int64
	}{{0, 0, [2]int64{math.MaxInt64, 50}}, {7, 500, [2]int64{7, 500}}} {
		answer, err := list(page.before, page.limit)
		if err != nil || f.auditAsked != page.asked {
			t.Fatalf("%v, asked for %v", err, f.auditAsked)
		}
		wantText(t, answer, &controlv1.ListAuditResponse{Entries: []*controlv1.AuditEntry{{
			Id: 9, AtMs: at.UnixMilli(), Actor: "ann", Reason: "r", Action: "cleanup.pause", Subject: "job\uFFFD", Before: "{}", After: "[]",
		}}})
	}
	for says, page := range map[string][2]int64{"limit is 501 (1 to 500": {0, 501}, "before_id is -1": {-1, 1}} {
		if _, err := list(page[0], int32(page[1])); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
