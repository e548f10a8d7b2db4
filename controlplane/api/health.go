package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// healthTimeout bounds the computation of a health document, and a diagnosis. Both call servers that may not answer.
const healthTimeout = 15 * time.Second

// healthService implements the RPCs about health.
type healthService struct{ *service }

var _ controlv1connect.HealthServiceHandler = healthService{}

func (s healthService) GetHealth(ctx context.Context,
	_ *connect.Request[controlv1.GetHealthRequest]) (*connect.Response[controlv1.GetHealthResponse], error) {
	return connect.NewResponse(&controlv1.GetHealthResponse{Health: healthAnswer(s.Health(ctx))}), nil
}

func healthAnswer(d watch.HealthDocument) *controlv1.Health {
	findings := each(d.Findings, func(f watch.Finding) *controlv1.Finding {
		return &controlv1.Finding{Kind: string(f.Kind), Severity: string(f.Severity), Subject: valid(f.Subject),
			What: valid(f.What), SinceMs: f.SinceMs, Advice: valid(f.Do)}
	})
	return &controlv1.Health{Overall: string(d.Overall), AtMs: d.AtMs, LeftOut: int64(d.LeftOut), Live: d.Live,
		Findings: findings}
}

func (s healthService) Diagnose(ctx context.Context,
	_ *connect.Request[controlv1.DiagnoseRequest]) (*connect.Response[controlv1.DiagnoseResponse], error) {
	checks := each(s.Config.Diagnose(ctx), func(c watch.Check) *controlv1.Check {
		return &controlv1.Check{Area: c.Area, Name: c.Name, Result: string(c.Result), What: valid(c.What),
			Advice: valid(c.Do)}
	})
	return connect.NewResponse(&controlv1.DiagnoseResponse{Checks: checks}), nil
}
