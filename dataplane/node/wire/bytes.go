package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// descriptorEntry is Envoy's message for text that a limited caller has sent, such as the value of
// a header.
const descriptorEntry = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry"

// limited reports whether a field holds text that a limited caller can choose: an identifier,
// gubernator's unique_key, or an entry of Envoy's. Such text may be any bytes. If some bytes caused
// an error, a caller could send them to pass wherever errors let requests pass.
func limited(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind && !f.IsMap() &&
		(f.Name() == "identifier" || f.Name() == "unique_key" || f.Parent().FullName() == descriptorEntry)
}

// Unmarshal reads a message like proto.Unmarshal, but fields that limited callers choose can have bytes that are not
// UTF-8; it keeps those bytes. Such a message cannot be marshaled again.
func Unmarshal(b []byte, m proto.Message) error {
	err := proto.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	proto.Reset(m)
	if merge(b, m.ProtoReflect(), protowire.DefaultRecursionLimit) != nil {
		return err
	}
	return nil
}

// merge reads text that callers choose, and leaves all other fields to package proto.
func merge(b []byte, m protoreflect.Message, depth int) error {
	if depth == 0 {
		return errors.New("messages are nested too deeply")
	}
	var others []byte
	for len(b) > 0 {
		number, kind, tagged := protowire.ConsumeTag(b)
		if tagged < 0 {
			return protowire.ParseError(tagged)
		}
		length := protowire.ConsumeFieldValue(number, kind, b[tagged:])
		if length < 0 {
			return protowire.ParseError(length)
		}
		field, value := b[:tagged+length], b[tagged:tagged+length]
		b = b[tagged+length:]
		f := m.Descriptor().Fields().ByNumber(number)
		switch {
		case f == nil || kind != protowire.BytesType:
			others = append(others, field...)
		case limited(f):
			text, _ := protowire.ConsumeBytes(value)
			set(m, f, protoreflect.ValueOfString(string(text)))
		case f.Kind() == protoreflect.MessageKind && !f.IsMap():
			nested, _ := protowire.ConsumeBytes(value)
			if err := merge(nested, nestedOf(m, f), depth-1); err != nil {
				return err
			}
		default:
			others = append(others, field...)
		}
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(others, m.Interface())
}

func set(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if f.IsList() {
		m.Mutable(f).List().Append(v)
		return
	}
	m.Set(f, v)
}

// nestedOf returns the message into which a field's next value is merged.
func nestedOf(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
	if f.IsList() {
		return m.Mutable(f).List().AppendMutable().Message()
	}
	return m.Mutable(f).Message()
}
