package api

import (
	"cmp"
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func (s keyService) ListHeld(ctx context.Context,
	req *connect.Request[controlv1.ListHeldRequest]) (*connect.Response[controlv1.ListHeldResponse], error) {
	found, err := s.Config.Held(ctx, limits.TopQuery{Workspace: req.Msg.GetWorkspace(),
		Namespace: req.Msg.GetNamespace(), Identifier: req.Msg.GetIdentifier(),
		Limit: cmp.Or(int(req.Msg.GetLimit()), topKeysDefault), Visible: visible(ctx)})
	return answered(&controlv1.ListHeldResponse{NowMs: unixMs(found.Now), Nodes: int32(found.Nodes),
		NodesUnreadable: int32(found.Unreadable), Truncated: found.Truncated, OldestMs: found.Oldest.Milliseconds(),
		Held: each(found.Held, heldAnswer)}, err)
}

func heldAnswer(h limits.Held) *controlv1.Held {
	return &controlv1.Held{Kind: valid(h.Kind), Workspace: valid(h.Workspace), Namespace: valid(h.Namespace),
		Identifier: valid(h.Identifier), Holder: valid(h.Holder), Region: valid(h.Region), Node: valid(h.Node),
		SinceMs: h.SinceMs, EndsMs: h.EndsMs, Amount: h.Amount}
}
