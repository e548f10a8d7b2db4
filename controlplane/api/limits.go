package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func (s keyService) EstimateLimits(ctx context.Context,
	req *connect.Request[controlv1.EstimateLimitsRequest]) (*connect.Response[controlv1.EstimateLimitsResponse], error) {
	if s.Limits == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this process estimates no limits"))
	}
	var changes []limits.Change
	for _, c := range req.Msg.GetChanges() {
		changes = append(changes, limits.Change{
			Workspace: c.GetWorkspace(), Namespace: c.GetNamespace(), Pattern: c.GetPattern(), Limit: c.GetLimit(),
			DurationMs: c.GetDurationMs(), Shadow: c.GetShadow(), Deleted: c.GetDeleted(),
		})
	}
	e, err := s.Limits(ctx, changes, visible(ctx))
	return answered(&controlv1.EstimateLimitsResponse{
		KeysReported: int64(e.Reported), Nodes: int32(e.Nodes), OldestMs: e.Oldest.Milliseconds(), Truncated: e.Truncated,
		KeysMatched: int64(e.Matched), KeysUnknown: int64(e.Unknown), Cost: e.Cost, CostDenied: e.Denied,
		KeysDenied: int64(e.Keys), Worst: each(e.Worst, limitKey),
	}, err)
}

func limitKey(k limits.Key) *controlv1.LimitKey {
	return &controlv1.LimitKey{Workspace: valid(k.Workspace), Namespace: valid(k.Namespace),
		Identifier: valid(k.Identifier), Cost: k.Cost, Limit: k.Limit}
}
