// Package document reads and writes all settings of a fleet as YAML or JSON. weirctl exports and applies this document,
// and a node without MySQL and Redis runs by it:
//
//	kind: weir-settings
//	version: 1
//	tuning: {floor: 0.1, …}                # of the fleet, every field; left out: the default
//	region_tuning:                         # of regions that have their own
//	  "eu": {floor: 0.2, …}
//	namespaces:
//	  - {workspace: "acme", namespace: "api", mode: exact, outage: open, node_share: flush, shadow: true}
//	  - {workspace: "acme", namespace: "login", window: precise}
//	  - {workspace: "acme", namespace: "ai", mode: estimate, estimate: "{\"preset\":\"posthog\"}"}
//	overrides:
//	  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 100, duration_ms: 60000, shadow: true}
//
// Parse is strict: a field that is unknown, there twice or out of its bounds is an error that names its place. Resets
// of keys are events, not settings, and are not part of it.
package document

import (
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/internal/problems"
	"github.com/weirhq/weir/shared/tuning"
)

// The beginning of every document.
const (
	Kind    = "weir-settings"
	Version = 1
)

// BytesMax bounds a document.
const BytesMax = 16 << 20

// Parse reads a document strictly: as JSON if it begins with a brace, and otherwise as YAML. The error has a line for
// each of the first few problems.
func Parse(text []byte) (*settings.Document, error) {
	if len(text) > BytesMax {
		return nil, fmt.Errorf("%w: it is %d bytes long (at most %d)", settings.ErrInvalid, len(text), BytesMax)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not valid UTF-8", settings.ErrInvalid)
	}
	root, err := tree(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", settings.ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
	}
	var r reader
	r.document(root)
	if err := r.Err(settings.ErrInvalid); err != nil {
		return nil, err
	}
	if err := r.read.ValidateLines(r.lines); err != nil {
		return nil, err
	}
	return &r.read, nil
}

// reader converts a tree into a document.
type reader struct {
	problems.List
	read  settings.Document
	lines settings.Lines
}

func (r *reader) document(root *yaml.Node) {
	kind, version := "", int64(0)
	r.fields(root, problems.Place{}, []string{"kind", "version"}, map[string]any{
		"kind": &kind, "version": &version,
		"tuning":        func(n *yaml.Node, at problems.Place) { r.read.Tuning = r.tuning(n, at) },
		"region_tuning": r.regionTuning,
		"namespaces":    func(n *yaml.Node, at problems.Place) { r.items(n, at.Field, settings.NamespacesMax, r.namespace) },
		"overrides":     func(n *yaml.Node, at problems.Place) { r.items(n, at.Field, settings.OverridesMax, r.override) },
	})
	if kind != Kind && r.None() {
		r.Add(problems.Place{Field: "kind"}, "is %.64q, want %s", kind, Kind)
	}
	if version != Version && r.None() {
		r.Add(problems.Place{Field: "version"}, "is %d, want %d", version, Version)
	}
}

func (r *reader) namespace(item *yaml.Node, at problems.Place) {
	n := settings.DefaultNamespace("", "")
	r.lines.Namespaces = append(r.lines.Namespaces, at.Line)
	r.fields(item, at, []string{"workspace", "namespace"}, map[string]any{
		"workspace": &n.Workspace, "namespace": &n.Namespace, "shadow": &n.Shadow, "mode": &n.Mode, "outage": &n.Outage,
		"node_share": &n.NodeShare, "window": &n.Window, "estimate": &n.Estimate,
	})
	r.read.Namespaces = append(r.read.Namespaces, n)
}

func (r *reader) override(item *yaml.Node, at problems.Place) {
	var o settings.Override
	r.lines.Overrides = append(r.lines.Overrides, at.Line)
	r.fields(item, at, []string{"workspace", "namespace", "pattern", "limit"}, map[string]any{
		"workspace": &o.Workspace, "namespace": &o.Namespace, "pattern": &o.Pattern, "limit": &o.Limit,
		"duration_ms": &o.DurationMs, "candidate": &o.Candidate, "shadow": &o.Shadow,
	})
	r.read.Overrides = append(r.read.Overrides, o)
}

func (r *reader) regionTuning(n *yaml.Node, at problems.Place) {
	if n.Kind != yaml.MappingNode {
		r.Add(at, "is not a mapping of regions to their tuning")
		return
	}
	if regions := len(n.Content) / 2; regions > settings.RegionsMax {
		r.Add(at, "has %d regions (at most %d)", regions, settings.RegionsMax)
		return
	}
	r.read.RegionTuning = make(map[string]tuning.Tuning, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		region := r.text(key, problems.Place{List: at.Field, At: -1, Line: key.Line})
		in := problems.Place{List: at.Field, At: -1, Field: region, Line: key.Line}
		if _, twice := r.read.RegionTuning[region]; twice {
			r.Add(in, "appears twice")
			continue
		}
		if t := r.tuning(n.Content[i+1], in); t != nil {
			r.read.RegionTuning[region] = *t
		}
	}
}

// tuning reads a tuning. It returns nil if there is a problem.
func (r *reader) tuning(n *yaml.Node, at problems.Place) *tuning.Tuning {
	text, err := asJSON(nil, n)
	if err == nil {
		var t tuning.Tuning
		if t, err = tuning.Parse(text); err == nil {
			return &t
		}
	}
	r.Add(at, "is refused: %v", err)
	return nil
}
