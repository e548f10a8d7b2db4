package rules

import (
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func parseWindow(text store.Window) (precise bool, err error) {
	switch text {
	case "", store.WindowCells:
		return false, nil
	case store.WindowPrecise:
		return true, nil
	}
	return false, fmt.Errorf("%w: window is %q (%s or %s)", window.ErrInvalid, text, store.WindowCells,
		store.WindowPrecise)
}

// WindowName returns the name of a window setting, as parseWindow takes it.
func WindowName(precise bool) string {
	if precise {
		return string(store.WindowPrecise)
	}
	return string(store.WindowCells)
}

// setWindow must be called after setMode. A namespace that estimates counts in cells, whatever its window: the estimate
// mode syncs totals of cells, without the times at which their cost was accepted.
func (sp *space) setWindow(row *store.NamespaceRow) (err error) {
	if sp.Precise, err = parseWindow(row.Window); sp.Precise && sp.Estimate != nil {
		sp.Precise = false
		err = fmt.Errorf("%w: window is %q and mode is %q (a precise window takes mode %s)", window.ErrInvalid, row.Window,
			window.Estimate, window.Exact)
	}
	if err != nil {
		return fmt.Errorf("namespace %q/%q: %w", row.Workspace, row.Namespace, err)
	}
	return nil
}
