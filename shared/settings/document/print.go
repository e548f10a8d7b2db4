package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// YAML writes a document for people: sorted, an item a line, so that a line-by-line comparison shows the differences of
// two documents. It returns an error if Parse would reject the text.
func YAML(d *settings.Document) ([]byte, error) { return write(d, yamlForm) }

// JSON writes the same for programs.
func JSON(d *settings.Document) ([]byte, error) { return write(d, jsonForm) }

type form int

const (
	yamlForm form = iota
	jsonForm
)

// member is a name and its value in JSON, which YAML reads too.
type member struct {
	name  string
	value []byte
}

func write(d *settings.Document, f form) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	w := writer{form: f}
	w.top("kind", []byte(Kind), f == jsonForm)
	w.top("version", strconv.AppendInt(nil, Version, 10), false)
	if d.Tuning != nil {
		members, err := tuningMembers(*d.Tuning)
		if err != nil {
			return nil, err
		}
		w.top("tuning", w.flow(members), false)
	}
	if err := printRegions(d, &w); err != nil {
		return nil, err
	}
	if len(d.Namespaces) > 0 {
		w.list("namespaces", sortedLines(&w, d.Namespaces, settings.CompareNamespaces, namespaceMembers))
	}
	if len(d.Overrides) > 0 {
		w.list("overrides", sortedLines(&w, d.Overrides, settings.CompareOverrides, overrideMembers))
	}
	text := w.end()
	if len(text) > BytesMax {
		return nil, fmt.Errorf("%w: it is %d bytes long (at most %d)", settings.ErrInvalid, len(text), BytesMax)
	}
	return text, nil
}

func printRegions(d *settings.Document, w *writer) error {
	if len(d.RegionTuning) == 0 {
		return nil
	}
	var regions []member
	for _, region := range slices.Sorted(maps.Keys(d.RegionTuning)) {
		members, err := tuningMembers(d.RegionTuning[region])
		if err != nil {
			return err
		}
		regions = append(regions, member{region, w.flow(members)})
	}
	w.mapping("region_tuning", regions)
	return nil
}

func sortedLines[T any](w *writer, items []T, compare func(a, b T) int, members func(T) []member) (lines [][]byte) {
	for _, item := range slices.SortedFunc(slices.Values(items), compare) {
		lines = append(lines, w.flow(members(item)))
	}
	return lines
}

func namespaceMembers(n settings.Namespace) []member {
	m := []member{
		quoted("workspace", n.Workspace), quoted("namespace", n.Namespace),
		quoted("mode", n.Mode), quoted("outage", n.Outage), quoted("node_share", n.NodeShare),
	}
	if n.Window != settings.WindowCells { // left out, so that builds without the field read documents that do not use it
		m = append(m, quoted("window", n.Window))
	}
	if n.Shadow {
		m = append(m, member{"shadow", []byte("true")})
	}
	if n.Estimate != "" {
		m = append(m, quoted("estimate", n.Estimate))
	}
	return m
}

func overrideMembers(o settings.Override) []member {
	m := []member{
		quoted("workspace", o.Workspace), quoted("namespace", o.Namespace), quoted("pattern", o.Pattern),
		number("limit", o.Limit),
	}
	if o.DurationMs != 0 {
		m = append(m, number("duration_ms", o.DurationMs))
	}
	if o.Candidate != 0 {
		m = append(m, number("candidate", o.Candidate))
	}
	if o.Shadow {
		m = append(m, member{"shadow", []byte("true")})
	}
	return m
}

// tuningMembers returns the fields of a tuning's document.
func tuningMembers(t tuning.Tuning) (members []member, err error) {
	text, err := t.Document()
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	for _, field := range append(tuning.Fields(), "requires") {
		if value, ok := values[field]; ok {
			members = append(members, member{field, value})
		}
	}
	return members, nil
}

func quoted(name, value string) member { return member{name, appendQuoted(nil, value)} }

func number(name string, value int64) member { return member{name, strconv.AppendInt(nil, value, 10)} }

// writer writes either form.
type writer struct {
	form form
	b    bytes.Buffer
}

// top begins a field of the document. It quotes text if necessary.
func (w *writer) top(name string, value []byte, isText bool) {
	w.head(name)
	w.b.WriteByte(' ')
	if isText {
		value = appendQuoted(nil, string(value))
	}
	w.b.Write(value)
}

func (w *writer) head(name string) {
	if w.form == yamlForm {
		if w.b.Len() > 0 {
			w.b.WriteByte('\n')
		}
		w.b.WriteString(name + ":")
		return
	}
	if w.b.Len() > 0 {
		w.b.WriteByte(',')
	} else {
		w.b.WriteByte('{')
	}
	fmt.Fprintf(&w.b, "\n  %q:", name)
}

func (w *writer) list(name string, lines [][]byte) {
	w.head(name)
	if w.form == jsonForm {
		w.b.WriteString(" [\n    ")
		w.b.Write(bytes.Join(lines, []byte(",\n    ")))
		w.b.WriteString("\n  ]")
		return
	}
	for _, line := range lines {
		w.b.WriteString("\n  - ")
		w.b.Write(line)
	}
}

func (w *writer) mapping(name string, members []member) {
	w.head(name)
	if w.form == jsonForm {
		w.b.WriteString(" {")
	}
	for i, m := range members {
		if w.form == jsonForm && i > 0 {
			w.b.WriteByte(',')
		}
		fmt.Fprintf(&w.b, "\n%*s%s: %s", 2+2*int(w.form), "", appendQuoted(nil, m.name), m.value)
	}
	if w.form == jsonForm {
		w.b.WriteString("\n  }")
	}
}

// flow writes a mapping in a single line.
func (w *writer) flow(members []member) (line []byte) {
	line = append(line, '{')
	for i, m := range members {
		if i > 0 {
			line = append(line, ", "...)
		}
		if w.form == jsonForm {
			line = appendQuoted(line, m.name)
		} else {
			line = append(line, m.name...)
		}
		line = append(append(line, ": "...), m.value...)
	}
	return append(line, '}')
}

func (w *writer) end() []byte {
	if w.form == jsonForm {
		w.b.WriteString("\n}")
	}
	w.b.WriteByte('\n')
	return w.b.Bytes()
}

// appendQuoted writes a text in the quotes that JSON and YAML share. It escapes characters that YAML takes for
// unprintable or for line breaks.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ', r >= 0x7f && r <= 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
