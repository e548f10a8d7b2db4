package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// Rollouts starts and controls staged rollouts of tuning. Errors wrap controlplane.ErrInvalid, ErrConflict,
// ErrNotFound, ErrUnavailable or the context's error. Implementations must be safe for concurrent use.
type Rollouts interface {
	Start(ctx context.Context, start rollout.Start) (rollout.Rollout, error)
	Operate(ctx context.Context, id string, order rollout.Order) (rollout.Rollout, error)
	Status(ctx context.Context, id string) (rollout.Rollout, error)
	List(ctx context.Context) ([]rollout.Summary, error)
}

// rolloutService implements the RPCs about rollouts and tuning.
type rolloutService struct{ *service }

var _ controlv1connect.RolloutServiceHandler = rolloutService{}

func (s rolloutService) StartRollout(ctx context.Context,
	req *connect.Request[controlv1.StartRolloutRequest]) (*connect.Response[controlv1.StartRolloutResponse], error) {
	msg := req.Msg
	spec := rollout.Spec{Tuning: msg.GetTuning(), Plan: rolloutPlan(msg.GetPlan())}
	if change := msg.GetLimits(); change != nil {
		spec.Limits = new(limitchange.Of(change))
		defaultLimits(&spec.Plan.Guardrails.LimitsGuardrails)
	}
	if err := errors.Join(spec.Validate(), s.tellsApart(spec.Plan.Quorum)); err != nil {
		return nil, err
	}
	id := msg.GetId()
	if id == "" {
		id = time.Now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
	}
	looking, cancel := context.WithTimeout(ctx, healthTimeout)
	health := s.Health(looking)
	cancel()
	forced := ""
	if msg.GetForce() {
		forced = watch.Forced(health)
	} else if err := s.refuseCritical(ctx, health, msg.GetId()); err != nil {
		return nil, err
	}
	r, err := s.Rollouts.Start(ctx, rollout.Start{ID: id, Spec: spec, By: by(ctx), Forced: forced})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.StartRolloutResponse{Rollout: rolloutAnswer(r)}), nil
}

// refuseCritical rejects the start of a rollout while the fleet's health is critical. A rollout that has already
// started under this ID is not rejected.
func (s rolloutService) refuseCritical(ctx context.Context, health watch.HealthDocument, id string) error {
	refused := watch.RefuseCritical(health)
	if refused == nil || id == "" {
		return refused
	}
	if _, err := s.Rollouts.Status(ctx, id); err == nil {
		return nil
	}
	return refused
}

func (s rolloutService) RolloutStatus(ctx context.Context,
	req *connect.Request[controlv1.RolloutStatusRequest]) (*connect.Response[controlv1.RolloutStatusResponse], error) {
	r, err := s.rolloutStatus(ctx, req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	answer := rolloutAnswer(r)
	s.counting(ctx, answer.GetApprovals(), access.RoleOperator)
	return connect.NewResponse(&controlv1.RolloutStatusResponse{Rollout: answer}), nil
}

func (s rolloutService) rolloutStatus(ctx context.Context, id string) (r rollout.Rollout, err error) {
	if id == "" {
		list, err := s.Rollouts.List(ctx)
		if err != nil {
			return r, err
		}
		if len(list) == 0 {
			return r, fmt.Errorf("%w: there has been no rollout yet", controlplane.ErrNotFound)
		}
		id = list[0].ID
	}
	return s.Rollouts.Status(ctx, id)
}

var rolloutActions = map[controlv1.RolloutAction]rollout.Action{
	controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE:  rollout.Approve,
	controlv1.RolloutAction_ROLLOUT_ACTION_PAUSE:    rollout.Pause,
	controlv1.RolloutAction_ROLLOUT_ACTION_RESUME:   rollout.Resume,
	controlv1.RolloutAction_ROLLOUT_ACTION_ABORT:    rollout.Abort,
	controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK: rollout.RollBack,
}

func (s rolloutService) OperateRollout(ctx context.Context,
	req *connect.Request[controlv1.OperateRolloutRequest]) (*connect.Response[controlv1.OperateRolloutResponse], error) {
	msg := req.Msg
	action, ok := rolloutActions[msg.GetAction()]
	if !ok {
		return nil, fmt.Errorf("%w: action is %s (approve, pause, resume, abort or rollback)", controlplane.ErrInvalid,
			msg.GetAction())
	}
	if err := rollout.ValidateID(msg.GetId()); err != nil {
		return nil, err
	}
	order := rollout.Order{Action: action, By: by(ctx), Stage: int(msg.GetStage()), Asked: msg.GetAsked(),
		Evidence: msg.GetEvidence()}
	if err := order.Validate(); err != nil {
		return nil, err
	}
	r, err := s.Rollouts.Operate(ctx, msg.GetId(), order)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&controlv1.OperateRolloutResponse{Rollout: rolloutAnswer(r)}), nil
}

func (s rolloutService) ListRollouts(ctx context.Context,
	_ *connect.Request[controlv1.ListRolloutsRequest]) (*connect.Response[controlv1.ListRolloutsResponse], error) {
	list, err := s.Rollouts.List(ctx)
	if err != nil {
		return nil, err
	}
	rollouts := each(list, func(r rollout.Summary) *controlv1.RolloutSummary {
		return &controlv1.RolloutSummary{Id: r.ID, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs,
			EndedAtMs: r.EndedMs, Phase: string(r.Phase), Why: valid(r.Why)}
	})
	return connect.NewResponse(&controlv1.ListRolloutsResponse{Rollouts: rollouts}), nil
}
