package controlplane

import "context"

// OverrideName is what tells an override from all others.
type OverrideName struct{ Workspace, Namespace, Pattern string }

// AllOverrides are those of all namespaces behind one, at most PageMax, by workspace, namespace and pattern; more tells
// whether there are others behind them.
func (s *Settings) AllOverrides(ctx context.Context, after OverrideName) (overrides []Override, more bool, err error) {
	return page(s.store.AllOverrides(ctx, after, PageMax+1))
}

// AllNamespaces are those of all workspaces that have settings behind one, at most PageMax, by workspace and name; more
// tells whether there are others behind them.
func (s *Settings) AllNamespaces(
	ctx context.Context, afterWorkspace, afterNamespace string,
) (namespaces []Namespace, more bool, err error) {
	return page(s.store.AllNamespaces(ctx, afterWorkspace, afterNamespace, PageMax+1))
}
