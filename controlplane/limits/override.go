package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/window"
)

// OverrideChange lists the fields of an override to change. A nil field stays unchanged.
type OverrideChange struct {
	Limit      *int64
	DurationMs *int64
	Candidate  *int64
	Shadow     *bool

	// IfUpdatedMs is the UpdatedAt of the override that the caller has seen, or 0 if there was none. With nil the change
	// applies to any state of the override.
	IfUpdatedMs *int64
}

func (c OverrideChange) apply(o *Override) {
	given(&o.Limit, c.Limit)
	given(&o.DurationMs, c.DurationMs)
	given(&o.Candidate, c.Candidate)
	given(&o.Shadow, c.Shadow)
}

// ChangeOverride changes an override, or creates it, and returns its new state. If the override is not the one with
// IfUpdatedMs, it returns controlplane.ErrConflict.
func (s *Settings) ChangeOverride(ctx context.Context, workspace, namespace, pattern string, change OverrideChange,
	by controlplane.By) (after Override, err error) {
	if err := errors.Join(by.Validate(), validateKey(workspace, namespace, pattern)); err != nil {
		return after, err
	}
	if change == (OverrideChange{IfUpdatedMs: change.IfUpdatedMs}) {
		return after, fmt.Errorf("%w: nothing to change: set limit, duration_ms, candidate or shadow",
			controlplane.ErrInvalid)
	}
	if change.Candidate != nil && *change.Candidate != 0 {
		if err := s.canJudge(ctx, workspace, namespace); err != nil {
			return after, err
		}
	}
	subject := overrideSubject(workspace, namespace, pattern)
	err = s.store.ChangeOverride(ctx, workspace, namespace, pattern,
		func(before *Override) (*Override, audit.Entry, error) {
			after = Override{Workspace: workspace, Namespace: namespace, Pattern: pattern}
			seen := time.Time{}
			if before != nil {
				after, seen = *before, before.UpdatedAt
			}
			if err := asSeen(subject, change.IfUpdatedMs, seen); err != nil {
				return nil, audit.Entry{}, err
			}
			if before == nil && change.Limit == nil {
				return nil, audit.Entry{},
					fmt.Errorf("%w: limit is missing (0 to %d; 0 blocks), and override %q of %s/%s does "+
						"not exist, so there is none to keep", controlplane.ErrInvalid, int64(window.LimitMax), pattern, workspace,
						namespace)
			}
			change.apply(&after)
			after.UpdatedAt = time.Time{} // the database sets it
			if err := after.Validate(); err != nil {
				return nil, audit.Entry{}, err
			}
			e, err := settingEntry(by, "override.set", subject, before, &after)
			return &after, e, err
		})
	return after, err
}

// asSeen returns an error if a setting has changed since the caller read it. A zero time stands for a setting that does
// not exist.
func asSeen(subject string, seenMs *int64, is time.Time) error {
	switch {
	case seenMs == nil, is.IsZero() && *seenMs == 0, !is.IsZero() && is.UnixMilli() == *seenMs:
		return nil
	case is.IsZero():
		return fmt.Errorf("%w: %s does not exist any more", controlplane.ErrConflict, subject)
	case *seenMs == 0:
		return fmt.Errorf("%w: %s exists already, since %s", controlplane.ErrConflict, subject, controlplane.Clock(is))
	}
	return fmt.Errorf("%w: %s was changed at %s, after it was looked at", controlplane.ErrConflict, subject,
		controlplane.Clock(is))
}

// Override returns the override of exactly this pattern; controlplane.ErrNotFound where there is none.
func (s *Settings) Override(ctx context.Context, workspace, namespace, pattern string) (o Override, err error) {
	if err := validateKey(workspace, namespace, pattern); err != nil {
		return o, err
	}
	found, err := s.store.Override(ctx, workspace, namespace, pattern)
	if err != nil {
		return o, err
	}
	if found == nil {
		return o, noOverride(workspace, namespace, pattern)
	}
	return *found, nil
}

func noOverride(workspace, namespace, pattern string) error {
	return fmt.Errorf("%w: there is no override %q of %s/%s", controlplane.ErrNotFound, pattern, workspace, namespace)
}
