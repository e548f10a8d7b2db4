package settings

import (
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/tuning"
)

// Parse reads a document strictly: as JSON if it begins with a brace, and otherwise as YAML. The error has a line for
// each of the first few problems.
func Parse(text []byte) (*Document, error) {
	if len(text) > BytesMax {
		return nil, fmt.Errorf("%w: it is %d bytes long (at most %d)", ErrInvalid, len(text), BytesMax)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not valid UTF-8", ErrInvalid)
	}
	root, err := tree(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
	}
	var r reader
	r.document(root)
	if len(r.listed) == 0 {
		r.read.check(&r.problems, r.lines)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return &r.read, nil
}

// reader converts a tree into a document.
type reader struct {
	problems
	lines
	read Document
}

func (r *reader) document(root *yaml.Node) {
	kind, version := "", int64(0)
	r.fields(root, place{}, []string{"kind", "version"}, map[string]any{
		"kind": &kind, "version": &version,
		"tuning":        func(n *yaml.Node, at place) { r.read.Tuning = r.tuning(n, at) },
		"region_tuning": r.regionTuning,
		"namespaces":    func(n *yaml.Node, at place) { r.items(n, at.field, NamespacesMax, r.namespace) },
		"overrides":     func(n *yaml.Node, at place) { r.items(n, at.field, OverridesMax, r.override) },
	})
	if kind != Kind && len(r.listed) == 0 {
		r.add(place{field: "kind"}, "is %.64q, want %s", kind, Kind)
	}
	if version != Version && len(r.listed) == 0 {
		r.add(place{field: "version"}, "is %d, want %d", version, Version)
	}
}

func (r *reader) namespace(item *yaml.Node, at place) {
	n := DefaultNamespace("", "")
	r.lines.namespaces = append(r.lines.namespaces, at.line)
	r.fields(item, at, []string{"workspace", "namespace"}, map[string]any{
		"workspace": &n.Workspace, "namespace": &n.Namespace, "shadow": &n.Shadow, "mode": &n.Mode, "outage": &n.Outage,
		"node_share": &n.NodeShare, "window": &n.Window, "estimate": &n.Estimate,
	})
	r.read.Namespaces = append(r.read.Namespaces, n)
}

func (r *reader) override(item *yaml.Node, at place) {
	var o Override
	r.lines.overrides = append(r.lines.overrides, at.line)
	r.fields(item, at, []string{"workspace", "namespace", "pattern", "limit"}, map[string]any{
		"workspace": &o.Workspace, "namespace": &o.Namespace, "pattern": &o.Pattern, "limit": &o.Limit,
		"duration_ms": &o.DurationMs, "candidate": &o.Candidate, "shadow": &o.Shadow,
	})
	r.read.Overrides = append(r.read.Overrides, o)
}

func (r *reader) regionTuning(n *yaml.Node, at place) {
	if n.Kind != yaml.MappingNode {
		r.add(at, "is not a mapping of regions to their tuning")
		return
	}
	if regions := len(n.Content) / 2; regions > RegionsMax {
		r.add(at, "has %d regions (at most %d)", regions, RegionsMax)
		return
	}
	r.read.RegionTuning = make(map[string]tuning.Tuning, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		region := r.text(key, place{list: at.field, at: -1, line: key.Line})
		in := place{list: at.field, at: -1, field: region, line: key.Line}
		if _, twice := r.read.RegionTuning[region]; twice {
			r.add(in, "appears twice")
			continue
		}
		if t := r.tuning(n.Content[i+1], in); t != nil {
			r.read.RegionTuning[region] = *t
		}
	}
}

// tuning reads a tuning. It returns nil if there is a problem.
func (r *reader) tuning(n *yaml.Node, at place) *tuning.Tuning {
	text, err := asJSON(nil, n)
	if err == nil {
		var t tuning.Tuning
		if t, err = tuning.Parse(text); err == nil {
			return &t
		}
	}
	r.add(at, "is refused: %v", err)
	return nil
}
