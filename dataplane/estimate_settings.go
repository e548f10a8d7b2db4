package dataplane

import (
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/window"
)

// estimateSettings are what an operator can set for a namespace in the estimate mode. Immutable.
type estimateSettings struct {
	outbox.SyncRules

	floor     int64            // local cost below which an idle key is not synced
	overrides map[string]int64 // limits of single identifiers
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
		SyncRules: outbox.SyncRules{
			Rules:  cell.Rules{Leaky: set.Leaky, Offered: set.Offered, Below: set.Below, OutageMs: set.ReadOutageMs},
			BaseMs: set.SyncBaseMs, PendingMax: set.PendingMax, BatchMax: set.BatchMax, Waiting: new(atomic.Int64)},
		floor: set.Floor, overrides: set.Overrides,
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
			k.Waiting = last.estimate.Waiting
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

// TwoTicksMs implements outbox.Rules.
func (s *settings) TwoTicksMs() int64 { return s.twoTicksMs }

// Shares implements outbox.Rules.
func (s *settings) Shares(n *cell.Names) bool {
	return milliseconds(n.Family().DurationMs) >= s.tuning.MinGlobalDuration.Std()
}

// SyncsOf is what is set for a key of the estimate mode; the defaults if its namespace has left it.
func (s *settings) SyncsOf(n *cell.Names) *outbox.SyncRules {
	f := n.Family()
	if sp := s.spaces[spaceName{f.Workspace, f.Namespace}]; sp != nil && sp.estimate != nil {
		return &sp.estimate.SyncRules
	}
	k, _ := parseEstimate("")
	return &k.SyncRules
}

// estimateBy comes before the stored overrides are applied: of one identifier they win.
func (sp *space) estimateBy(k *estimateSettings) {
	sp.estimate = k
	if k == nil {
		return
	}
	for identifier, limit := range k.overrides {
		sp.exact[identifier] = &override{rule: rule{pattern: identifier}, limit: limit}
	}
}
