package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

var _ limits.SettingsStore = (*Store)(nil)

// changing is inTransaction for changes.Retry.
func (s *statements) changing(ctx context.Context, run func(*queries) error) error {
	return changes.Retry(func() error { return s.inTransaction(ctx, run) })
}

// ChangeOverride reads an override, calls change, and writes its result and the audit entry in the same transaction. A
// nil result deletes the override.
func (s settings) ChangeOverride(ctx context.Context, workspace, namespace, pattern string,
	change func(*limits.Override) (*limits.Override, audit.Entry, error),
) error {
	key := controlplanedb.OverrideGetParams{WorkspaceID: []byte(workspace), Namespace: []byte(namespace),
		Pattern: []byte(pattern)}
	changeRow := func(row *controlplanedb.OverrideGetRow) (*controlplanedb.OverrideGetRow, *auditchain.Entry, error) {
		var before *limits.Override
		if row != nil {
			before = overrideOf(workspace, namespace, pattern, *row)
		}
		after, e, err := change(before)
		if after == nil || err != nil {
			return nil, linkable(e), err
		}
		return &controlplanedb.OverrideGetRow{Limit: uint64(after.Limit), DurationMs: uint64(after.DurationMs),
			Candidate: uint64(after.Candidate), Shadow: after.Shadow}, linkable(e), nil
	}
	return s.changing(ctx, func(q *queries) error {
		return changes.Override(ctx, q, key, controlplane.ErrInvalid, changeRow)
	})
}

func overrideOf(workspace, namespace, pattern string, r controlplanedb.OverrideGetRow) *limits.Override {
	return &limits.Override{
		Workspace: workspace, Namespace: namespace, Pattern: pattern,
		Limit: int64(r.Limit), DurationMs: int64(r.DurationMs), Candidate: int64(r.Candidate), Shadow: r.Shadow,
		UpdatedAt: time.UnixMilli(int64(r.UpdatedAt)),
	}
}

// Override returns the override of exactly this pattern, or nil.
func (s settings) Override(ctx context.Context, workspace, namespace, pattern string) (*limits.Override, error) {
	rows, err := s.queries.OverrideLook(ctx, controlplanedb.OverrideLookParams{WorkspaceID: []byte(workspace),
		Namespace: []byte(namespace), Pattern: []byte(pattern)})
	if err != nil {
		return nil, fmt.Errorf("read the override: %w", explain(err))
	}
	for _, r := range rows {
		return overrideOf(workspace, namespace, pattern, controlplanedb.OverrideGetRow(r)), nil
	}
	return nil, nil
}

func (s settings) OverrideOf(ctx context.Context, workspace, namespace,
	identifier string) (applies *limits.Override, err error) {
	rows, err := s.queries.OverrideThatApplies(ctx, controlplanedb.OverrideThatAppliesParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Identifier: []byte(identifier),
	})
	if err != nil {
		return nil, fmt.Errorf("look for the override: %w", explain(err))
	}
	if around := window.NetworksAround(identifier); len(around) > 0 {
		found, err := s.queries.OverridesOf(ctx, controlplanedb.OverridesOfParams{
			WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Patterns: allBytes(around),
		})
		if err != nil {
			return nil, fmt.Errorf("look for overrides of networks: %w", explain(err))
		}
		for _, r := range found {
			rows = append(rows, controlplanedb.OverrideThatAppliesRow(r))
		}
	}
	for _, r := range rows {
		if pattern := string(r.Pattern); applies == nil || window.ComparePatterns(pattern, applies.Pattern) < 0 {
			applies = overrideOf(workspace, namespace, pattern, controlplanedb.OverrideGetRow{Limit: r.Limit,
				DurationMs: r.DurationMs, Candidate: r.Candidate, Shadow: r.Shadow, UpdatedAt: r.UpdatedAt})
		}
	}
	return applies, nil
}

// Overrides returns at most rows overrides of a namespace whose patterns sort after a pattern, in order.
func (s settings) Overrides(ctx context.Context, workspace, namespace, after string,
	rows int) ([]limits.Override, error) {
	found, err := s.queries.OverrideList(ctx, controlplanedb.OverrideListParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), AfterPattern: []byte(after), Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("list overrides: %w", explain(err))
	}
	return overridesOf(found), nil
}

// ChangeNamespace reads a namespace, calls change, and writes its result and the audit entry in the same transaction.
func (s settings) ChangeNamespace(ctx context.Context, workspace, namespace string,
	change func(*limits.Namespace) (limits.Namespace, audit.Entry, error),
) error {
	return s.changing(ctx, func(q *queries) error {
		rows, err := q.NamespaceGet(ctx, controlplanedb.NamespaceGetParams{WorkspaceID: []byte(workspace),
			Namespace: []byte(namespace)})
		if err != nil {
			return fmt.Errorf("read the namespace: %w", err)
		}
		var before *limits.Namespace
		for _, r := range rows {
			before = namespaceOf(workspace, namespace, r)
		}
		after, e, err := change(before)
		if err != nil {
			return err
		}
		after.Workspace, after.Namespace = workspace, namespace
		if err := putNamespace(ctx, q, before, after); err != nil {
			return err
		}
		return insertSettingsAudit(ctx, q, e)
	})
}

// putNamespace writes the settings of a namespace that were read with a lock; before is nil if there were none.
func putNamespace(ctx context.Context, q *queries, before *limits.Namespace, after limits.Namespace) (err error) {
	workspace, namespace := []byte(after.Workspace), []byte(after.Namespace)
	if before == nil {
		err = q.NamespaceInsert(ctx, controlplanedb.NamespaceInsertParams{
			WorkspaceID: workspace, Namespace: namespace, Shadow: after.Shadow,
			Mode: after.Mode, Outage: after.Outage, NodeShare: after.NodeShare, WindowKind: after.Window,
			Estimate: after.Estimate,
		})
	} else {
		err = q.NamespaceUpdate(ctx, controlplanedb.NamespaceUpdateParams{
			WorkspaceID: workspace, Namespace: namespace, Shadow: after.Shadow,
			Mode: after.Mode, Outage: after.Outage, NodeShare: after.NodeShare, WindowKind: after.Window,
			Estimate: after.Estimate,
		})
	}
	if err != nil {
		return fmt.Errorf("write the namespace: %w", err)
	}
	return nil
}

// Namespaces returns at most rows namespaces of a workspace that have settings and sort after a name, in order.
func (s settings) Namespaces(ctx context.Context, workspace, after string, rows int) ([]limits.Namespace, error) {
	found, err := s.queries.NamespaceList(ctx, controlplanedb.NamespaceListParams{
		WorkspaceID: []byte(workspace), AfterNamespace: []byte(after), Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", explain(err))
	}
	return namespacesOf(found), nil
}

// Namespace returns the settings of a namespace, or nil.
func (s settings) Namespace(ctx context.Context, workspace, namespace string) (*limits.Namespace, error) {
	rows, err := s.queries.NamespaceLook(ctx, controlplanedb.NamespaceLookParams{WorkspaceID: []byte(workspace),
		Namespace: []byte(namespace)})
	if err != nil {
		return nil, fmt.Errorf("read the namespace: %w", explain(err))
	}
	for _, r := range rows {
		return namespaceOf(workspace, namespace, controlplanedb.NamespaceGetRow(r)), nil
	}
	return nil, nil
}

func namespaceOf(workspace, namespace string, r controlplanedb.NamespaceGetRow) *limits.Namespace {
	return &limits.Namespace{
		Workspace: workspace, Namespace: namespace, Shadow: r.Shadow,
		Mode: r.Mode, Outage: r.Outage, NodeShare: r.NodeShare, Window: r.WindowKind, Estimate: r.Estimate,
		UpdatedAt: time.UnixMilli(int64(r.UpdatedAt)),
	}
}
