package api

import (
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/auditchain"
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
	}{{0, 0, [2]int64{math.MaxInt64, 50}}, {7, 500, [2]int64{7, 100}}} {
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

// A page of the largest entries ends early and returns where the next page begins, so that a response takes a bounded
// part of the port's memory. Consecutive pages have each entry once.
func TestListAuditIsBoundedInBytes(t *testing.T) {
	f := serve(t)
	const entries = 100
	largest := audit.Entry{
		By:     controlplane.By{Actor: strings.Repeat("a", controlplane.ActorBytesMax), Reason: strings.Repeat("r", controlplane.ReasonBytesMax)},
		Action: strings.Repeat("b", audit.ActionBytesMax), Subject: strings.Repeat("s", audit.SubjectBytesMax),
		Before: strings.Repeat("x", audit.StateBytesMax), After: strings.Repeat("y", audit.StateBytesMax),
	}
	for row := int64(entries); row > 0; row-- {
		f.audited = append(f.audited, audit.Record{Row: row, At: at, Entry: largest})
	}
	client := controlv1connect.NewAuditServiceClient(f.http, f.url)
	for _, req := range []*controlv1.ListAuditRequest{{Limit: 500}, {Limit: 500, Actor: largest.Actor}} {
		next, pages := int64(entries), 0
		for more := true; more; pages++ {
			answer, err := client.ListAudit(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			if n := proto.Size(answer.Msg); n > audit.PageBytesMax+1<<16 || len(answer.Msg.GetEntries()) == 0 {
				t.Fatalf("%d bytes, %d entries", n, len(answer.Msg.GetEntries()))
			}
			for _, e := range answer.Msg.GetEntries() {
				if e.GetId() != next {
					t.Fatalf("entry %d, want %d", e.GetId(), next)
				}
				next--
			}
			req.BeforeId = answer.Msg.GetSearchedToId()
			if more = req.GetBeforeId() > 0; more && req.GetBeforeId() != next+1 {
				t.Errorf("go on before %d, want %d", req.GetBeforeId(), next+1)
			}
		}
		if next != 0 || pages != 4 {
			t.Errorf("%d entries left after %d pages", next, pages)
		}
	}
}

// A page of the log with its chain: every column of an entry, bytes that are not UTF-8 too, and pages that are refused.
func TestExportAudit(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewAuditServiceClient(f.http, f.url)
	export := func(after int64, limit int32) (*controlv1.ExportAuditResponse, error) {
		answer, err := client.ExportAudit(t.Context(), connect.NewRequest(&controlv1.ExportAuditRequest{AfterId: after, Limit: limit}))
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	}
	old := auditchain.Entry{ID: 1, AtMs: 5, Actor: "ann"}
	e := auditchain.Entry{ID: 3, AtMs: 7, Actor: "ann", Action: "a.b", Subject: "s\xff", Reason: "r", Before: "{}", After: "[]", WriteID: "w"}
	l := auditchain.End{ID: 2, Hash: auditchain.Hash{1}}.Append(&e)
	f.links = audit.Links{
		Links: []audit.Link{{Entry: old}, {Entry: e, Link: l}}, First: 2, End: auditchain.End{ID: 3, Hash: l.Hash},
	}
	chain := &controlv1.AuditChain{FirstId: 2, LastId: 3, LastHash: l.Hash.String()}
	first := &controlv1.AuditLink{Entry: &controlv1.AuditEntry{Id: 1, AtMs: 5, Actor: "ann"}}
	second := &controlv1.AuditLink{
		Entry:   &controlv1.AuditEntry{Id: 3, AtMs: 7, Actor: "ann", Action: "a.b", Subject: "s\uFFFD", Reason: "r", Before: "{}", After: "[]"},
		WriteId: "w", Subject: []byte("s\xff"), Follows: 2, PreviousHash: "01" + strings.Repeat("00", 31), Hash: l.Hash.String(),
	}
	for _, page := range []struct {
		after int64
		limit int32
		asked [2]int64
		want  *controlv1.ExportAuditResponse
	}{
		{0, 0, [2]int64{0, 201}, &controlv1.ExportAuditResponse{Links: []*controlv1.AuditLink{first, second}, Chain: chain}},
		{7, 1, [2]int64{7, 2}, &controlv1.ExportAuditResponse{Links: []*controlv1.AuditLink{first}, HasMore: true, Chain: chain}},
	} {
		answer, err := export(page.after, page.limit)
		if err != nil || f.auditAsked != page.asked {
			t.Fatalf("%v, asked for %v", err, f.auditAsked)
		}
		wantText(t, answer, page.want)
	}
	for says, page := range map[string][2]int64{"limit is 201 (1 to 200": {0, 201}, "limit is -1": {0, -1}, "after_id is -1": {-1, 1}} {
		if _, err := export(page[0], int32(page[1])); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
