package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/tunings"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// GetTuning returns the tuning in force.
func (s rolloutService) GetTuning(ctx context.Context,
	_ *connect.Request[controlv1.GetTuningRequest]) (*connect.Response[controlv1.GetTuningResponse], error) {
	inForce, err := s.Tuning(ctx)
	tunings := each(inForce, func(t tunings.RegionTuning) *controlv1.RegionTuning {
		return &controlv1.RegionTuning{Region: valid(t.Region), Version: t.Version, Document: t.Document}
	})
	return answered(&controlv1.GetTuningResponse{Tunings: tunings}, err)
}

// ListTunings returns versions of the tuning, newest first.
func (s rolloutService) ListTunings(ctx context.Context,
	req *connect.Request[controlv1.ListTuningsRequest]) (*connect.Response[controlv1.ListTuningsResponse], error) {
	versions, more, err := tunings.History(ctx, s.Tunings, tunings.Query{
		Region: req.Msg.Region, Before: req.Msg.GetBeforeVersion(), Limit: int(req.Msg.GetLimit()),
	})
	return answered(&controlv1.ListTuningsResponse{HasMore: more, Versions: each(versions, tuningVersion)}, err)
}

func tuningVersion(v tunings.Version) *controlv1.TuningVersion {
	return &controlv1.TuningVersion{
		Version: v.Version, Region: valid(v.Region), Document: valid(v.Document), Actor: valid(v.Actor),
		Reason: valid(v.Reason), CreatedAtMs: unixMs(v.At), Rollout: valid(v.Rollout), Problem: valid(v.Problem),
	}
}
