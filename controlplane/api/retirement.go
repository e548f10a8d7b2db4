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

// Retirements are retirements of tables. Errors wrap controlplane.ErrInvalid, ErrConflict,
// ErrNotFound, ErrUnavailable or the context's. All methods may be called at once.
type Retirements interface {
	Start(ctx context.Context, table string, spec retire.Spec,
		by controlplane.By) (retire.Retirement, error)
	ApproveRename(ctx context.Context, table string, o retire.Order) (retire.Retirement, error)
	ApproveDrop(ctx context.Context, table string, o retire.Order) (retire.Retirement, error)
	Abort(ctx context.Context, table string, by controlplane.By) (retire.Retirement, error)
	Status(ctx context.Context, table string) (retire.Retirement, error)
	List(ctx context.Context, table string) ([]retire.Summary, error)
}

// retirementService implements the RPCs about the removal of the old table.
type retirementService struct{ *service }

var _ controlv1connect.RetirementServiceHandler = retirementService{}

func (s retirementService) StartRetirement(ctx context.Context,
	req *connect.Request[controlv1.StartRetirementRequest]) (*connect.Response[controlv1.StartRetirementResponse], error) {
	r, err := s.operateTable(ctx, "StartRetirement", req.Msg,
		func(ctx context.Context, table string, by controlplane.By) (retire.Retirement, error) {
			spec := retirementSpec(req.Msg)
			if err := errors.Join(spec.Validate(), s.tellsApart(spec.Quorum)); err != nil {
				return retire.Retirement{}, err
			}
			return s.Retirements.Start(ctx, table, spec, by)
		})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.StartRetirementResponse{Retirement: r}), nil
}

func (s retirementService) ApproveRename(ctx context.Context,
	req *connect.Request[controlv1.ApproveRenameRequest]) (*connect.Response[controlv1.ApproveRenameResponse], error) {
	r, err := s.operateTable(ctx, "ApproveRename", req.Msg, approving(req.Msg.GetEvidence(), s.Retirements.ApproveRename))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.ApproveRenameResponse{Retirement: r}), nil
}

func (s retirementService) ApproveDrop(ctx context.Context,
	req *connect.Request[controlv1.ApproveDropRequest]) (*connect.Response[controlv1.ApproveDropResponse], error) {
	r, err := s.operateTable(ctx, "ApproveDrop", req.Msg, approving(req.Msg.GetEvidence(), s.Retirements.ApproveDrop))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.ApproveDropResponse{Retirement: r}), nil
}

func (s retirementService) AbortRetirement(ctx context.Context,
	req *connect.Request[controlv1.AbortRetirementRequest]) (*connect.Response[controlv1.AbortRetirementResponse], error) {
	r, err := s.operateTable(ctx, "AbortRetirement", req.Msg, s.Retirements.Abort)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.AbortRetirementResponse{Retirement: r}), nil
}

// approving is an approval of evidence.
func approving(evidence string,
	approve func(context.Context, string, retire.Order) (retire.Retirement, error),
) func(context.Context, string, controlplane.By) (retire.Retirement, error) {
	return func(ctx context.Context, table string, by controlplane.By) (retire.Retirement, error) {
		o := retire.Order{By: by, Evidence: evidence}
		if err := o.Validate(); err != nil {
			return retire.Retirement{}, err
		}
		return approve(ctx, table, o)
	}
}

// tableMessage is an operator's request about a table.
type tableMessage interface {
	operatorMessage
	GetTable() string
}

func (s retirementService) operateTable(ctx context.Context, rpc string, msg tableMessage,
	do func(context.Context, string, controlplane.By) (retire.Retirement, error)) (*controlv1.Retirement, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	by, err := byOf(ctx, msg)
	if err != nil {
		return nil, s.fail(ctx, rpc, err)
	}
	r, err := do(ctx, tableOf(msg.GetTable()), by)
	if err != nil {
		return nil, s.fail(ctx, rpc, err)
	}
	return retirementAnswer(r), nil
}

func (s retirementService) RetirementStatus(ctx context.Context,
	req *connect.Request[controlv1.RetirementStatusRequest],
) (*connect.Response[controlv1.RetirementStatusResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	r, err := s.Retirements.Status(ctx, tableOf(req.Msg.GetTable()))
	if err != nil {
		return nil, s.fail(ctx, "RetirementStatus", err)
	}
	answer := retirementAnswer(r)
	s.counting(ctx, answer.GetApprovals(), r.Needs())
	return connect.NewResponse(&controlv1.RetirementStatusResponse{Retirement: answer}), nil
}

func (s retirementService) ListRetirements(ctx context.Context,
	req *connect.Request[controlv1.ListRetirementsRequest]) (*connect.Response[controlv1.ListRetirementsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := s.Retirements.List(ctx, tableOf(req.Msg.GetTable()))
	if err != nil {
		return nil, s.fail(ctx, "ListRetirements", err)
	}
	answer := &controlv1.ListRetirementsResponse{}
	for _, r := range list {
		answer.Retirements = append(answer.Retirements, &controlv1.RetirementSummary{
			Id: r.ID, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs, EndedAtMs: r.EndedMs,
			Phase: string(r.Phase), Why: valid(r.Why),
		})
	}
	return connect.NewResponse(answer), nil
}

func tableOf(given string) string { return cmp.Or(given, retire.Blocklist) }

// retirementSpec reads a spec; what it leaves out has its default.
func retirementSpec(m *controlv1.StartRetirementRequest) retire.Spec {
	spec := retire.DefaultSpec()
	set(&spec.QuietMs, m.GetQuietMs(), m.QuietMs != nil)
	set(&spec.SoakMs, m.GetSoakMs(), m.SoakMs != nil)
	set(&spec.HealthWithinMs, m.GetHealthWithinMs(), m.HealthWithinMs != nil)
	set(&spec.Approvers, int(m.GetApprovers()), m.Approvers != nil)
	set(&spec.ApprovalTTLMs, m.GetApprovalTtlMs(), m.ApprovalTtlMs != nil)
	set(&spec.BatchRows, int(m.GetBatchRows()), m.BatchRows != nil)
	return spec
}

func retirementAnswer(r retire.Retirement) *controlv1.Retirement {
	e := r.Evidence
	answer := &controlv1.Retirement{
		Id: r.ID, Table: r.Table, Dated: r.Dated, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs,
		EndedAtMs: r.EndedMs,
		Phase:     string(r.Phase), DueAtMs: r.DueMs, Why: valid(r.Why), Trouble: valid(r.Trouble), Waiting: valid(r.Waiting),
		QuietMs: r.Spec.QuietMs, SoakMs: r.Spec.SoakMs, RowsDeleted: r.RowsDeleted, LastWriteAtMs: r.LastWriteMs,
		Evidence: &controlv1.RetirementEvidence{
			AtMs: e.AtMs, Rows: e.Rows, LastExpiryMs: e.LastExpiryMs, QuietSinceMs: e.QuietSinceMs,
			HealthySinceMs: e.HealthySinceMs,
			Regions:        int32(e.Regions), Nodes: int32(e.Nodes), HealthProblem: valid(e.Problem),
		},
		RenameApproval: retirementApproval(r.Rename), DropApproval: retirementApproval(r.Drop),
	}
	if r.Phase == retire.Awaiting || r.Phase == retire.AwaitingFinal {
		answer.Approvals = approvals(r.Spec.Quorum, r.Approvals, r.EvidenceHash())
	}
	for _, event := range r.Events {
		answer.Events = append(answer.Events, &controlv1.RetirementEvent{AtMs: event.AtMs, Actor: event.Actor,
			What: event.What, Text: valid(event.Text)})
	}
	return answer
}

func retirementApproval(a *retire.Decision) *controlv1.RetirementApproval {
	if a == nil {
		return nil
	}
	return &controlv1.RetirementApproval{Actor: a.Actor, Reason: a.Reason, AtMs: a.AtMs}
}
