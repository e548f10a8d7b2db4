package settings

import (
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/tuning"
)

// Parse reads a document strictly, as JSON if it begins with a brace, else as YAML. The error has a line
// for each of the first few problems.
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

// reader turns a tree into a document.
type reader struct {
	problems
	lines
	read Document
}

func (r *reader) document(root *yaml.Node) {
	kind, version := "", int64(0)
	r.fields(root, place{}, []string{"kind", "version"}, func(field string, n *yaml.Node, at place) bool {
		switch field {
		case "kind":
			kind = r.text(n, at)
		case "version":
			version = r.number(n, at)
		case "tuning":
			r.read.Tuning = r.tuning(n, at)
		case "region_tuning":
			r.regionTuning(n, at)
		case "namespaces":
			r.items(n, field, NamespacesMax, r.namespace)
		case "overrides":
			r.items(n, field, OverridesMax, r.override)
		default:
			return false
		}
		return true
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
	r.fields(item, at, []string{"workspace", "namespace"}, func(field string, value *yaml.Node, at place) bool {
		switch field {
		case "workspace":
			n.Workspace = r.text(value, at)
		case "namespace":
			n.Namespace = r.text(value, at)
		case "shadow":
			n.Shadow = r.truth(value, at)
		case "mode":
			n.Mode = r.text(value, at)
		case "outage":
			n.Outage = r.text(value, at)
		case "node_share":
			n.NodeShare = r.text(value, at)
		case "estimate":
			n.Estimate = r.text(value, at)
		default:
			return false
		}
		return true
	})
	r.read.Namespaces = append(r.read.Namespaces, n)
}

func (r *reader) override(item *yaml.Node, at place) {
	var o Override
	r.lines.overrides = append(r.lines.overrides, at.line)
	required := []string{"workspace", "namespace", "pattern", "limit"}
	r.fields(item, at, required, func(field string, value *yaml.Node, at place) bool {
		switch field {
		case "workspace":
			o.Workspace = r.text(value, at)
		case "namespace":
			o.Namespace = r.text(value, at)
		case "pattern":
			o.Pattern = r.text(value, at)
		case "limit":
			o.Limit = r.number(value, at)
		case "duration_ms":
			o.DurationMs = r.number(value, at)
		case "candidate":
			o.Candidate = r.number(value, at)
		case "shadow":
			o.Shadow = r.truth(value, at)
		default:
			return false
		}
		return true
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

// tuning is nil where there is a problem.
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
