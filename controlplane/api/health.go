package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// healthTimeout bounds a health document that must be computed, and a diagnosis: both
// ask what may not answer.
const healthTimeout = 15 * time.Second

// healthService implements the RPCs about what is wrong.
type healthService struct{ *service }

var _ controlv1connect.HealthServiceHandler = healthService{}

func (s healthService) GetHealth(ctx context.Context,
	_ *connect.Request[controlv1.GetHealthRequest]) (*connect.Response[controlv1.GetHealthResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return connect.NewResponse(&controlv1.GetHealthResponse{Health: healthAnswer(s.Health(ctx))}), nil
}

func healthAnswer(d watch.HealthDocument) *controlv1.Health {
	answer := &controlv1.Health{Overall: string(d.Overall), AtMs: d.AtMs, LeftOut: int64(d.LeftOut), Live: d.Live}
	for _, f := range d.Findings {
		answer.Findings = append(answer.Findings, &controlv1.Finding{
			Kind: string(f.Kind), Severity: string(f.Severity), Subject: valid(f.Subject),
			What: valid(f.What), SinceMs: f.SinceMs, Advice: valid(f.Do),
		})
	}
	return answer
}

func (s healthService) Diagnose(ctx context.Context,
	_ *connect.Request[controlv1.DiagnoseRequest]) (*connect.Response[controlv1.DiagnoseResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	answer := &controlv1.DiagnoseResponse{}
	for _, c := range s.Config.Diagnose(ctx) {
		answer.Checks = append(answer.Checks, &controlv1.Check{
			Area: c.Area, Name: c.Name, Result: string(c.Result), What: valid(c.What), Advice: valid(c.Do),
		})
	}
	return connect.NewResponse(answer), nil
}
