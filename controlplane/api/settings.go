package api

import (
	"context"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// Settings are overrides, namespaces and resets of keys. Errors wrap controlplane.ErrInvalid,
// ErrConflict, ErrNotFound, ErrUnavailable or the context's. All methods may be called at once.
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
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	if err == nil {
		o := req.Msg.GetOverride()
		err = s.Settings.SetOverride(ctx, limits.Override{
			Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(), Limit: o.GetLimit(),
			DurationMs: o.GetDurationMs(),
			Candidate:  o.GetCandidate(), Shadow: o.GetShadow(),
		}, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "SetOverride", err)
	}
	return connect.NewResponse(&controlv1.SetOverrideResponse{}), nil
}

func (s settingsService) ChangeOverride(ctx context.Context,
	req *connect.Request[controlv1.ChangeOverrideRequest]) (*connect.Response[controlv1.ChangeOverrideResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	var after limits.Override
	if err == nil {
		after, err = s.Settings.ChangeOverride(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern(),
			limits.OverrideChange{
				Limit: req.Msg.Limit, DurationMs: req.Msg.DurationMs, Candidate: req.Msg.Candidate, Shadow: req.Msg.Shadow,
				IfUpdatedMs: req.Msg.IfUpdatedAtMs,
			}, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "ChangeOverride", err)
	}
	return connect.NewResponse(&controlv1.ChangeOverrideResponse{Override: overrideAnswer(after)}), nil
}

func (s settingsService) GetOverride(ctx context.Context,
	req *connect.Request[controlv1.GetOverrideRequest]) (*connect.Response[controlv1.GetOverrideResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	o, err := s.Settings.Override(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern())
	if err != nil {
		return nil, s.fail(ctx, "GetOverride", err)
	}
	return connect.NewResponse(&controlv1.GetOverrideResponse{Override: overrideAnswer(o)}), nil
}

func (s settingsService) DeleteOverride(ctx context.Context,
	req *connect.Request[controlv1.DeleteOverrideRequest]) (*connect.Response[controlv1.DeleteOverrideResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	if err == nil {
		err = s.Settings.DeleteOverride(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetPattern(),
			req.Msg.IfUpdatedAtMs, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "DeleteOverride", err)
	}
	return connect.NewResponse(&controlv1.DeleteOverrideResponse{}), nil
}

func (s settingsService) ListOverrides(ctx context.Context,
	req *connect.Request[controlv1.ListOverridesRequest]) (*connect.Response[controlv1.ListOverridesResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	overrides, more, err := s.Settings.Overrides(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(), req.Msg.GetAfter())
	if err != nil {
		return nil, s.fail(ctx, "ListOverrides", err)
	}
	answer := &controlv1.ListOverridesResponse{HasMore: more}
	for _, o := range overrides {
		answer.Overrides = append(answer.Overrides, overrideAnswer(o))
	}
	return connect.NewResponse(answer), nil
}

func (s settingsService) SetNamespace(ctx context.Context,
	req *connect.Request[controlv1.SetNamespaceRequest]) (*connect.Response[controlv1.SetNamespaceResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	var after limits.Namespace
	if err == nil {
		after, err = s.Settings.SetNamespace(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(),
			limits.NamespaceChange{
				Shadow: req.Msg.Shadow, Mode: req.Msg.Mode, Outage: req.Msg.Outage, NodeShare: req.Msg.NodeShare,
				Estimate:    req.Msg.Estimate,
				IfUpdatedMs: req.Msg.IfUpdatedAtMs,
			}, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "SetNamespace", err)
	}
	return connect.NewResponse(&controlv1.SetNamespaceResponse{Namespace: namespaceAnswer(after)}), nil
}

func (s settingsService) ListNamespaces(ctx context.Context,
	req *connect.Request[controlv1.ListNamespacesRequest]) (*connect.Response[controlv1.ListNamespacesResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	namespaces, more, err := s.Settings.Namespaces(ctx, req.Msg.GetWorkspace(), req.Msg.GetAfter())
	if err != nil {
		return nil, s.fail(ctx, "ListNamespaces", err)
	}
	answer := &controlv1.ListNamespacesResponse{HasMore: more}
	for _, n := range namespaces {
		answer.Namespaces = append(answer.Namespaces, namespaceAnswer(n))
	}
	return connect.NewResponse(answer), nil
}

func (s settingsService) GetNamespace(ctx context.Context,
	req *connect.Request[controlv1.GetNamespaceRequest]) (*connect.Response[controlv1.GetNamespaceResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	n, err := s.Settings.Namespace(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace())
	if err != nil {
		return nil, s.fail(ctx, "GetNamespace", err)
	}
	return connect.NewResponse(&controlv1.GetNamespaceResponse{Namespace: namespaceAnswer(n)}), nil
}

func namespaceAnswer(n limits.Namespace) *controlv1.Namespace {
	return &controlv1.Namespace{
		Workspace: valid(n.Workspace), Namespace: valid(n.Namespace), Shadow: n.Shadow, Mode: valid(n.Mode),
		Outage:    valid(n.Outage),
		NodeShare: valid(n.NodeShare), Estimate: valid(n.Estimate), UpdatedAtMs: unixMs(n.UpdatedAt),
	}
}

func (s settingsService) ResetKey(ctx context.Context,
	req *connect.Request[controlv1.ResetKeyRequest]) (*connect.Response[controlv1.ResetKeyResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	by, err := byOf(ctx, req.Msg)
	var reset limits.Reset
	if err == nil {
		longest := time.Duration(min(req.Msg.GetLongestWindowMs(), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		reset, err = s.Settings.ResetKey(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace(),
			req.Msg.GetIdentifier(), longest, by)
	}
	if err != nil {
		return nil, s.fail(ctx, "ResetKey", err)
	}
	return connect.NewResponse(&controlv1.ResetKeyResponse{Reset_: resetAnswer(reset)}), nil
}

func (s settingsService) ListResets(ctx context.Context,
	req *connect.Request[controlv1.ListResetsRequest]) (*connect.Response[controlv1.ListResetsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	resets, err := s.Settings.Resets(ctx, req.Msg.GetWorkspace(), req.Msg.GetNamespace())
	if err != nil {
		return nil, s.fail(ctx, "ListResets", err)
	}
	answer := &controlv1.ListResetsResponse{}
	for _, r := range resets {
		answer.Resets = append(answer.Resets, resetAnswer(r))
	}
	return connect.NewResponse(answer), nil
}

func overrideAnswer(o limits.Override) *controlv1.Override {
	return &controlv1.Override{
		Workspace: valid(o.Workspace), Namespace: valid(o.Namespace), Pattern: valid(o.Pattern), Limit: o.Limit,
		DurationMs: o.DurationMs,
		Candidate:  o.Candidate, Shadow: o.Shadow, UpdatedAtMs: unixMs(o.UpdatedAt),
	}
}

func resetAnswer(r limits.Reset) *controlv1.Reset {
	return &controlv1.Reset{
		Workspace: valid(r.Workspace), Namespace: valid(r.Namespace), Identifier: valid(r.Identifier),
		Generation: r.Generation, SetAtMs: unixMs(r.SetAt), ExpiresAtMs: unixMs(r.ExpiresAt),
	}
}
