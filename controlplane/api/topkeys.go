package api

import (
	"cmp"
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// topKeysDefault is the number of keys in a response if the request has no limit.
const topKeysDefault = 20

// keyService implements the RPCs about keys.
type keyService struct{ *service }

var _ controlv1connect.TopKeysServiceHandler = keyService{}

func (s keyService) TopKeys(ctx context.Context,
	req *connect.Request[controlv1.TopKeysRequest]) (*connect.Response[controlv1.TopKeysResponse], error) {
	q := limits.TopQuery{Workspace: req.Msg.GetWorkspace(), Namespace: req.Msg.GetNamespace(),
		Limit: cmp.Or(int(req.Msg.GetLimit()), topKeysDefault), Visible: visible(ctx)}
	switch req.Msg.GetBy() {
	case controlv1.TopBy_TOP_BY_HOT:
	case controlv1.TopBy_TOP_BY_DENIED:
		q.Denied = true
	default:
		return nil, fmt.Errorf("%w: by is %d (TOP_BY_HOT or TOP_BY_DENIED)", controlplane.ErrInvalid, req.Msg.GetBy())
	}
	found, err := s.Config.TopKeys(ctx, q)
	return answered(topKeysResponse(found), err)
}

func topKeysResponse(found limits.TopKeys) *controlv1.TopKeysResponse {
	answer := &controlv1.TopKeysResponse{
		NowMs: unixMs(found.Now), Nodes: int32(found.Nodes), NodesUnreadable: int32(found.Unreadable),
		Truncated: found.Truncated, OldestMs: found.Oldest.Milliseconds(), Total: found.Total,
	}
	for _, k := range found.Keys {
		key := &controlv1.TopKey{
			Workspace: valid(k.Workspace), Namespace: valid(k.Namespace), Identifier: valid(k.Identifier),
			DurationMs: k.DurationMs, Count: k.Count, More: k.More,
		}
		if k.Limit >= 0 {
			key.Limit = &k.Limit
		}
		for _, r := range k.Regions {
			key.Regions = append(key.Regions, &controlv1.TopKeyRegion{Region: valid(r.Region), Count: r.Count})
		}
		answer.Keys = append(answer.Keys, key)
	}
	return answer
}
