// Package limitchange converts changes of limits between documents and messages of the operators' API, and describes
// them for people. weirctl, the console and the API share it.
package limitchange

import (
	"cmp"
	"fmt"
	"strings"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
)

// NamespaceOf converts a stored namespace to its form in a document, with WindowOf.
func NamespaceOf(n *controlv1.Namespace) settings.Namespace {
	in := namespaceOf(n)
	in.Window = WindowOf(n)
	return in
}

func namespaceOf(n *controlv1.Namespace) settings.Namespace {
	return settings.Namespace{
		Workspace: n.GetWorkspace(), Namespace: n.GetNamespace(), Shadow: n.GetShadow(),
		Mode: n.GetMode(), Outage: n.GetOutage(), NodeShare: n.GetNodeShare(), Window: n.GetWindow(),
		Estimate: n.GetEstimate(),
	}
}

// WindowOf returns how a namespace counts a duration. A weir-control of an earlier build counts only in cells and
// returns no window.
func WindowOf(n *controlv1.Namespace) string {
	return cmp.Or(n.GetWindow(), settings.DefaultNamespace("", "").Window)
}

// OverrideOf converts an override to its form in a document.
func OverrideOf(o *controlv1.Override) settings.Override {
	return settings.Override{
		Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
		Limit: o.GetLimit(), DurationMs: o.GetDurationMs(), Candidate: o.GetCandidate(), Shadow: o.GetShadow(),
	}
}

// Of converts a message to a change. A side of an override that is absent stays absent, and so does a window: every
// build that knows changes of limits sends windows.
func Of(m *controlv1.LimitsChange) (c settings.Change) {
	for _, n := range m.GetNamespaces() {
		c.Namespaces = append(c.Namespaces, settings.NamespaceChange{Before: namespaceOf(n.GetBefore()),
			After: namespaceOf(n.GetAfter())})
	}
	side := func(o *controlv1.Override) *settings.Override {
		if o == nil {
			return nil
		}
		return new(OverrideOf(o))
	}
	for _, o := range m.GetOverrides() {
		c.Overrides = append(c.Overrides, settings.OverrideChange{Before: side(o.GetBefore()), After: side(o.GetAfter())})
	}
	return c
}

// Message converts a change to its message. It replaces invalid UTF-8 in names, because a message cannot have it.
func Message(c settings.Change) *controlv1.LimitsChange {
	m := &controlv1.LimitsChange{}
	for _, n := range c.Namespaces {
		m.Namespaces = append(m.Namespaces, &controlv1.NamespaceChange{Before: namespaceMessage(n.Before),
			After: namespaceMessage(n.After)})
	}
	for _, o := range c.Overrides {
		m.Overrides = append(m.Overrides, &controlv1.OverrideChange{Before: overrideMessage(o.Before),
			After: overrideMessage(o.After)})
	}
	return m
}

func namespaceMessage(n settings.Namespace) *controlv1.Namespace {
	return &controlv1.Namespace{
		Workspace: valid(n.Workspace), Namespace: valid(n.Namespace), Shadow: n.Shadow, Mode: n.Mode, Outage: n.Outage,
		NodeShare: n.NodeShare, Window: n.Window, Estimate: n.Estimate,
	}
}

func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func overrideMessage(o *settings.Override) *controlv1.Override {
	if o == nil {
		return nil
	}
	return &controlv1.Override{Workspace: valid(o.Workspace), Namespace: valid(o.Namespace), Pattern: valid(o.Pattern),
		Limit: o.Limit, DurationMs: o.DurationMs, Candidate: o.Candidate, Shadow: o.Shadow}
}

// Protected reads WORKSPACE/NAMESPACE/PATTERN. Only a pattern can contain a slash, because the text is split at the
// first two.
func Protected(text string) (*controlv1.ProtectedCaller, error) {
	parts := strings.SplitN(text, "/", 3)
	if len(parts) < 3 {
		return nil, fmt.Errorf("%.300q is no protected caller (want WORKSPACE/NAMESPACE/PATTERN, for example "+
			"acme/api/partner_*)", text)
	}
	p := settings.Protected{Workspace: parts[0], Namespace: parts[1], Pattern: parts[2]}
	if problem := p.Problem(); problem != "" {
		return nil, fmt.Errorf("protected caller %.300q: %s", text, problem)
	}
	return &controlv1.ProtectedCaller{Workspace: p.Workspace, Namespace: p.Namespace, Pattern: p.Pattern}, nil
}

// Check returns an error if a rollout could not stage the change: if an item is invalid, if there are too many items,
// or if the change and the protected callers are too long for a trial.
func Check(c settings.Change, protected []*controlv1.ProtectedCaller) error {
	trial := settings.LimitsTrial{Mode: settings.TrialEnforce, Change: c}
	for _, p := range protected {
		trial.Protected = append(trial.Protected, settings.Protected{Workspace: p.GetWorkspace(), Namespace: p.GetNamespace(),
			Pattern: p.GetPattern()})
	}
	_, err := trial.Document()
	return err
}
