package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// AllOverrides are at most rows of all namespaces' behind one, by workspace, namespace and pattern.
func (s *Store) AllOverrides(
	ctx context.Context, after controlplane.OverrideName, rows int,
) ([]controlplane.Override, error) {
	found, err := s.queries.OverrideListAll(ctx, controlplanedb.OverrideListAllParams{
		AfterWorkspace: []byte(after.Workspace), AfterNamespace: []byte(after.Namespace),
		AfterPattern: []byte(after.Pattern), Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("list all overrides: %w", explain(err))
	}
	return overridesOf(found), nil
}

// AllNamespaces are at most rows of all workspaces' behind one, by workspace and name.
func (s *Store) AllNamespaces(
	ctx context.Context, afterWorkspace, afterNamespace string, rows int,
) ([]controlplane.Namespace, error) {
	found, err := s.queries.NamespaceListAll(ctx, controlplanedb.NamespaceListAllParams{
		AfterWorkspace: []byte(afterWorkspace), AfterNamespace: []byte(afterNamespace), Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("list all namespaces: %w", explain(err))
	}
	return namespacesOf(found), nil
}

func overridesOf(rows []controlplanedb.RatelimitOverride) (overrides []controlplane.Override) {
	for _, r := range rows {
		overrides = append(overrides, controlplane.Override{
			Workspace: string(r.WorkspaceID), Namespace: string(r.Namespace), Pattern: string(r.Pattern),
			Limit: int64(r.Limit), DurationMs: int64(r.DurationMs), Candidate: int64(r.Candidate), Shadow: r.Shadow,
			UpdatedAt: time.UnixMilli(int64(r.UpdatedAt)),
		})
	}
	return overrides
}

func namespacesOf(rows []controlplanedb.RatelimitNamespace) (namespaces []controlplane.Namespace) {
	for _, r := range rows {
		namespaces = append(namespaces, controlplane.Namespace{
			Workspace: string(r.WorkspaceID), Namespace: string(r.Namespace), Shadow: r.Shadow,
			Mode: r.Mode, Outage: r.Outage, Headroom: r.Headroom, Estimate: r.Estimate,
			UpdatedAt: time.UnixMilli(int64(r.UpdatedAt)),
		})
	}
	return namespaces
}
