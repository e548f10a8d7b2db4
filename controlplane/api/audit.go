package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

var _ controlv1connect.AuditServiceHandler = (*service)(nil)

func (s *service) ListAudit(ctx context.Context, req *connect.Request[controlv1.ListAuditRequest]) (*connect.Response[controlv1.ListAuditResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	records, err := controlplane.ListAudit(ctx, s.Audit, req.Msg.GetBeforeId(), int(req.Msg.GetLimit()))
	if err != nil {
		return nil, s.fail(ctx, "ListAudit", err)
	}
	answer := &controlv1.ListAuditResponse{}
	for _, r := range records {
		answer.Entries = append(answer.Entries, &controlv1.AuditEntry{
			Id: r.Row, AtMs: unixMs(r.At), Actor: valid(r.Actor), Action: valid(r.Action), Subject: valid(r.Subject),
			Reason: valid(r.Reason), Before: valid(r.Before), After: valid(r.After),
		})
	}
	return connect.NewResponse(answer), nil
}
