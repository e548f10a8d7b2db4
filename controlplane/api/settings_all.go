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
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	overrides, more, err := s.Settings.AllOverrides(ctx, visible(ctx), limits.OverrideName{
		Workspace: req.Msg.GetAfterWorkspace(), Namespace: req.Msg.GetAfterNamespace(), Pattern: req.Msg.GetAfterPattern(),
	})
	if err != nil {
		return nil, s.fail(ctx, "ListAllOverrides", err)
	}
	answer := &controlv1.ListAllOverridesResponse{HasMore: more}
	for _, o := range overrides {
		answer.Overrides = append(answer.Overrides, overrideAnswer(o))
	}
	return connect.NewResponse(answer), nil
}

func (s settingsService) ListAllNamespaces(
	ctx context.Context, req *connect.Request[controlv1.ListAllNamespacesRequest],
) (*connect.Response[controlv1.ListAllNamespacesResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	namespaces, more, err := s.Settings.AllNamespaces(ctx, visible(ctx), req.Msg.GetAfterWorkspace(),
		req.Msg.GetAfterNamespace())
	if err != nil {
		return nil, s.fail(ctx, "ListAllNamespaces", err)
	}
	answer := &controlv1.ListAllNamespacesResponse{HasMore: more}
	for _, n := range namespaces {
		answer.Namespaces = append(answer.Namespaces, namespaceAnswer(n))
	}
	return connect.NewResponse(answer), nil
}
