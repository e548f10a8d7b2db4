package dataplane

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/weirhq/weir/shared/window"
)

// identity stands for a key wherever one is looked up: two independent keyed 64-bit
// hashes of its fields. Comparing it instead of four fields saves the cache lines in
// which the names lie.
//
// The keys are drawn at random by each process, so nobody outside can construct two
// keys that meet; by chance, among a million keys held at once, two of them do with
// a probability of 10^-27.
type identity [2]uint64

// hasher makes identities. Its zero value is not usable.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

const (
	identityHeader = 16 // duration, lengths
	identityShort  = 112
	identityLong   = window.WorkspaceBytesMax + window.NamespaceBytesMax + window.IdentifierBytesMax
)

// of packs the fields so that different keys are different bytes (lengths included:
// "ab"+"c" is not "a"+"bc"), and hashes them in one go. The key must be valid.
func (h *hasher) of(k *window.Key) identity {
	if len(k.Workspace)+len(k.Namespace)+len(k.Identifier) > identityShort {
		return h.ofLong(k)
	}
	var buf [identityHeader + identityShort]byte
	return h.hash(pack(buf[:], k))
}

//go:noinline
func (h *hasher) ofLong(k *window.Key) identity {
	var buf [identityHeader + identityLong]byte
	return h.hash(pack(buf[:], k))
}

func (h *hasher) hash(packed []byte) identity {
	return identity{maphash.Bytes(h.a, packed), maphash.Bytes(h.b, packed)}
}

func pack(buf []byte, k *window.Key) []byte {
	binary.LittleEndian.PutUint64(buf, uint64(k.Duration))
	binary.LittleEndian.PutUint64(buf[8:], uint64(len(k.Workspace))|uint64(len(k.Namespace))<<16)
	n := identityHeader
	n += copy(buf[n:], k.Workspace)
	n += copy(buf[n:], k.Namespace)
	n += copy(buf[n:], k.Identifier)
	return buf[:n]
}

// names are a key's fields in the least space: the three names as one string of its
// own, and their lengths and the duration in one word. An entry outlives the request,
// so it must not keep alive whatever the caller's strings are slices of.
type names struct {
	text  string
	shape uint64 // duration in ms << 16 | length of namespace << 8 | length of workspace
}

func newNames(k *window.Key) names {
	text := make([]byte, 0, len(k.Workspace)+len(k.Namespace)+len(k.Identifier))
	text = append(append(append(text, k.Workspace...), k.Namespace...), k.Identifier...)
	return names{string(text), uint64(k.DurationMs())<<16 | uint64(len(k.Namespace))<<8 | uint64(len(k.Workspace))}
}

func (n *names) durationMs() int64 { return int64(n.shape >> 16) }

func (n *names) key() window.Key {
	w, ns := int(n.shape&0xff), int(n.shape>>8&0xff)
	return window.Key{
		Workspace: n.text[:w], Namespace: n.text[w : w+ns], Identifier: n.text[w+ns:],
		Duration: milliseconds(n.durationMs()),
	}
}
