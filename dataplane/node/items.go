package node

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The items of a message are counted before it is decoded, because two of its bytes can become a hundred bytes of
// memory.

// FieldsIn counts a field in an encoded protobuf message, as far as it can be read, without decoding it.
func FieldsIn(message []byte, field protowire.Number) (n int) {
	eachField(message, field, func([]byte) { n++ })
	return n
}

// NestedIn counts a field in all messages that a field of another message holds.
func NestedIn(message []byte, outer, inner protowire.Number) (n int) {
	eachField(message, outer, func(value []byte) {
		if nested, length := protowire.ConsumeBytes(value); length >= 0 {
			n += FieldsIn(nested, inner)
		}
	})
	return n
}

// eachField calls each with the values of a field, as they are written.
func eachField(message []byte, field protowire.Number, each func(value []byte)) {
	for len(message) > 0 {
		number, kind, tagged := protowire.ConsumeTag(message)
		if tagged < 0 {
			return
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tagged:])
		if length < 0 {
			return
		}
		if number == field {
			each(message[tagged : tagged+length])
		}
		message = message[tagged+length:]
	}
}

// ObjectsIn counts the objects in JSON, including the outermost. The text can be invalid JSON.
func ObjectsIn(text []byte) (n int) { return marksIn(text, '{') }

// MembersIn counts the members of all objects in JSON.
func MembersIn(text []byte) (n int) { return marksIn(text, ':') }

// marksIn counts a character outside of strings.
func marksIn(text []byte, mark byte) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case mark:
			n++
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}
