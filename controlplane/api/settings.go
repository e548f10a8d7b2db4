package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// Settings reads and changes overrides, namespaces and resets of keys. Errors wrap controlplane.ErrInvalid,
// ErrConflict, ErrNotFound, ErrUnavailable or the context's error. Implementations must be safe for concurrent use.
type Settings interface {
	SetOverride(ctx context.Context, o limits.Override, by controlplane.By) error
	ChangeOverride(ctx context.Context, workspace, namespace, pattern string, change limits.OverrideChange,
		by controlplane.By) (limits.Override, error)
	DeleteOverride(ctx context.Context, workspace, namespace, pattern string, ifUpdatedMs *int64,
		by controlplane.By) error
	Override(ctx context.Context, workspace, namespace, pattern string) (limits.Override, error)
	Overrides(ctx context.Context, workspace, namespace,
		after string) (overrides []limits.Override, more bool, err error)
	AllOverrides(ctx context.Context, of *workspaces.Set,
		after limits.OverrideName) (overrides []limits.Override, more bool, err error)
	SetNamespace(ctx context.Context, workspace, namespace string, change limits.NamespaceChange,
		by controlplane.By) (limits.Namespace, error)
	Namespace(ctx context.Context, workspace, namespace string) (limits.Namespace, error)
	Namespaces(ctx context.Context, workspace, after string) (namespaces []limits.Namespace, more bool, err error)
	AllNamespaces(ctx context.Context, of *workspaces.Set, afterWorkspace,
		afterNamespace string) (namespaces []limits.Namespace, more bool, err error)
	ResetKey(ctx context.Context, workspace, namespace, identifier string, longest time.Duration,
		by controlplane.By) (limits.Reset, error)
	Resets(ctx context.Context, workspace, namespace string) ([]limits.Reset, error)
}

// settingsService implements the RPCs about namespaces, overrides and resets.
type settingsService struct{ *service }

var _ controlv1connect.SettingsServiceHandler = settingsService{}

func (s settingsService) SetOverride(ctx context.Context,
	req *connect.Request[controlv1.SetOverrideRequest]) (*connect.Response[controlv1.SetOverrideResponse], error) {
	o := req.Msg.GetOverride()
	return answered(&controlv1.SetOverrideResponse{}, s.Settings.SetOverride(ctx, limits.Override{
		Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(), Limit: o.GetLimit(),
		DurationMs: o.GetDurationMs(), Candidate: o.GetCandidate(), Shadow: o.GetShadow(),
	}, by(ctx)))
}

func (s settingsService) ChangeOverride(ctx context.Context,
	req *connect.Request[controlv1.ChangeOverrideRequest]) (*connect.Response[controlv1.ChangeOverrideResponse], error) {
	after, err := s.Settings.ChangeOverride(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern(),
		limits.OverrideChange{
			Limit: req.Msg.Limit, DurationMs: req.Msg.DurationMs, Candidate: req.Msg.Candidate, Shadow: req.Msg.Shadow,
			IfUpdatedMs: req.Msg.IfUpdatedAtMs,
		}, by(ctx))
	return answered(&controlv1.ChangeOverrideResponse{Override: overrideAnswer(after)}, err)
}

func (s settingsService) GetOverride(ctx context.Context,
	req *connect.Request[controlv1.GetOverrideRequest]) (*connect.Response[controlv1.GetOverrideResponse], error) {
	o, err := s.Settings.Override(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern())
	return answered(&controlv1.GetOverrideResponse{Override: overrideAnswer(o)}, err)
}

func (s settingsService) DeleteOverride(ctx context.Context,
	req *connect.Request[controlv1.DeleteOverrideRequest]) (*connect.Response[controlv1.DeleteOverrideResponse], error) {
	return answered(&controlv1.DeleteOverrideResponse{}, s.Settings.DeleteOverride(ctx, req.Msg.GetWorkspace(),
		req.Msg.GetNamespace(), req.Msg.GetPattern(), req.Msg.IfUpdatedAtMs, by(ctx)))
}

func (s settingsService) ListOverrides(ctx context.Context,
	req *connect.Request[controlv1.ListOverridesRequest]) (*connect.Response[controlv1.ListOverridesResponse], error) {
	overrides, more, err := s.Settings.Overrides(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetAfter())
	return answered(&controlv1.ListOverridesResponse{HasMore: more, Overrides: each(overrides, overrideAnswer)}, err)
}

func (s settingsService) SetNamespace(ctx context.Context,
	req *connect.Request[controlv1.SetNamespaceRequest]) (*connect.Response[controlv1.SetNamespaceResponse], error) {
	after, err := s.Settings.SetNamespace(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), limits.NamespaceChange{
		Shadow: req.Msg.Shadow, Mode: req.Msg.Mode, Outage: req.Msg.Outage, NodeShare: req.Msg.NodeShare,
		Window: req.Msg.Window, Estimate: req.Msg.Estimate, IfUpdatedMs: req.Msg.IfUpdatedAtMs,
	}, by(ctx))
	return answered(&controlv1.SetNamespaceResponse{Namespace: namespaceAnswer(after)}, err)
}

func (s settingsService) ListNamespaces(ctx context.Context,
	req *connect.Request[controlv1.ListNamespacesRequest]) (*connect.Response[controlv1.ListNamespacesResponse], error) {
	namespaces, more, err := s.Settings.Namespaces(ctx, req.Msg.GetWorkspace(), req.Msg.GetAfter())
	return answered(&controlv1.ListNamespacesResponse{HasMore: more, Namespaces: each(namespaces, namespaceAnswer)}, err)
}

func (s settingsService) GetNamespace(ctx context.Context,
	req *connect.Request[controlv1.GetNamespaceRequest]) (*connect.Response[controlv1.GetNamespaceResponse], error) {
	n, err := s.Settings.Namespace(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace())
	return answered(&controlv1.GetNamespaceResponse{Namespace: namespaceAnswer(n)}, err)
}

func namespaceAnswer(n limits.Namespace) *controlv1.Namespace {
	return &controlv1.Namespace{
		Workspace: valid(n.Workspace), Namespace: valid(n.Namespace), Shadow: n.Shadow, Mode: valid(n.Mode),
		Outage: valid(n.Outage), NodeShare: valid(n.NodeShare), Window: valid(n.Window), Estimate: valid(n.Estimate),
		UpdatedAtMs: unixMs(n.UpdatedAt),
	}
}

func (s settingsService) ResetKey(ctx context.Context,
	req *connect.Request[controlv1.ResetKeyRequest]) (*connect.Response[controlv1.ResetKeyResponse], error) {
	reset, err := s.Settings.ResetKey(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetIdentifier(),
		msOf(req.Msg.GetLongestWindowMs()), by(ctx))
	return answered(&controlv1.ResetKeyResponse{Reset_: resetAnswer(reset)}, err)
}

func (s settingsService) ListResets(ctx context.Context,
	req *connect.Request[controlv1.ListResetsRequest]) (*connect.Response[controlv1.ListResetsResponse], error) {
	resets, err := s.Settings.Resets(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace())
	return answered(&controlv1.ListResetsResponse{Resets: each(resets, resetAnswer)}, err)
}

func overrideAnswer(o limits.Override) *controlv1.Override {
	return &controlv1.Override{
		Workspace: valid(o.Workspace), Namespace: valid(o.Namespace), Pattern: valid(o.Pattern), Limit: o.Limit,
		DurationMs: o.DurationMs, Candidate: o.Candidate, Shadow: o.Shadow, UpdatedAtMs: unixMs(o.UpdatedAt),
	}
}

func resetAnswer(r limits.Reset) *controlv1.Reset {
	return &controlv1.Reset{
		Workspace: valid(r.Workspace), Namespace: valid(r.Namespace), Identifier: valid(r.Identifier),
		Generation: r.Generation, SetAtMs: unixMs(r.SetAt), ExpiresAtMs: unixMs(r.ExpiresAt),
	}
}
