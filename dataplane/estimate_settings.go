package dataplane

import (
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/window"
)

// estimateSettings are what an operator can set for a namespace in the estimate mode. Immutable.
type estimateSettings struct {
	cell.Rules

	syncBaseMs int64 // what the tiers' intervals are multiples of
	floor      int64 // local cost below which an idle key is not synced
	pendingMax int64 // keys that may wait for a sync
	batchMax   int   // keys that one tick syncs

	overrides map[string]int64 // limits of single identifiers

	waiting *atomic.Int64 // keys that wait for a sync; the same for all settings of a namespace
}

// parseEstimate reads store.NamespaceRow.Estimate.
func parseEstimate(document string) (*estimateSettings, error) {
	set, err := estimate.Parse(document)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if set == nil {
		return nil, err
	}
	return &estimateSettings{
		Rules:      cell.Rules{Leaky: set.Leaky, Offered: set.Offered, Below: set.Below, OutageMs: set.ReadOutageMs},
		syncBaseMs: set.SyncBaseMs, floor: set.Floor, pendingMax: set.PendingMax, batchMax: set.BatchMax,
		overrides: set.Overrides, waiting: new(atomic.Int64),
	}, err
}

// setMode applies a namespace's mode and its settings. What cannot be read leaves in force what
// was, or else the defaults, and the error says so.
func (sp *space) setMode(row *store.NamespaceRow, last *space) error {
	if last == nil {
		last = &space{}
	}
	name := fmt.Sprintf("namespace %q/%q", row.Workspace, row.Namespace)
	mode, err := window.ParseMode(row.Mode)
	if err != nil {
		sp.estimateBy(last.estimate)
		return fmt.Errorf("%s: %w", name, err)
	}
	if mode == window.Exact {
		return nil
	}
	k, err := parseEstimate(row.Estimate)
	switch {
	case k != nil:
		if last.estimate != nil {
			k.waiting = last.estimate.waiting
		}
	case last.estimate != nil:
		k = last.estimate
	default:
		k, _ = parseEstimate("")
	}
	sp.estimateBy(k)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// estimateOf is what is set for a key of the estimate mode; the defaults if its namespace has left it.
func (s *settings) estimateOf(n *cell.Names) *estimateSettings {
	f := n.Family()
	if sp := s.spaces[spaceName{f.Workspace, f.Namespace}]; sp != nil && sp.estimate != nil {
		return sp.estimate
	}
	k, _ := parseEstimate("")
	return k
}

// estimateBy comes before the stored overrides are applied: of one identifier they win.
func (sp *space) estimateBy(k *estimateSettings) {
	sp.estimate = k
	if k == nil {
		return
	}
	for identifier, limit := range k.overrides {
		sp.exact[identifier] = &rule{pattern: identifier, limit: limit}
	}
}
