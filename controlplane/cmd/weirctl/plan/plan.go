// Package plan reads documents of settings, compares them with the settings of a fleet, and plans the calls that change
// the fleet's settings to a document's.
package plan

import (
	"context"
	"slices"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

// Change is one call that apply makes.
type Change struct {
	Action  string `json:"action"`  // add, change or delete
	Subject string `json:"subject"` // as in the audit log
	Text    string `json:"text"`    // description of the change
	Applied bool   `json:"applied"`

	Loses  bool                   `json:"-"` // it deletes something that cannot be restored
	Blocks bool                   `json:"-"` // it blocks every identifier that a pattern matches
	Limit  *controlv1.LimitChange `json:"-"` // nil: it sets no limit

	// Do makes the change.
	Do func(ctx context.Context, f Fleet, actor, reason string) error `json:"-"`
}

// Line describes the change in a line.
func (c *Change) Line() string {
	return map[string]string{"add": "+ ", "change": "~ ", "delete": "- "}[c.Action] + c.Subject + ": " + c.Text
}

// Plan has the changes that make a fleet's settings equal to a document's.
type Plan struct {
	Changes []*Change
	Kept    int // settings that are not in the document, and stay because --prune is not set
	// estimate of the requests that its overrides would have denied; empty: no overrides, or the API has no estimates
	Limits string
}

// Of plans namespaces before overrides, which depend on them, and deletions last. An identifier whose override is
// replaced therefore always has an override, unless the old and the new override do not both fit.
func Of(d *settings.Document, s Stored, prune bool) (p Plan) {
	var deletions []*Change
	there := make(map[settings.Namespace]*controlv1.Namespace)
	for _, n := range s.Namespaces {
		there[namespaceName(limitchange.NamespaceOf(n))] = n
	}
	for _, n := range slices.SortedFunc(slices.Values(d.Namespaces), settings.CompareNamespaces) {
		was := there[namespaceName(n)]
		delete(there, namespaceName(n))
		p.add(changeOfNamespace(n, was))
	}
	for _, n := range s.Namespaces {
		set := limitchange.NamespaceOf(n)
		if there[namespaceName(set)] != nil && !set.IsDefault() {
			back := changeOfNamespace(settings.DefaultNamespace(set.Workspace, set.Namespace), n)
			back.Loses = true
			deletions = append(deletions, back)
		}
	}
	deletions = append(deletions, p.addOverrides(d, s, prune)...)
	if !prune {
		p.Kept = len(deletions)
		return p
	}
	p.Changes = append(p.Changes, deletions...)
	return p
}

func (p *Plan) add(c *Change) {
	if c != nil {
		p.Changes = append(p.Changes, c)
	}
}

// addOverrides plans the overrides and the deletions that new overrides wait for. It returns the other deletions, which
// the caller must add.
func (p *Plan) addOverrides(d *settings.Document, s Stored, prune bool) (deletions []*Change) {
	kept := make(map[settings.Override]bool, len(d.Overrides))
	for _, o := range d.Overrides {
		kept[overrideName(o)] = true
	}
	there, all := make(map[settings.Override]*controlv1.Override, len(s.Overrides)), make(rooms)
	for _, o := range s.Overrides {
		name := overrideName(limitchange.OverrideOf(o))
		there[name] = o
		var deletion *Change
		if !kept[name] {
			deletion = deletionOf(o)
			deletions = append(deletions, deletion)
		}
		all.hold(name, deletion)
	}
	early := make(map[*Change]bool)
	for _, o := range slices.SortedFunc(slices.Values(d.Overrides), settings.CompareOverrides) {
		was := there[overrideName(o)]
		if was == nil && prune {
			for _, deletion := range all.take(o) {
				p.add(deletion)
				early[deletion] = true
			}
		}
		p.add(changeOfOverride(o, was))
	}
	return slices.DeleteFunc(deletions, func(c *Change) bool { return early[c] })
}

func namespaceName(n settings.Namespace) settings.Namespace {
	return settings.Namespace{Workspace: n.Workspace, Namespace: n.Namespace}
}

func overrideName(o settings.Override) settings.Override {
	return settings.Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
}

// changeOfNamespace returns nil if nothing changes. was is nil if the namespace has no settings.
func changeOfNamespace(n settings.Namespace, was *controlv1.Namespace) *Change {
	before, seenMs := settings.DefaultNamespace(n.Workspace, n.Namespace), was.GetUpdatedAtMs()
	action := "add"
	if was != nil {
		before, action = limitchange.NamespaceOf(was), "change"
	}
	if before == n {
		return nil
	}
	return &Change{
		Action: action, Subject: limitchange.NamespaceSubject(n),
		Text: limitchange.NamespaceDifferences(before, n),
		Do: func(ctx context.Context, f Fleet, actor, reason string) error {
			answer, err := apiclient.Ask(ctx, f.Settings.SetNamespace, &controlv1.SetNamespaceRequest{
				Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
				Workspace: n.Workspace, Namespace: n.Namespace,
				Shadow: &n.Shadow, Mode: &n.Mode, Outage: &n.Outage, NodeShare: &n.NodeShare, Window: &n.Window,
				Estimate: &n.Estimate,
			})
			if err != nil {
				return err
			}
			return CheckWindow(answer.GetNamespace(), &n.Window)
		},
	}
}

// changeOfOverride returns nil if nothing changes. was is nil if there is no override.
func changeOfOverride(o settings.Override, was *controlv1.Override) *Change {
	seenMs := was.GetUpdatedAtMs()
	made := &Change{Action: "add", Subject: limitchange.OverrideSubject(o), Text: Words.Override(o)}
	if was != nil {
		if limitchange.OverrideOf(was) == o {
			return nil
		}
		made.Action = "change"
		made.Text = Words.OverrideDifferences(limitchange.OverrideOf(was), o)
	}
	made.Limit = &controlv1.LimitChange{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
		Limit: o.Limit, DurationMs: o.DurationMs, Shadow: o.Shadow}
	made.Blocks = o.Limit == 0 && !o.Shadow && !window.IsExact(o.Pattern)
	made.Do = func(ctx context.Context, f Fleet, actor, reason string) error {
		_, err := apiclient.Ask(ctx, f.Settings.ChangeOverride, &controlv1.ChangeOverrideRequest{
			Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
			Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
			Limit: &o.Limit, DurationMs: &o.DurationMs, Candidate: &o.Candidate, Shadow: &o.Shadow,
		})
		return err
	}
	return made
}

func deletionOf(o *controlv1.Override) *Change {
	seenMs := o.GetUpdatedAtMs()
	return &Change{
		Action: "delete", Subject: limitchange.OverrideSubject(limitchange.OverrideOf(o)), Text: OverrideWords(o),
		Loses: true,
		Limit: &controlv1.LimitChange{Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
			Deleted: true},
		Do: func(ctx context.Context, f Fleet, actor, reason string) error {
			_, err := apiclient.Ask(ctx, f.Settings.DeleteOverride, &controlv1.DeleteOverrideRequest{
				Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
				Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
			})
			return err
		},
	}
}

// Words describes settings with the figures of weirctl.
var Words = limitchange.Words{Count: format.Digits, Span: format.Span}

// OverrideWords describes a whole override, because a change can keep some of its fields.
func OverrideWords(o *controlv1.Override) string { return Words.Override(limitchange.OverrideOf(o)) }
