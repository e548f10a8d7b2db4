package limitchange

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

// Words describes changes with the figures of a surface. Both fields are required.
type Words struct {
	Count func(int64) string    // writes a whole number
	Span  func(ms int64) string // writes a duration
}

// Line describes an item of a change. Names in it are as operators typed them.
type Line struct {
	Sign    string // "+", "~" or "-"
	Subject string // as in the audit log, for example "override acme/api/user_*"
	Text    string // what changes, or the whole override if it is created or deleted
}

func (l Line) String() string { return l.Sign + " " + l.Subject + ": " + l.Text }

// Lines describes a change, an item a line, namespaces first.
func (w Words) Lines(c settings.Change) []Line {
	lines := make([]Line, 0, c.Items())
	for _, n := range c.Namespaces {
		sign := "~"
		if n.Before.IsDefault() {
			sign = "+" // it has had no settings
		}
		lines = append(lines, Line{sign, NamespaceSubject(n.After), NamespaceDifferences(n.Before, n.After)})
	}
	for _, o := range c.Overrides {
		line := Line{"~", OverrideSubject(o.Name()), ""}
		switch {
		case o.Before != nil && o.After != nil:
			line.Text = w.OverrideDifferences(*o.Before, *o.After)
		case o.Before != nil:
			line.Sign, line.Text = "-", w.Override(*o.Before)
		case o.After != nil:
			line.Sign, line.Text = "+", w.Override(*o.After)
		}
		lines = append(lines, line)
	}
	return lines
}

// NamespaceSubject returns the subject of a namespace's changes in the audit log.
func NamespaceSubject(n settings.Namespace) string {
	return fmt.Sprintf("namespace %s/%s", n.Workspace, n.Namespace)
}

// OverrideSubject returns the subject of an override's changes in the audit log.
func OverrideSubject(o settings.Override) string {
	return fmt.Sprintf("override %s/%s/%s", o.Workspace, o.Namespace, o.Pattern)
}

// Pair is a field before and after a change.
type Pair struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Differences lists the fields that change.
func Differences(fields []Pair) string {
	var words []string
	for _, f := range fields {
		if f.From != f.To {
			words = append(words, f.Field+" "+f.From+" -> "+f.To)
		}
	}
	return strings.Join(words, ", ")
}

// NamespaceDifferences lists the settings of a namespace that change.
func NamespaceDifferences(was, is settings.Namespace) string {
	return Differences([]Pair{
		{"mode", was.Mode, is.Mode}, {"outage", was.Outage, is.Outage}, {"node_share", was.NodeShare, is.NodeShare},
		{"window", was.Window, is.Window},
		{"shadow", strconv.FormatBool(was.Shadow), strconv.FormatBool(is.Shadow)},
		{"estimate", cmp.Or(was.Estimate, "-"), cmp.Or(is.Estimate, "-")},
	})
}

// OverrideDifferences lists the fields of an override that change.
func (w Words) OverrideDifferences(was, is settings.Override) string {
	return Differences([]Pair{
		{"limit", w.Limit(was.Limit), w.Limit(is.Limit)}, {"window", w.Window(was.DurationMs), w.Window(is.DurationMs)},
		{"candidate", w.Count(was.Candidate), w.Count(is.Candidate)},
		{"shadow", strconv.FormatBool(was.Shadow), strconv.FormatBool(is.Shadow)},
	})
}

// Override describes a whole override, because a change can keep some of its fields.
func (w Words) Override(o settings.Override) string {
	text := "limit " + w.Limit(o.Limit) + ", window " + w.Window(o.DurationMs)
	if o.Candidate > 0 {
		text += ", candidate " + w.Count(o.Candidate)
	}
	if o.Shadow {
		text += ", shadow"
	}
	return text
}

// Limit describes an override's limit.
func (w Words) Limit(limit int64) string {
	switch limit {
	case 0:
		return "0 (blocks)"
	case window.LimitMax:
		return "unlimited"
	}
	return w.Count(limit)
}

// Window describes an override's window.
func (w Words) Window(ms int64) string {
	if ms > 0 {
		return w.Span(ms)
	}
	return "of the request"
}
