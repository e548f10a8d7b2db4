package node

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// What a message holds is counted before it is decoded: two bytes of it may become a hundred.

// FieldsIn counts a field in a message of protobuf's form, as far as it can be read, without decoding it.
func FieldsIn(message []byte, field protowire.Number) (n int) {
	eachField(message, field, func([]byte) { n++ })
	return n
}

// NestedIn counts a field in all messages that another one holds.
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

// ObjectsIn counts the objects in JSON, the outermost one included; it may be no JSON at all.
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
