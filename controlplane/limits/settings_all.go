package limits

import (
	"context"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/workspaces"
)

// OverrideName identifies an override.
type OverrideName struct{ Workspace, Namespace, Pattern string }

// AllOverrides returns the overrides of the given workspaces that sort after a position, at most
// controlplane.PageMax, by workspace, namespace and pattern. more reports whether others follow.
func (s *Settings) AllOverrides(
	ctx context.Context, of *workspaces.Set, after OverrideName,
) (overrides []Override, more bool, err error) {
	return controlplane.Page(s.store.AllOverrides(ctx, of, after, controlplane.PageMax+1))
}

// AllNamespaces returns the namespaces with settings, of the given workspaces, that sort after a
// position, at most controlplane.PageMax, by workspace and name. more reports whether others follow.
func (s *Settings) AllNamespaces(
	ctx context.Context, of *workspaces.Set, afterWorkspace, afterNamespace string,
) (namespaces []Namespace, more bool, err error) {
	return controlplane.Page(s.store.AllNamespaces(ctx, of, afterWorkspace, afterNamespace, controlplane.PageMax+1))
}
