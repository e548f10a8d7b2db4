package node

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// withFields adds to an error about an unknown field which fields there are, those of the messages
// within the message too: the parser does not tell in which of them the field was.
func withFields(text string, m protoreflect.MessageDescriptor) string {
	if !strings.Contains(text, "unknown field") {
		return text
	}
	text += "; known are " + namesOf(m)
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.Message() != nil {
			text += "; in " + string(f.Name()) + " " + namesOf(f.Message())
		}
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
