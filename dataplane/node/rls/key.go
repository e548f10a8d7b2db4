package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirhq/weir/shared/window"
)

// Bytes with a meaning in an identifier: '=' and ',' between keys and values, '*' for a pattern, '#' before a hash, '%'
// before two digits that encode a byte. Bytes that are not UTF-8 are written as '%' and two digits too, so that
// identifiers are text that every store, log and API can carry.
const (
	meant = "%,=#*"
	hex16 = "0123456789ABCDEF"
)

// identifier returns the identifier of a descriptor: key=value,key=value. Two descriptors have the same identifier only
// if they are equal, or differ only in values that share a count. Such values are replaced by their pattern. patterns
// is nil or as long as entries.
//
// An identifier that is too long is cut. It then ends with '#' and 128 bits of the SHA-256 of the whole identifier.
func identifier(entries []*ratelimitv3.RateLimitDescriptor_Entry, patterns []string) string {
	return string(appendIdentifier(nil, entries, patterns))
}

func appendIdentifier(b []byte, entries []*ratelimitv3.RateLimitDescriptor_Entry, patterns []string) []byte {
	start := len(b)
	for i, entry := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendEscaped(b, entry.GetKey()), '=')
		if patterns != nil && patterns[i] != "" {
			for j, part := range strings.Split(patterns[i], "*") {
				if j > 0 {
					b = append(b, '*')
				}
				b = appendEscaped(b, part)
			}
			continue
		}
		b = appendEscaped(b, entry.GetValue())
	}
	return cut(b, start)
}

func appendEscaped(b []byte, s string) []byte {
	for len(s) > 0 {
		i := strings.IndexAny(s, meant)
		if i < 0 {
			i = len(s)
		}
		if b, s = appendText(b, s[:i]), s[i:]; s != "" {
			b, s = appendEscape(b, s[0]), s[1:]
		}
	}
	return b
}

// appendText appends s, and escapes its bytes that are not UTF-8.
func appendText(b []byte, s string) []byte {
	if utf8.ValidString(s) { // nearly always
		return append(b, s...)
	}
	for i, size := 0, 0; i < len(s); i += size {
		var r rune
		if r, size = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && size == 1 {
			b = appendEscape(b, s[i])
			continue
		}
		b = append(b, s[i:i+size]...)
	}
	return b
}

func appendEscape(b []byte, c byte) []byte { return append(b, '%', hex16[c>>4], hex16[c&15]) }

// cut shortens the name that begins at start, if it is too long.
func cut(b []byte, start int) []byte {
	name := b[start:]
	if len(name) <= window.IdentifierBytesMax {
		return b
	}
	sum := sha256.Sum256(name)
	end := "#" + hex.EncodeToString(sum[:16])
	whole := strings.ToValidUTF8(string(name[:window.IdentifierBytesMax-len(end)]), "")
	return append(append(b[:start], whole...), end...)
}
