package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/previews"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// Previews predict the effects of tunings. Errors are the errors of previews.Preview.
type Previews interface {
	Preview(ctx context.Context, req previews.Request) (previews.Answer, error)
}

func (s rolloutService) PreviewRollout(ctx context.Context,
	req *connect.Request[controlv1.PreviewRolloutRequest]) (*connect.Response[controlv1.PreviewRolloutResponse], error) {
	if s.Previews == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this control plane has no simulator"))
	}
	msg := req.Msg
	ask := previews.Request{Old: msg.GetOldTuning(), New: msg.GetTuning(), NoFleet: msg.GetWithoutFleet(),
		TimeMaxMs: msg.GetTimeMaxMs()}
	if shape := msg.GetShape(); shape != nil {
		ask.Given = previews.GivenShape{
			Regions: shape.Regions, NodesPerRegion: shape.NodesPerRegion, Keys: shape.Keys, Limit: shape.Limit,
			WindowMs: shape.WindowMs, HotShare: shape.HotShare, OverlapShare: shape.OverlapShare,
		}
	}
	answer, err := s.Previews.Preview(ctx, ask)
	return answered(previewAnswer(answer), err)
}

func previewAnswer(a previews.Answer) *controlv1.PreviewRolloutResponse {
	nodes := 0
	for _, n := range a.Shape.Nodes {
		nodes += n
	}
	regions := len(a.Shape.Nodes)
	return &controlv1.PreviewRolloutResponse{
		Shape: &controlv1.PreviewShape{
			Regions: new(int32(regions)), NodesPerRegion: new(int32((nodes + regions - 1) / max(1, regions))),
			Keys: &a.Shape.Keys, HotShare: &a.Shape.HotShare, OverlapShare: &a.Shape.OverlapShare,
			Limit: &a.Shape.Limit, WindowMs: &a.Shape.WindowMs,
		},
		Nodes: int32(nodes), Assumed: a.Shape.Assumed, Old: prediction(a.Old, a.OldText), New: prediction(a.New, a.NewText),
		KeysSimulated: a.KeysSimulated, NodesSimulated: int32(a.NodesSimulated), Notes: a.Notes, TookMs: a.TookMs,
		Curve: each(a.Curve, func(p previews.Prediction) *controlv1.PreviewPrediction { return prediction(p, "") }),
	}
}

func prediction(p previews.Prediction, tuning string) *controlv1.PreviewPrediction {
	return &controlv1.PreviewPrediction{
		Tuning: tuning, FeedIntervalMs: p.FeedIntervalMs, RowsWrittenPerS: p.RowsWrittenPerS, RowsReadPerS: p.RowsReadPerS,
		ConvergenceP50Ms: p.ConvergenceP50Ms, ConvergenceP99Ms: p.ConvergenceP99Ms, ConvergenceHotP99Ms: p.HotConvergeP99Ms,
		UnknownShare: p.UnknownShare, Overshoot: p.Overshoot, OrdinaryOvershoot: p.OrdinaryOvershoot,
	}
}
