package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func (s settingsService) ListAllOverrides(
	ctx context.Context, req *connect.Request[controlv1.ListAllOverridesRequest],
) (*connect.Response[controlv1.ListAllOverridesResponse], error) {
	overrides, more, err := s.Settings.AllOverrides(ctx, visible(ctx), limits.OverrideName{
		Workspace: req.Msg.GetAfterWorkspace(), Namespace: req.Msg.GetAfterNamespace(), Pattern: req.Msg.GetAfterPattern(),
	})
	return answered(&controlv1.ListAllOverridesResponse{HasMore: more, Overrides: each(overrides, overrideAnswer)}, err)
}

func (s settingsService) ListAllNamespaces(
	ctx context.Context, req *connect.Request[controlv1.ListAllNamespacesRequest],
) (*connect.Response[controlv1.ListAllNamespacesResponse], error) {
	namespaces, more, err := s.Settings.AllNamespaces(ctx, visible(ctx), req.Msg.GetAfterWorkspace(),
		req.Msg.GetAfterNamespace())
	return answered(&controlv1.ListAllNamespacesResponse{HasMore: more,
		Namespaces: each(namespaces, namespaceAnswer)}, err)
}
