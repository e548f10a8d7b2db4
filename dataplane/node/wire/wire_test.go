package wire

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Varint reads the same values as protobuf, and rejects the same bytes.
func FuzzVarint(f *testing.F) {
	f.Add([]byte{0x7f})
	f.Add([]byte{0x80, 0x00})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x05})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02})
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, n := protowire.ConsumeVarint(b)
		m := Message(b)
		got, ok := m.Varint()
		if ok != (n > 0) || ok && (got != want || string(m) != string(b[n:])) {
			t.Errorf("%x: %d, %v, then %x; protobuf reads %d in %d bytes", b, got, ok, string(m), want, n)
		}
	})
}

// A length beyond the message's end is rejected, and a string must be UTF-8.
func FuzzText(f *testing.F) {
	f.Add([]byte{3, 'a', 'b', 'c', 'd'})
	f.Add([]byte{3, 'a', 'b'})
	f.Add([]byte{1, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, n := protowire.ConsumeBytes(b)
		m := Message(b)
		got, ok := m.Text()
		switch {
		case ok && (n < 0 || got != string(want) || string(m) != string(b[n:])):
			t.Errorf("%x: %q, then %x; protobuf reads %q in %d bytes", b, got, string(m), want, n)
		case !ok && n > 0 && validASCII(want):
			t.Errorf("%x: not read; protobuf reads %q", b, want)
		}
	})
}

func validASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
