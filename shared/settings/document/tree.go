package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/settings/internal/problems"
	"github.com/weirhq/weir/shared/strict"
)

// depthMax is more levels than a document has.
const depthMax = 8

// tree parses the text's only document into YAML's nodes, whether the text is JSON or YAML.
func tree(text []byte) (*yaml.Node, error) {
	if begin := bytes.TrimLeft(text, " \t\r\n"); len(begin) > 0 && begin[0] == '{' {
		r := jsonReader{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1}
		r.dec.UseNumber()
		root, err := r.node(0)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
		if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("text after the document's end")
		}
		return root, nil
	}
	var document yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the document's end")
	}
	if len(document.Content) != 1 {
		return nil, errors.New("it is empty")
	}
	return document.Content[0], nil
}

// jsonReader converts JSON into YAML's nodes, because package yaml does not read all of JSON: for example, no surrogate
// pairs.
type jsonReader struct {
	dec    *json.Decoder
	text   []byte
	line   int // of the latest token
	passed int // bytes up to there
}

func (r *jsonReader) node(depth int) (*yaml.Node, error) {
	token, err := r.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	offset := int(r.dec.InputOffset())
	r.line += bytes.Count(r.text[r.passed:offset], []byte("\n"))
	r.passed = offset
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch t := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if t == '{' {
			n.Kind = yaml.MappingNode
		}
		return n, r.inside(n, depth+1)
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	default:
		n.Tag = "!!null"
	}
	return n, nil
}

func (r *jsonReader) inside(n *yaml.Node, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("more than %d levels", depthMax)
	}
	for r.dec.More() {
		child, err := r.node(depth)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	_, err := r.dec.Token()
	return err
}

// fields reads the fields of a mapping: for each field name, known has a pointer to the value, or a function that takes
// it.
func (r *reader) fields(n *yaml.Node, at problems.Place, required []string, known map[string]any) {
	if n.Kind != yaml.MappingNode {
		if at == (problems.Place{}) {
			at = problems.Place{Field: "the document", Line: n.Line}
		}
		r.Add(at, "is not a mapping of fields to values")
		return
	}
	var seen []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		in := at.Of(key.Value)
		in.Line = key.Line
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			r.Add(at, "has a field without a name")
		case slices.Contains(seen, key.Value):
			r.Add(in, "appears twice")
		case known[key.Value] == nil:
			in.Field = fmt.Sprintf("%.64s", key.Value)
			r.Add(in, "is not a known field")
		default:
			seen = append(seen, key.Value)
			r.set(known[key.Value], value, in)
		}
	}
	for _, field := range required {
		if !slices.Contains(seen, field) {
			r.Add(at.Of(field), "is missing")
		}
	}
}

// set reads the value of a field.
func (r *reader) set(to any, value *yaml.Node, at problems.Place) {
	switch to := to.(type) {
	case *string:
		*to = r.text(value, at)
	case *bool:
		*to = r.truth(value, at)
	case *int64:
		*to = r.number(value, at)
	case func(*yaml.Node, problems.Place):
		to(value, at)
	}
}

// items calls add for each item of a list.
func (r *reader) items(n *yaml.Node, list string, most int, add func(item *yaml.Node, at problems.Place)) {
	at := problems.Place{List: list, At: -1, Line: n.Line}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null": // a head without items
		return
	case n.Kind != yaml.SequenceNode:
		r.Add(at, "is not a list")
		return
	case len(n.Content) > most:
		r.Add(at, "has %d items (at most %d)", len(n.Content), most)
		return
	}
	for i, item := range n.Content {
		add(item, problems.Place{List: list, At: i, Line: item.Line})
	}
}

// text returns a scalar as it is written, so that a namespace called on or 007 keeps its name.
func (r *reader) text(n *yaml.Node, at problems.Place) string {
	written := []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}
	if n.Kind != yaml.ScalarNode || !slices.Contains(written, n.Tag) {
		r.Add(at, "is not a text")
		return ""
	}
	return n.Value
}

func (r *reader) number(n *yaml.Node, at problems.Place) int64 {
	value, err := strict.Int("value", n.Value, math.MinInt64, math.MaxInt64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		r.Add(at, "is %.64q, want a whole number", n.Value)
	}
	return value
}

func (r *reader) truth(n *yaml.Node, at problems.Place) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.Add(at, "is %.64q, want true or false", n.Value)
	}
	return n.Value == "true"
}

// asJSON appends a tree as JSON. Numbers stay as they are written.
func asJSON(b []byte, n *yaml.Node) ([]byte, error) { return appendJSON(b, n, 0) }

func appendJSON(b []byte, n *yaml.Node, depth int) (_ []byte, err error) {
	if depth > depthMax {
		return nil, fmt.Errorf("more than %d levels", depthMax)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return appendScalar(b, n), nil
	case yaml.MappingNode, yaml.SequenceNode:
	default:
		return nil, errors.New("an alias")
	}
	begin, end := byte('['), byte(']')
	if n.Kind == yaml.MappingNode {
		begin, end = '{', '}'
	}
	b = append(b, begin)
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
			child = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: child.Value}
		}
		if b, err = appendJSON(b, child, depth+1); err != nil {
			return nil, err
		}
		switch {
		case i+1 == len(n.Content):
		case n.Kind == yaml.MappingNode && i%2 == 0:
			b = append(b, ':')
		default:
			b = append(b, ',')
		}
	}
	return append(b, end), nil
}

// appendScalar quotes every scalar that is no JSON number. For example, 0x10 is a number in YAML only: Parse will
// reject it.
func appendScalar(b []byte, n *yaml.Node) []byte {
	switch n.Tag {
	case "!!int", "!!float":
		return append(b, n.Value...)
	case "!!null":
		return append(b, "null"...)
	}
	return appendQuoted(b, n.Value)
}
