package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

var _ controlv1connect.AuditServiceHandler = (*service)(nil)

func (s *service) ListAudit(ctx context.Context,
	req *connect.Request[controlv1.ListAuditRequest]) (*connect.Response[controlv1.ListAuditResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	filter := controlplane.AuditFilter{
		Actor: req.Msg.GetActor(), Workspace: req.Msg.GetWorkspace(), Namespace: req.Msg.GetNamespace(),
		Action: req.Msg.GetAction(), Subject: req.Msg.GetSubject(), SinceMs: req.Msg.GetSinceMs(),
		UntilMs: req.Msg.GetUntilMs(),
	}
	records, searchedTo, err := controlplane.SearchAudit(ctx, s.Audit, filter, req.Msg.GetBeforeId(),
		int(req.Msg.GetLimit()))
	if err != nil {
		return nil, s.fail(ctx, "ListAudit", err)
	}
	answer := &controlv1.ListAuditResponse{SearchedToId: searchedTo}
	for _, r := range records {
		answer.Entries = append(answer.Entries, &controlv1.AuditEntry{
			Id: r.Row, AtMs: unixMs(r.At), Actor: valid(r.Actor), Action: valid(r.Action), Subject: valid(r.Subject),
			Reason: valid(r.Reason), Before: valid(r.Before), After: valid(r.After),
		})
	}
	return connect.NewResponse(answer), nil
}
