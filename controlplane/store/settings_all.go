package store

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/workspaces"
)

// AllOverrides returns at most rows overrides of the given workspaces that sort after a position,
// by workspace, namespace and pattern.
func (s settings) AllOverrides(
	ctx context.Context, of *workspaces.Set, after limits.OverrideName, rows int,
) ([]limits.Override, error) {
	all := controlplanedb.OverrideListAllParams{
		AfterWorkspace: []byte(after.Workspace), AfterNamespace: []byte(after.Namespace),
		AfterPattern: []byte(after.Pattern), Limit: int32(rows),
	}
	var found []controlplanedb.RatelimitOverride
	var err error
	if of.All() {
		found, err = s.queries.OverrideListAll(ctx, all)
	} else {
		found, err = s.queries.OverrideListOfWorkspaces(ctx, controlplanedb.OverrideListOfWorkspacesParams{
			Workspaces: namesOf(of), AfterWorkspace: all.AfterWorkspace, AfterNamespace: all.AfterNamespace,
			AfterPattern: all.AfterPattern, Limit: all.Limit,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list all overrides: %w", explain(err))
	}
	return overridesOf(found), nil
}

// AllNamespaces returns at most rows namespaces of the given workspaces that sort after a position,
// by workspace and name.
func (s settings) AllNamespaces(
	ctx context.Context, of *workspaces.Set, afterWorkspace, afterNamespace string, rows int,
) ([]limits.Namespace, error) {
	all := controlplanedb.NamespaceListAllParams{
		AfterWorkspace: []byte(afterWorkspace), AfterNamespace: []byte(afterNamespace), Limit: int32(rows),
	}
	var found []controlplanedb.RatelimitNamespace
	var err error
	if of.All() {
		found, err = s.queries.NamespaceListAll(ctx, all)
	} else {
		found, err = s.queries.NamespaceListOfWorkspaces(ctx, controlplanedb.NamespaceListOfWorkspacesParams{
			Workspaces: namesOf(of), AfterWorkspace: all.AfterWorkspace, AfterNamespace: all.AfterNamespace,
			Limit: all.Limit,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list all namespaces: %w", explain(err))
	}
	return namespacesOf(found), nil
}

func namesOf(of *workspaces.Set) (names [][]byte) {
	for _, name := range of.Names() {
		names = append(names, []byte(name))
	}
	return names
}

func overridesOf(rows []controlplanedb.RatelimitOverride) (overrides []limits.Override) {
	for _, r := range rows {
		overrides = append(overrides, *overrideOf(string(r.WorkspaceID), string(r.Namespace), string(r.Pattern),
			controlplanedb.OverrideGetRow{Limit: r.Limit, DurationMs: r.DurationMs, Candidate: r.Candidate,
				Shadow: r.Shadow, UpdatedAt: r.UpdatedAt}))
	}
	return overrides
}

func namespacesOf(rows []controlplanedb.RatelimitNamespace) (namespaces []limits.Namespace) {
	for _, r := range rows {
		namespaces = append(namespaces, *namespaceOf(string(r.WorkspaceID), string(r.Namespace),
			controlplanedb.NamespaceGetRow{Shadow: r.Shadow, Mode: r.Mode, Outage: r.Outage, NodeShare: r.NodeShare,
				WindowKind: r.WindowKind, Estimate: r.Estimate, UpdatedAt: r.UpdatedAt}))
	}
	return namespaces
}
