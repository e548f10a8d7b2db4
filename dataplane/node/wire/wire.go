// Package wire reads and writes protobuf's wire format by hand, for messages that there are more of
// than of any others.
package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is the unread rest of a message. It is a string, so that strings in it need no copies.
//
// A reader handles only the fields and types that it expects. If a message has anything else, the reader must leave the
// message to protobuf.
type Message string

// Kinds of fields, the low bits of their tags.
const (
	Varint = 0
	Bytes  = 2
)

// Tag returns the first bytes of a field of a kind.
func Tag(field, kind uint64) uint64 { return field<<3 | kind }

const varintBytesMax = 10

// Varint reads a tag, a number or a length.
func (m *Message) Varint() (n uint64, ok bool) {
	s := *m
	if len(s) > 0 && s[0] < 0x80 { // nearly always
		*m = s[1:]
		return uint64(s[0]), true
	}
	for i := 0; i < len(s) && i < varintBytesMax; i++ {
		n |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			*m = s[i+1:]
			return n, i < varintBytesMax-1 || s[i] <= 1
		}
	}
	return 0, false
}

// Message reads a message within the message.
func (m *Message) Message() (inner Message, ok bool) {
	n, ok := m.Varint()
	if !ok || n > uint64(len(*m)) {
		return "", false
	}
	inner, *m = (*m)[:n], (*m)[n:]
	return inner, true
}

// Text reads a string that must be UTF-8. Use Message for text that a limited caller can choose,
// because it may hold any bytes.
func (m *Message) Text() (text string, ok bool) {
	inner, ok := m.Message()
	return string(inner), ok && utf8.ValidString(string(inner))
}

// WithLength writes the length of the bytes that were appended since start into the byte before it, and makes room for
// a longer length.
func WithLength(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[start+more:], b[start:start+n])
	protowire.AppendVarint(b[:start-1], uint64(n))
	return b
}
