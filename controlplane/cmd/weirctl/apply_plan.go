package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
)

// change is one call that apply makes.
type change struct {
	Action  string `json:"action"`  // add, change or delete
	Subject string `json:"subject"` // of the audit log
	Text    string `json:"text"`    // what changes, in words
	Applied bool   `json:"applied"`

	loses  bool                   // it deletes something for good
	blocks bool                   // it blocks every identifier that a pattern matches
	limit  *controlv1.LimitChange // nil: it sets no limit
	do     func(c *call, actor, reason string) error
}

func (c *change) line() string {
	return map[string]string{"add": "+ ", "change": "~ ", "delete": "- "}[c.Action] + c.Subject + ": " + c.Text
}

// plan is what makes a fleet's settings those of a document.
type plan struct {
	changes []*change
	kept    int    // that are not in the document, and stay without --prune
	limits  string // what its overrides would have denied, in words; empty: it has none, or the API cannot tell
}

// planOf puts namespaces before overrides, which depend on them, and deletions last: an identifier whose override is
// replaced is never without one, unless the new one has no room beside the old one.
func planOf(d *settings.Document, s stored, prune bool) (p plan) {
	var deletions []*change
	there := make(map[settings.Namespace]*controlv1.Namespace)
	for _, n := range s.namespaces {
		there[namespaceName(namespaceOf(n))] = n
	}
	for _, n := range slices.SortedFunc(slices.Values(d.Namespaces), settings.CompareNamespaces) {
		was := there[namespaceName(n)]
		delete(there, namespaceName(n))
		p.add(changeOfNamespace(n, was))
	}
	for _, n := range s.namespaces {
		set := namespaceOf(n)
		if there[namespaceName(set)] != nil && !set.IsDefault() {
			back := changeOfNamespace(settings.DefaultNamespace(set.Workspace, set.Namespace), n)
			back.loses = true
			deletions = append(deletions, back)
		}
	}
	deletions = append(deletions, p.addOverrides(d, s, prune)...)
	if !prune {
		p.kept = len(deletions)
		return p
	}
	p.changes = append(p.changes, deletions...)
	return p
}

func (p *plan) add(c *change) {
	if c != nil {
		p.changes = append(p.changes, c)
	}
}

// addOverrides adds the deletions that a new override waits for; the caller adds the others.
func (p *plan) addOverrides(d *settings.Document, s stored, prune bool) (deletions []*change) {
	kept := make(map[settings.Override]bool, len(d.Overrides))
	for _, o := range d.Overrides {
		kept[overrideName(o)] = true
	}
	there, all := make(map[settings.Override]*controlv1.Override, len(s.overrides)), make(rooms)
	for _, o := range s.overrides {
		name := overrideName(overrideOf(o))
		there[name] = o
		var deletion *change
		if !kept[name] {
			deletion = deletionOf(o)
			deletions = append(deletions, deletion)
		}
		all.hold(name, deletion)
	}
	early := make(map[*change]bool)
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
	return slices.DeleteFunc(deletions, func(c *change) bool { return early[c] })
}

func namespaceName(n settings.Namespace) settings.Namespace {
	return settings.Namespace{Workspace: n.Workspace, Namespace: n.Namespace}
}

func overrideName(o settings.Override) settings.Override {
	return settings.Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
}

// changeOfNamespace is nil where nothing changes; was is nil where nothing is set.
func changeOfNamespace(n settings.Namespace, was *controlv1.Namespace) *change {
	before, seenMs := settings.DefaultNamespace(n.Workspace, n.Namespace), was.GetUpdatedAtMs()
	action := "add"
	if was != nil {
		before, action = namespaceOf(was), "change"
	}
	if before == n {
		return nil
	}
	return &change{
		Action: action, Subject: fmt.Sprintf("namespace %s/%s", n.Workspace, n.Namespace),
		Text: differences([]pair{
			{"mode", before.Mode, n.Mode}, {"outage", before.Outage, n.Outage},
			{"node_share", before.NodeShare, n.NodeShare},
			{"shadow", strconv.FormatBool(before.Shadow), strconv.FormatBool(n.Shadow)},
			{"estimate", orNone(before.Estimate), orNone(n.Estimate)},
		}),
		do: func(c *call, actor, reason string) error {
			_, err := answered(c, c.settings.SetNamespace, &controlv1.SetNamespaceRequest{
				Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
				Workspace: n.Workspace, Namespace: n.Namespace,
				Shadow: &n.Shadow, Mode: &n.Mode, Outage: &n.Outage, NodeShare: &n.NodeShare, Estimate: &n.Estimate,
			})
			return err
		},
	}
}

// changeOfOverride is nil where nothing changes; was is nil where there is none.
func changeOfOverride(o settings.Override, was *controlv1.Override) *change {
	seenMs := was.GetUpdatedAtMs()
	next := &controlv1.Override{Limit: o.Limit, DurationMs: o.DurationMs, Candidate: o.Candidate, Shadow: o.Shadow}
	made := &change{Action: "add", Subject: overrideSubject(o), Text: overrideWords(next)}
	if was != nil {
		if overrideOf(was) == o {
			return nil
		}
		made.Action = "change"
		made.Text = differences([]pair{
			{"limit", overrideLimit(was), overrideLimit(next)}, {"window", overrideWindow(was), overrideWindow(next)},
			{"candidate", format.Digits(was.GetCandidate()), format.Digits(o.Candidate)},
			{"shadow", strconv.FormatBool(was.GetShadow()), strconv.FormatBool(o.Shadow)},
		})
	}
	made.limit = &controlv1.LimitChange{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
		Limit: o.Limit, DurationMs: o.DurationMs, Shadow: o.Shadow}
	made.blocks = o.Limit == 0 && !o.Shadow && strings.Contains(o.Pattern, "*")
	made.do = func(c *call, actor, reason string) error {
		_, err := answered(c, c.settings.ChangeOverride, &controlv1.ChangeOverrideRequest{
			Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
			Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
			Limit: &o.Limit, DurationMs: &o.DurationMs, Candidate: &o.Candidate, Shadow: &o.Shadow,
		})
		return err
	}
	return made
}

func deletionOf(o *controlv1.Override) *change {
	seenMs := o.GetUpdatedAtMs()
	return &change{
		Action: "delete", Subject: overrideSubject(overrideOf(o)), Text: overrideWords(o), loses: true,
		limit: &controlv1.LimitChange{Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
			Deleted: true},
		do: func(c *call, actor, reason string) error {
			_, err := answered(c, c.settings.DeleteOverride, &controlv1.DeleteOverrideRequest{
				Actor: actor, Reason: reason, IfUpdatedAtMs: &seenMs,
				Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
			})
			return err
		},
	}
}

func overrideSubject(o settings.Override) string {
	return fmt.Sprintf("override %s/%s/%s", o.Workspace, o.Namespace, o.Pattern)
}

// pair is a field before and after.
type pair struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// differences are the fields that change.
func differences(fields []pair) string {
	var words []string
	for _, f := range fields {
		if f.From != f.To {
			words = append(words, f.Field+" "+f.From+" -> "+f.To)
		}
	}
	return strings.Join(words, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
