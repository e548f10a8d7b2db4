package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	// ChangesMax bounds the changes of an estimate.
	ChangesMax = 64

	limitKeysMax  = 200 // keys whose present override is looked up: the keys with most cost
	limitWorstMax = 10  // keys that an estimate names
)

// Change is the new state of an override. A deleted override has only a pattern.
type Change struct {
	Workspace, Namespace, Pattern string
	Limit                         int64
	DurationMs                    int64 // 0: the request's
	Shadow                        bool  // it denies nothing
	Deleted                       bool
}

// Estimate shows how much of the busiest keys' cost the new limits would have denied, in the window that is under way.
// It is based on the cost that nodes report, of at most 20 keys each. So it does not cover the many other keys,
// requests that were denied already, or earlier windows, because no node keeps figures of them.
type Estimate struct {
	Reported  int           // keys that nodes report
	Nodes     int           // that report
	Oldest    time.Duration // age of the oldest report
	Truncated bool          // there are more reports or keys than an estimate reads: all figures are partial

	Matched int   // of Reported, whose limit the changes set
	Unknown int   // of Matched, whose window changes, or whose limit is then the caller's
	Cost    int64 // of Matched without Unknown, in the window
	Denied  int64 // of Cost, beyond the new limits
	Keys    int   // how many keys Denied comes from
	Worst   []Key
}

// Key is a key that a new limit would have denied. The key with most denied cost comes first.
type Key struct {
	Workspace, Namespace, Identifier string
	Cost, Limit                      int64
}

// Store reads the reports and overrides for an estimate. All methods must be safe for concurrent use.
type Store interface {
	TopStore
	OverrideOf(ctx context.Context, workspace, namespace, identifier string) (*Override, error)
}

// EstimateLimits returns which requests the changes would have denied, for keys of the visible
// workspaces.
func EstimateLimits(ctx context.Context, store Store, changes []Change, visible *workspaces.Set,
	liveWithin time.Duration) (e Estimate, err error) {
	if n := len(changes); n < 1 || n > ChangesMax {
		return e, fmt.Errorf("%w: changes has %d (1 to %d)", controlplane.ErrInvalid, n, ChangesMax)
	}
	for i := range changes {
		if err := changes[i].validate(); err != nil {
			return e, fmt.Errorf("changes[%d]: %w", i, err)
		}
	}
	top, err := mergeTopKeys(ctx, store, &TopQuery{Visible: visible}, liveWithin)
	if err != nil {
		return e, err
	}
	e.Reported, e.Nodes, e.Oldest, e.Truncated = len(top.Keys), top.Nodes, top.Oldest, top.Truncated || top.Unreadable > 0
	looked := 0
	for i := range top.Keys { // largest cost first
		k := &top.Keys[i]
		next := changeFor(changes, k)
		if next == nil {
			continue
		}
		if looked++; looked > limitKeysMax {
			e.Truncated = true
			break
		}
		now, err := store.OverrideOf(ctx, k.Workspace, k.Namespace, k.Identifier)
		if err != nil {
			return e, fmt.Errorf("estimate limits: %w", err)
		}
		if now != nil && now.Pattern != next.Pattern && window.ComparePatterns(now.Pattern, next.Pattern) < 0 &&
			!deletes(changes, now) {
			continue // a more specific override stays in force
		}
		e.add(k, next)
	}
	slices.SortStableFunc(e.Worst, func(a, b Key) int { return cmp.Compare(b.Cost-b.Limit, a.Cost-a.Limit) })
	e.Worst = e.Worst[:min(len(e.Worst), limitWorstMax)]
	return e, nil
}

func (c *Change) validate() error {
	if c.Deleted { // an earlier build may have stored a pattern that cannot be set any more
		return validateKey(c.Workspace, c.Namespace, c.Pattern)
	}
	o := Override{Workspace: c.Workspace, Namespace: c.Namespace, Pattern: c.Pattern, Limit: c.Limit,
		DurationMs: c.DurationMs, Shadow: c.Shadow}
	return o.Validate()
}

// changeFor returns the most specific change that a key is under; nil: none is.
func changeFor(changes []Change, k *TopKey) (found *Change) {
	for i := range changes {
		c := &changes[i]
		if c.Workspace == k.Workspace && c.Namespace == k.Namespace &&
			window.Matches(c.Pattern, k.Identifier) &&
			(found == nil || window.ComparePatterns(c.Pattern, found.Pattern) < 0) {
			found = c
		}
	}
	return found
}

// deletes reports whether the changes delete an override.
func deletes(changes []Change, o *Override) bool {
	return slices.ContainsFunc(changes, func(c Change) bool {
		return c.Deleted && c.Workspace == o.Workspace && c.Namespace == o.Namespace && c.Pattern == o.Pattern
	})
}

// add counts a key that a change sets the limit of.
func (e *Estimate) add(k *TopKey, next *Change) {
	e.Matched++
	if next.Deleted || next.DurationMs != 0 && next.DurationMs != k.DurationMs {
		e.Unknown++
		return
	}
	e.Cost = sum(e.Cost, k.Count)
	if next.Shadow || k.Count <= next.Limit {
		return
	}
	e.Keys++
	e.Denied = sum(e.Denied, k.Count-next.Limit)
	e.Worst = append(e.Worst, Key{k.Workspace, k.Namespace, k.Identifier, k.Count, next.Limit})
}
