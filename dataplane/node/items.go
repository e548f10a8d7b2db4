package node

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// What a message holds is counted before it is decoded: two bytes of it may become a hundred.

// fieldsIn counts a field in a message of protobuf's form, as far as it can be read.
func fieldsIn(message []byte, field protowire.Number) (n int) {
	for len(message) > 0 {
		number, kind, tagged := protowire.ConsumeTag(message)
		if tagged < 0 {
			return n
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tagged:])
		if length < 0 {
			return n
		}
		if number == field {
			n++
		}
		message = message[tagged+length:]
	}
	return n
}

// objectsIn counts the objects in JSON, the outermost one included; it may be no JSON at all.
func objectsIn(text []byte) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
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
