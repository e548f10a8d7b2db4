package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/tunings"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// GetTuning answers the tuning in force.
func (s rolloutService) GetTuning(ctx context.Context,
	_ *connect.Request[controlv1.GetTuningRequest]) (*connect.Response[controlv1.GetTuningResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	inForce, err := s.Tuning(ctx)
	if err != nil {
		return nil, s.fail(ctx, "GetTuning", err)
	}
	answer := &controlv1.GetTuningResponse{}
	for _, t := range inForce {
		answer.Tunings = append(answer.Tunings, &controlv1.RegionTuning{Region: valid(t.Region), Version: t.Version,
			Document: t.Document})
	}
	return connect.NewResponse(answer), nil
}

// ListTunings answers versions of the tuning, newest first.
func (s rolloutService) ListTunings(ctx context.Context,
	req *connect.Request[controlv1.ListTuningsRequest]) (*connect.Response[controlv1.ListTuningsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	versions, more, err := tunings.History(ctx, s.Tunings, tunings.Query{
		Region: req.Msg.Region, Before: req.Msg.GetBeforeVersion(), Limit: int(req.Msg.GetLimit()),
	})
	if err != nil {
		return nil, s.fail(ctx, "ListTunings", err)
	}
	answer := &controlv1.ListTuningsResponse{HasMore: more}
	for _, v := range versions {
		answer.Versions = append(answer.Versions, &controlv1.TuningVersion{
			Version: v.Version, Region: valid(v.Region), Document: valid(v.Document), Actor: valid(v.Actor),
			Reason: valid(v.Reason), CreatedAtMs: unixMs(v.At), Rollout: valid(v.Rollout), Problem: valid(v.Problem),
		})
	}
	return connect.NewResponse(answer), nil
}
