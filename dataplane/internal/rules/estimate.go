package rules

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/window"
)

// Estimate holds the settings that an operator can set for a namespace in the estimate mode. Immutable.
type Estimate struct {
	cell.Rules

	SyncBaseMs int64 // the tiers' intervals are multiples of it
	Floor      int64 // local cost below which an idle key is not synced
	PendingMax int64 // keys that may wait for a sync
	BatchMax   int   // keys that a tick syncs

	overrides map[string]int64 // limits of single identifiers

	Waiting *atomic.Int64 // keys that wait for a sync; the same for all settings of a namespace
}

// parseEstimate reads store.NamespaceRow.Estimate.
func parseEstimate(document string) (*Estimate, error) {
	set, err := estimate.Parse(document)
	if err != nil {
		err = fmt.Errorf("%w: %w", window.ErrInvalid, err)
	}
	if set == nil {
		return nil, err
	}
	return &Estimate{
		Rules:      cell.Rules{Leaky: set.Leaky, Offered: set.Offered, Below: set.Below, OutageMs: set.ReadOutageMs},
		SyncBaseMs: set.SyncBaseMs, Floor: set.Floor, PendingMax: set.PendingMax, BatchMax: set.BatchMax,
		overrides: set.Overrides, Waiting: new(atomic.Int64),
	}, err
}

// setMode applies a namespace's mode and its settings. If a setting can't be read, the first of the earlier settings
// stays in force, or else the default, and setMode returns an error.
func (sp *space) setMode(row *store.NamespaceRow, earlier []*space) error {
	last := earlier[0]
	name := fmt.Sprintf("namespace %q/%q", row.Workspace, row.Namespace)
	mode, err := window.ParseMode(row.Mode)
	if err != nil {
		sp.estimateBy(last.Estimate)
		return fmt.Errorf("%s: %w", name, err)
	}
	if mode == window.Exact {
		return nil
	}
	k, err := parseEstimate(row.Estimate)
	switch {
	case k != nil:
		if i := slices.IndexFunc(earlier, func(e *space) bool { return e.Estimate != nil }); i >= 0 {
			k.Waiting = earlier[i].Estimate.Waiting
		}
	case last.Estimate != nil:
		k = last.Estimate
	default:
		k, _ = parseEstimate("")
	}
	sp.estimateBy(k)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// EstimateOf returns the settings for a key of the estimate mode, or the defaults if its namespace has left the mode.
func (s *Settings) EstimateOf(n *cell.Names) *Estimate {
	f := n.Family()
	if sp := s.spaces[spaceName{f.Workspace, f.Namespace}]; sp != nil && sp.Estimate != nil {
		return sp.Estimate
	}
	k, _ := parseEstimate("")
	return k
}

// estimateBy must be called before the stored overrides are applied, because these win if both name an identifier.
func (sp *space) estimateBy(k *Estimate) {
	sp.Estimate = k
	if k == nil {
		return
	}
	for identifier, limit := range k.overrides {
		sp.exact[identifier] = &Rule{Pattern: identifier, Limit: limit}
	}
}
