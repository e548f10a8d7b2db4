package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirhq/weir/shared/window"
)

// Bytes that have a meaning in an identifier: '=' and ',' between keys and values,
// '*' of a pattern, '#' before a hash, '%' before two digits that stand for a byte.
const (
	meant = "%,=#*"
	hex16 = "0123456789ABCDEF"
)

// identifier names a descriptor: key=value,key=value. Two descriptors have the same
// one only if they are the same, or differ only in values that share a count: those
// are replaced by their pattern. patterns is nil or as long as entries.
//
// One that is longer than an identifier may be is cut, and ends with '#' and 128 bits
// of its SHA-256.
func identifier(entries []*ratelimitv3.RateLimitDescriptor_Entry, patterns []string) string {
	var name strings.Builder
	n := len(entries)
	for _, entry := range entries {
		n += len(entry.GetKey()) + 1 + len(entry.GetValue())
	}
	name.Grow(n)
	for i, entry := range entries {
		if i > 0 {
			name.WriteByte(',')
		}
		escape(&name, entry.GetKey())
		name.WriteByte('=')
		if patterns != nil && patterns[i] != "" {
			for j, part := range strings.Split(patterns[i], "*") {
				if j > 0 {
					name.WriteByte('*')
				}
				escape(&name, part)
			}
			continue
		}
		escape(&name, entry.GetValue())
	}
	return bounded(name.String())
}

func escape(name *strings.Builder, s string) {
	for {
		i := strings.IndexAny(s, meant)
		if i < 0 {
			name.WriteString(s)
			return
		}
		name.WriteString(s[:i])
		name.WriteByte('%')
		name.WriteByte(hex16[s[i]>>4])
		name.WriteByte(hex16[s[i]&15])
		s = s[i+1:]
	}
}

func bounded(name string) string {
	if len(name) <= window.IdentifierBytesMax {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "#" + hex.EncodeToString(sum[:16])
	return strings.ToValidUTF8(name[:window.IdentifierBytesMax-len(end)], "") + end
}
