package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// Settings are overrides and namespaces. Errors wrap controlplane.ErrInvalid,
// ErrNotFound, ErrUnavailable or the context's. All methods may be called at once.
type Settings interface {
	SetOverride(ctx context.Context, o controlplane.Override, by controlplane.By) error
	DeleteOverride(ctx context.Context, workspace, namespace, pattern string, by controlplane.By) error
	Overrides(ctx context.Context, workspace, namespace, after string) (overrides []controlplane.Override, more bool, err error)
	SetNamespace(ctx context.Context, workspace, namespace string, change controlplane.NamespaceChange, by controlplane.By) (controlplane.Namespace, error)
	Namespaces(ctx context.Context, workspace string) ([]controlplane.Namespace, error)
}

var _ controlv1connect.SettingsServiceHandler = (*service)(nil)

func (s *service) SetOverride(ctx context.Context, req *connect.Request[controlv1.SetOverrideRequest]) (*connect.Response[controlv1.SetOverrideResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	if err == nil {
		o := req.Msg.GetOverride()
		err = s.Settings.SetOverride(ctx, controlplane.Override{
			Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(), Limit: o.GetLimit(), DurationMs: o.GetDurationMs(),
		}, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "SetOverride", err)
	}
	return connect.NewResponse(&controlv1.SetOverrideResponse{}), nil
}

func (s *service) DeleteOverride(ctx context.Context, req *connect.Request[controlv1.DeleteOverrideRequest]) (*connect.Response[controlv1.DeleteOverrideResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	if err == nil {
		err = s.Settings.DeleteOverride(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern(), by)
	}
	if err != nil {
		return nil, s.fail(ctx, "DeleteOverride", err)
	}
	return connect.NewResponse(&controlv1.DeleteOverrideResponse{}), nil
}

func (s *service) ListOverrides(ctx context.Context, req *connect.Request[controlv1.ListOverridesRequest]) (*connect.Response[controlv1.ListOverridesResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	overrides, more, err := s.Settings.Overrides(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetAfter())
	if err != nil {
		return nil, s.fail(ctx, "ListOverrides", err)
	}
	answer := &controlv1.ListOverridesResponse{HasMore: more}
	for _, o := range overrides {
		answer.Overrides = append(answer.Overrides, &controlv1.Override{
			Workspace: o.Workspace, Namespace: o.Namespace, Pattern: valid(o.Pattern), Limit: o.Limit, DurationMs: o.DurationMs, UpdatedAtMs: unixMs(o.UpdatedAt),
		})
	}
	return connect.NewResponse(answer), nil
}

func (s *service) SetNamespace(ctx context.Context, req *connect.Request[controlv1.SetNamespaceRequest]) (*connect.Response[controlv1.SetNamespaceResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	var after controlplane.Namespace
	if err == nil {
		after, err = s.Settings.SetNamespace(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), controlplane.NamespaceChange{
			Shadow: req.Msg.Shadow, Mode: req.Msg.Mode, Outage: req.Msg.Outage, Headroom: req.Msg.Headroom, Estimate: req.Msg.Estimate,
		}, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "SetNamespace", err)
	}
	return connect.NewResponse(&controlv1.SetNamespaceResponse{Namespace: namespaceAnswer(after)}), nil
}

func (s *service) ListNamespaces(ctx context.Context, req *connect.Request[controlv1.ListNamespacesRequest]) (*connect.Response[controlv1.ListNamespacesResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	namespaces, err := s.Settings.Namespaces(ctx, req.Msg.GetWorkspace())
	if err != nil {
		return nil, s.fail(ctx, "ListNamespaces", err)
	}
	answer := &controlv1.ListNamespacesResponse{}
	for _, n := range namespaces {
		answer.Namespaces = append(answer.Namespaces, namespaceAnswer(n))
	}
	return connect.NewResponse(answer), nil
}

func namespaceAnswer(n controlplane.Namespace) *controlv1.Namespace {
	return &controlv1.Namespace{
		Workspace: n.Workspace, Namespace: valid(n.Namespace), Shadow: n.Shadow, Mode: valid(n.Mode), Outage: valid(n.Outage),
		Headroom: valid(n.Headroom), Estimate: valid(n.Estimate), UpdatedAtMs: unixMs(n.UpdatedAt),
	}
}
