package api

import (
	"context"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/auditchain"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// auditService implements the RPCs about the audit log.
type auditService struct{ *service }

var _ controlv1connect.AuditServiceHandler = auditService{}

func (s auditService) ListAudit(ctx context.Context,
	req *connect.Request[controlv1.ListAuditRequest]) (*connect.Response[controlv1.ListAuditResponse], error) {
	filter := audit.Filter{
		Actor: req.Msg.GetActor(), Workspace: req.Msg.GetWorkspace(), Namespace: req.Msg.GetNamespace(),
		Action: req.Msg.GetAction(), Subject: req.Msg.GetSubject(), SinceMs: req.Msg.GetSinceMs(),
		UntilMs: req.Msg.GetUntilMs(),
	}
	records, searchedTo, err := audit.Search(ctx, s.Audit, filter, req.Msg.GetBeforeId(), int(req.Msg.GetLimit()))
	entries := each(records, func(r audit.Record) *controlv1.AuditEntry {
		return &controlv1.AuditEntry{
			Id: r.Row, AtMs: unixMs(r.At), Actor: valid(r.Actor), Action: valid(r.Action), Subject: valid(r.Subject),
			Reason: valid(r.Reason), Before: valid(r.Before), After: valid(r.After),
		}
	})
	return answered(&controlv1.ListAuditResponse{SearchedToId: searchedTo, Entries: entries}, err)
}

func (s auditService) ExportAudit(ctx context.Context,
	req *connect.Request[controlv1.ExportAuditRequest]) (*connect.Response[controlv1.ExportAuditResponse], error) {
	page, err := audit.Export(ctx, s.Audit, req.Msg.GetAfterId(), int(req.Msg.GetLimit()))
	return answered(&controlv1.ExportAuditResponse{
		HasMore: page.More, Links: each(page.Links, linkMessage),
		Chain: &controlv1.AuditChain{FirstId: int64(page.First), LastId: int64(page.End.ID),
			LastHash: hashText(page.End.Hash)},
	}, err)
}

func linkMessage(l audit.Link) *controlv1.AuditLink {
	e := &l.Entry
	msg := &controlv1.AuditLink{
		Entry: &controlv1.AuditEntry{
			Id: int64(e.ID), AtMs: int64(e.AtMs), Actor: valid(e.Actor), Action: valid(e.Action), Subject: valid(e.Subject),
			Reason: valid(e.Reason), Before: valid(e.Before), After: valid(e.After),
		},
		WriteId: valid(e.WriteID), Follows: int64(l.Follows), PreviousHash: hashText(l.Previous), Hash: hashText(l.Hash),
	}
	if !utf8.ValidString(e.Subject) {
		msg.Subject = []byte(e.Subject)
	}
	return msg
}

// hashText formats a hash. The zero hash is an empty text.
func hashText(h auditchain.Hash) string {
	if h == (auditchain.Hash{}) {
		return ""
	}
	return h.String()
}
