package limits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	// EstimateBytesMax bounds Namespace.Estimate.
	EstimateBytesMax = estimate.DocumentBytesMax
)

// Override is the limit of an identifier, or of all identifiers that a network or a pattern with '*' matches.
type Override struct {
	Workspace  string    `json:"workspace"`
	Namespace  string    `json:"namespace"`
	Pattern    string    `json:"pattern"`
	Limit      int64     `json:"limit"`       // 0 blocks
	DurationMs int64     `json:"duration_ms"` // 0 keeps the request's
	Candidate  int64     `json:"candidate"`   // evaluated too, without an effect on decisions; 0 for none
	Shadow     bool      `json:"shadow"`      // lets denied requests pass
	UpdatedAt  time.Time `json:"-"`           // of a listing
}

// Validate returns the first field with which the override cannot be set.
func (o Override) Validate() error {
	set := settings.Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern, Limit: o.Limit,
		DurationMs: o.DurationMs, Candidate: o.Candidate, Shadow: o.Shadow}
	return invalid(set.Problem())
}

func invalid(problem string) error {
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", controlplane.ErrInvalid, problem)
}

func validateKey(workspace, namespace, pattern string) error {
	return cmp.Or(validateSpace(workspace, namespace),
		controlplane.ValidateText("pattern", pattern, window.IdentifierBytesMax))
}

func validateSpace(workspace, namespace string) error {
	return cmp.Or(controlplane.ValidateText("workspace", workspace, window.WorkspaceBytesMax),
		controlplane.ValidateText("namespace", namespace, window.NamespaceBytesMax))
}

// Namespace holds the settings of a namespace. A namespace without a row runs DefaultNamespace.
type Namespace struct {
	Workspace string    `json:"workspace"`
	Namespace string    `json:"namespace"`
	Shadow    bool      `json:"shadow"`
	Mode      string    `json:"mode"`       // exact or estimate
	Outage    string    `json:"outage"`     // local, open or closed
	NodeShare string    `json:"node_share"` // wait or flush
	Window    string    `json:"window"`     // cells or precise, which the estimate mode does not take
	Estimate  string    `json:"estimate"`   // JSON: knobs of the estimate mode; empty for its defaults
	UpdatedAt time.Time `json:"-"`          // of a listing
}

// DefaultNamespace returns a namespace without settings.
func DefaultNamespace(workspace, namespace string) Namespace {
	d := settings.DefaultNamespace(workspace, namespace)
	return Namespace{Workspace: workspace, Namespace: namespace, Mode: d.Mode, Outage: d.Outage, NodeShare: d.NodeShare,
		Window: d.Window}
}

// Validate returns the first field that nodes would reject.
func (n Namespace) Validate() error {
	if err := validateEstimate(n.Estimate); err != nil {
		return err
	}
	set := settings.Namespace{Workspace: n.Workspace, Namespace: n.Namespace, Shadow: n.Shadow, Mode: n.Mode,
		Outage: n.Outage, NodeShare: n.NodeShare, Window: n.Window, Estimate: n.Estimate}
	return invalid(set.Problem())
}

// NamespaceChange lists the settings of a namespace to change. A nil field stays unchanged.
type NamespaceChange struct {
	Shadow    *bool
	Mode      *string
	Outage    *string
	NodeShare *string
	Window    *string
	Estimate  *string

	IfUpdatedMs *int64 // as of OverrideChange
}

func (c NamespaceChange) apply(n *Namespace) {
	given(&n.Shadow, c.Shadow)
	given(&n.Mode, c.Mode)
	given(&n.Outage, c.Outage)
	given(&n.NodeShare, c.NodeShare)
	given(&n.Window, c.Window)
	given(&n.Estimate, c.Estimate)
}

func given[T any](to *T, value *T) {
	if value != nil {
		*to = *value
	}
}

// SettingsStore stores operators' settings. ChangeOverride and ChangeNamespace must write a row and its audit row in a
// single transaction. They must call change with the present row, or nil. If change returns an error, they must write
// nothing. If another call changes the same row meanwhile, they must call change again. All methods must be safe for
// concurrent use.
type SettingsStore interface {
	ChangeOverride(ctx context.Context, workspace, namespace, pattern string,
		change func(before *Override) (after *Override, e audit.Entry, err error)) error
	Override(ctx context.Context, workspace, namespace, pattern string) (*Override, error) // nil for none
	Overrides(ctx context.Context, workspace, namespace, after string, rows int) ([]Override, error)
	AllOverrides(ctx context.Context, of *workspaces.Set, after OverrideName, rows int) ([]Override, error)
	ChangeNamespace(ctx context.Context, workspace, namespace string,
		change func(before *Namespace) (after Namespace, e audit.Entry, err error)) error
	Namespace(ctx context.Context, workspace, namespace string) (*Namespace, error) // nil for none
	Namespaces(ctx context.Context, workspace, after string, rows int) ([]Namespace, error)
	AllNamespaces(ctx context.Context, of *workspaces.Set, afterWorkspace, afterNamespace string,
		rows int) ([]Namespace, error)
	// ChangeReset is like ChangeOverride. live is the number of resets.
	ChangeReset(ctx context.Context, workspace, namespace, identifier string,
		change func(before *Reset, live int64, now time.Time) (Reset, audit.Entry, error)) error
	Resets(ctx context.Context, workspace, namespace string, rows int) ([]Reset, error)
}

// Settings changes overrides and namespaces, and resets keys, each in a single transaction with its audit row. Nodes
// apply a change within two settings intervals: see the documentation of the package.
type Settings struct{ store SettingsStore }

// NewSettings returns settings kept in store.
func NewSettings(store SettingsStore) *Settings { return &Settings{store} }

// SetOverride sets an override, whichever state it had before.
func (s *Settings) SetOverride(ctx context.Context, o Override, by controlplane.By) error {
	if err := errors.Join(by.Validate(), o.Validate()); err != nil {
		return err
	}
	if o.Candidate != 0 {
		if err := s.canJudge(ctx, o.Workspace, o.Namespace); err != nil {
			return err
		}
	}
	return s.store.ChangeOverride(ctx, o.Workspace, o.Namespace, o.Pattern,
		func(before *Override) (*Override, audit.Entry, error) {
			e, err := settingEntry(by, "override.set", overrideSubject(o.Workspace, o.Namespace, o.Pattern), before, &o)
			return &o, e, err
		})
}

// canJudge returns an error if nodes of the namespace cannot judge candidates. If the namespace is changed later, nodes
// report the problem themselves.
func (s *Settings) canJudge(ctx context.Context, workspace, namespace string) error {
	n, err := s.store.Namespace(ctx, workspace, namespace)
	if err != nil || n == nil || n.Mode != "estimate" {
		return err
	}
	if knobs, _ := estimate.Parse(n.Estimate); knobs != nil && knobs.Leaky {
		return fmt.Errorf("%w: candidate is set, and %s/%s estimates with a leaky drain: what has drained depends on "+
			"the limit", controlplane.ErrInvalid, workspace, namespace)
	}
	return nil
}

// DeleteOverride deletes an override. If the override does not exist, it returns controlplane.ErrNotFound. If its
// UpdatedAt is not ifUpdatedMs, it returns controlplane.ErrConflict. With nil it deletes the override in any state.
func (s *Settings) DeleteOverride(ctx context.Context, workspace, namespace, pattern string, ifUpdatedMs *int64,
	by controlplane.By) error {
	if err := errors.Join(by.Validate(), validateKey(workspace, namespace, pattern)); err != nil {
		return err
	}
	subject := overrideSubject(workspace, namespace, pattern)
	return s.store.ChangeOverride(ctx, workspace, namespace, pattern,
		func(before *Override) (*Override, audit.Entry, error) {
			if before == nil {
				return nil, audit.Entry{}, noOverride(workspace, namespace, pattern)
			}
			if err := asSeen(subject, ifUpdatedMs, before.UpdatedAt); err != nil {
				return nil, audit.Entry{}, err
			}
			e, err := settingEntry(by, "override.delete", subject, before, (*Override)(nil))
			return nil, e, err
		})
}

// Overrides returns the overrides of a namespace after a pattern, in the order of patterns, at most
// controlplane.PageMax. more reports whether others follow.
func (s *Settings) Overrides(ctx context.Context, workspace, namespace,
	after string) (overrides []Override, more bool, err error) {
	if err := validateSpace(workspace, namespace); err != nil {
		return nil, false, err
	}
	return controlplane.Page(s.store.Overrides(ctx, workspace, namespace, after, controlplane.PageMax+1))
}

// SetNamespace changes a namespace's settings, and returns all of them. If the settings are not those with IfUpdatedMs,
// it returns controlplane.ErrConflict.
func (s *Settings) SetNamespace(ctx context.Context, workspace, namespace string, change NamespaceChange,
	by controlplane.By) (after Namespace, err error) {
	if err := errors.Join(by.Validate(), validateSpace(workspace, namespace)); err != nil {
		return after, err
	}
	if change == (NamespaceChange{IfUpdatedMs: change.IfUpdatedMs}) {
		return after, fmt.Errorf("%w: nothing to change: set shadow, mode, outage, node_share, window or estimate",
			controlplane.ErrInvalid)
	}
	err = s.store.ChangeNamespace(ctx, workspace, namespace, func(before *Namespace) (Namespace, audit.Entry,
		error) {
		after = DefaultNamespace(workspace, namespace)
		seen := time.Time{}
		if before != nil {
			after, seen = *before, before.UpdatedAt
		}
		if err := asSeen(namespaceSubject(workspace, namespace), change.IfUpdatedMs, seen); err != nil {
			return after, audit.Entry{}, err
		}
		change.apply(&after)
		after.UpdatedAt = time.Time{} // the database sets it
		if err := after.Validate(); err != nil {
			return after, audit.Entry{}, err
		}
		e, err := settingEntry(by, "namespace.set", namespaceSubject(workspace, namespace), before, &after)
		return after, e, err
	})
	return after, err
}

// Namespaces returns the namespaces of a workspace that have settings, after a name, in the order of names, at most
// controlplane.PageMax. more reports whether others follow.
func (s *Settings) Namespaces(ctx context.Context, workspace,
	after string) (namespaces []Namespace, more bool, err error) {
	if err := controlplane.ValidateText("workspace", workspace, window.WorkspaceBytesMax); err != nil {
		return nil, false, err
	}
	return controlplane.Page(s.store.Namespaces(ctx, workspace, after, controlplane.PageMax+1))
}

// Namespace returns the settings of a namespace, or controlplane.ErrNotFound if it has none.
func (s *Settings) Namespace(ctx context.Context, workspace, namespace string) (Namespace, error) {
	if err := validateSpace(workspace, namespace); err != nil {
		return Namespace{}, err
	}
	n, err := s.store.Namespace(ctx, workspace, namespace)
	if err == nil && n == nil {
		err = fmt.Errorf("%w: namespace %s/%s has no settings of its own", controlplane.ErrNotFound, workspace, namespace)
	}
	if err != nil {
		return Namespace{}, err
	}
	return *n, nil
}

func overrideSubject(workspace, namespace, pattern string) string {
	return fmt.Sprintf("override %s/%s/%s", workspace, namespace, pattern)
}

func namespaceSubject(workspace, namespace string) string {
	return fmt.Sprintf("namespace %s/%s", workspace, namespace)
}

// OverrideEntry returns the audit row of a change of an override; nil is no override.
func OverrideEntry(by controlplane.By, before, after *Override) (audit.Entry, error) {
	of, action := after, "override.set"
	if of == nil {
		of, action = before, "override.delete"
	}
	return settingEntry(by, action, overrideSubject(of.Workspace, of.Namespace, of.Pattern), before, after)
}

// NamespaceEntry returns the audit row of a change of a namespace's settings; nil is no settings.
func NamespaceEntry(by controlplane.By, before, after *Namespace) (audit.Entry, error) {
	return settingEntry(by, "namespace.set", namespaceSubject(after.Workspace, after.Namespace), before, after)
}

// settingEntry returns the audit row of a change; nil is nothing there.
func settingEntry[T any](by controlplane.By, action, subject string, before, after *T) (e audit.Entry,
	err error) {
	e = audit.Entry{By: by, Action: action, Subject: subject}
	for to, v := range map[*string]*T{&e.Before: before, &e.After: after} {
		if v == nil {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return e, err
		}
		*to = string(b)
	}
	return e, e.Validate()
}

// validateEstimate returns an error for a document that a node would reject. So operators see the error at once, and
// not in a heartbeat.
func validateEstimate(document string) error {
	if _, err := estimate.Parse(document); err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return nil
}
