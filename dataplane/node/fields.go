package node

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// withFields renames the fields in the parser's error as documents name them (duration_ms). If the error is about an
// unknown field or value, it adds the known fields or values. The parser does not report in which message a field was,
// so the fields of messages within m are added too.
func withFields(text string, m protoreflect.MessageDescriptor) string {
	if strings.Contains(text, "unknown field") {
		text += "; known are " + namesOf(m)
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); f.Message() != nil {
				text += "; in " + string(f.Name()) + " " + namesOf(f.Message())
			}
		}
		return text
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		text = withValues(text, f)
		if inner := f.Message(); inner != nil {
			for j := range inner.Fields().Len() {
				text = withValues(text, inner.Fields().Get(j))
			}
		}
	}
	return text
}

// withValues does so where text is about a value of f.
func withValues(text string, f protoreflect.FieldDescriptor) string {
	before, value, ok := strings.Cut(text, " field "+f.JSONName()+": ")
	if !ok || strings.Contains(before, "field ") { // the latter: the words are the caller's
		return text
	}
	text = before + " field " + string(f.Name()) + ": " + value
	if f.Enum() != nil {
		values := make([]string, f.Enum().Values().Len())
		for i := range values {
			values[i] = string(f.Enum().Values().Get(i).Name())
		}
		text += "; known are " + strings.Join(values, ", ")
	}
	return text
}

func namesOf(m protoreflect.MessageDescriptor) string {
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = string(m.Fields().Get(i).Name())
	}
	return strings.Join(names, ", ")
}
