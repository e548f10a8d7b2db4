package api

import (
	"cmp"
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// Retirements starts and controls retirements of tables. Errors wrap controlplane.ErrInvalid, ErrConflict, ErrNotFound,
// ErrUnavailable or the context's error. Implementations must be safe for concurrent use.
type Retirements interface {
	Start(ctx context.Context, table string, spec retire.Spec,
		by controlplane.By) (retire.Retirement, error)
	ApproveRename(ctx context.Context, table string, o retire.Order) (retire.Retirement, error)
	ApproveDrop(ctx context.Context, table string, o retire.Order) (retire.Retirement, error)
	Abort(ctx context.Context, table string, by controlplane.By) (retire.Retirement, error)
	Status(ctx context.Context, table string) (retire.Retirement, error)
	List(ctx context.Context, table string) ([]retire.Summary, error)
}

// retirementService implements the RPCs about the retirement of the old table.
type retirementService struct{ *service }

var _ controlv1connect.RetirementServiceHandler = retirementService{}

func (s retirementService) StartRetirement(ctx context.Context,
	req *connect.Request[controlv1.StartRetirementRequest]) (*connect.Response[controlv1.StartRetirementResponse], error) {
	spec := retirementSpec(req.Msg)
	if err := errors.Join(spec.Validate(), s.tellsApart(spec.Quorum)); err != nil {
		return nil, err
	}
	r, err := s.Retirements.Start(ctx, tableOf(req.Msg), spec, by(ctx))
	return answered(&controlv1.StartRetirementResponse{Retirement: retirementAnswer(r)}, err)
}

func (s retirementService) ApproveRename(ctx context.Context,
	req *connect.Request[controlv1.ApproveRenameRequest]) (*connect.Response[controlv1.ApproveRenameResponse], error) {
	r, err := approve(ctx, req.Msg, s.Retirements.ApproveRename)
	return answered(&controlv1.ApproveRenameResponse{Retirement: retirementAnswer(r)}, err)
}

func (s retirementService) ApproveDrop(ctx context.Context,
	req *connect.Request[controlv1.ApproveDropRequest]) (*connect.Response[controlv1.ApproveDropResponse], error) {
	r, err := approve(ctx, req.Msg, s.Retirements.ApproveDrop)
	return answered(&controlv1.ApproveDropResponse{Retirement: retirementAnswer(r)}, err)
}

// approve makes an approval of the evidence that a request names.
func approve(ctx context.Context, msg interface {
	GetTable() string
	GetEvidence() string
}, do func(context.Context, string, retire.Order) (retire.Retirement, error)) (r retire.Retirement, err error) {
	o := retire.Order{By: by(ctx), Evidence: msg.GetEvidence()}
	if err := o.Validate(); err != nil {
		return r, err
	}
	return do(ctx, tableOf(msg), o)
}

func (s retirementService) AbortRetirement(ctx context.Context,
	req *connect.Request[controlv1.AbortRetirementRequest]) (*connect.Response[controlv1.AbortRetirementResponse], error) {
	r, err := s.Retirements.Abort(ctx, tableOf(req.Msg), by(ctx))
	return answered(&controlv1.AbortRetirementResponse{Retirement: retirementAnswer(r)}, err)
}

func (s retirementService) RetirementStatus(ctx context.Context,
	req *connect.Request[controlv1.RetirementStatusRequest],
) (*connect.Response[controlv1.RetirementStatusResponse], error) {
	r, err := s.Retirements.Status(ctx, tableOf(req.Msg))
	if err != nil {
		return nil, err
	}
	answer := retirementAnswer(r)
	s.counting(ctx, answer.GetApprovals(), r.Needs())
	return connect.NewResponse(&controlv1.RetirementStatusResponse{Retirement: answer}), nil
}

func (s retirementService) ListRetirements(ctx context.Context,
	req *connect.Request[controlv1.ListRetirementsRequest]) (*connect.Response[controlv1.ListRetirementsResponse], error) {
	list, err := s.Retirements.List(ctx, tableOf(req.Msg))
	retirements := each(list, func(r retire.Summary) *controlv1.RetirementSummary {
		return &controlv1.RetirementSummary{Id: r.ID, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs,
			EndedAtMs: r.EndedMs, Phase: string(r.Phase), Why: valid(r.Why)}
	})
	return answered(&controlv1.ListRetirementsResponse{Retirements: retirements}, err)
}

func tableOf(msg interface{ GetTable() string }) string {
	return cmp.Or(msg.GetTable(), retire.Blocklist)
}

// retirementSpec reads a spec. Fields that it lacks have their default.
func retirementSpec(m *controlv1.StartRetirementRequest) retire.Spec {
	spec := retire.DefaultSpec()
	set(&spec.QuietMs, m.QuietMs)
	set(&spec.SoakMs, m.SoakMs)
	set(&spec.HealthWithinMs, m.HealthWithinMs)
	set(&spec.Approvers, m.Approvers)
	set(&spec.ApprovalTTLMs, m.ApprovalTtlMs)
	set(&spec.BatchRows, m.BatchRows)
	return spec
}

func retirementAnswer(r retire.Retirement) *controlv1.Retirement {
	e := r.Evidence
	answer := &controlv1.Retirement{
		Id: r.ID, Table: r.Table, Dated: r.Dated, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs,
		EndedAtMs: r.EndedMs, Phase: string(r.Phase), DueAtMs: r.DueMs,
		Why: valid(r.Why), Trouble: valid(r.Trouble), Waiting: valid(r.Waiting),
		QuietMs: r.Spec.QuietMs, SoakMs: r.Spec.SoakMs, RowsDeleted: r.RowsDeleted, LastWriteAtMs: r.LastWriteMs,
		Evidence: &controlv1.RetirementEvidence{
			AtMs: e.AtMs, Rows: e.Rows, LastExpiryMs: e.LastExpiryMs, QuietSinceMs: e.QuietSinceMs,
			HealthySinceMs: e.HealthySinceMs, Regions: int32(e.Regions), Nodes: int32(e.Nodes), HealthProblem: valid(e.Problem),
		},
		RenameApproval: retirementApproval(r.Rename), DropApproval: retirementApproval(r.Drop),
	}
	if r.Phase == retire.Awaiting || r.Phase == retire.AwaitingFinal {
		answer.Approvals = approvals(r.Spec.Quorum, r.Approvals, r.EvidenceHash())
	}
	answer.Events = each(r.Events, func(e controlplane.Event) *controlv1.RetirementEvent {
		return &controlv1.RetirementEvent{AtMs: e.AtMs, Actor: e.Actor, What: e.What, Text: valid(e.Text)}
	})
	return answer
}

func retirementApproval(a *retire.Decision) *controlv1.RetirementApproval {
	if a == nil {
		return nil
	}
	return &controlv1.RetirementApproval{Actor: a.Actor, Reason: a.Reason, AtMs: a.AtMs}
}
