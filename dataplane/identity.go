package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// identity stands for a key wherever one is looked up: two keyed 64-bit hashes of its
// fields, by independent keys. Comparing it instead of four fields saves the cache lines in
// which the names lie.
//
// The keys are drawn at random by each process, so nobody outside can construct two
// keys that meet; by chance, among a million keys held at once, two of them do with
// a probability of 10^-27.
type identity [2]uint64

// hasher makes identities. Its zero value is not usable.
//
// The part of a key that many requests share, workspace, namespace and duration, is
// hashed once and remembered; an identifier is hashed by two seeds, without being
// copied anywhere, and added. Two keys meet only if both sums do.
//
// Prefixes have seeds of their own. With the same ones, an identifier that spells the
// packed prefix of another key would cancel out: anybody could make two keys meet.
type hasher struct {
	a, b   maphash.Seed // of identifiers
	c, d   maphash.Seed // of prefixes
	recent [recentPrefixes]atomic.Pointer[prefix]
	missed atomic.Uint32
}

// prefix is what is remembered of a workspace, namespace and duration. The names are
// copies, so no caller's buffer is kept alive.
type prefix struct {
	workspace, namespace string
	duration             time.Duration
	sum                  identity
}

const (
	recentPrefixes = 64
	rememberEvery  = 16 // misses; so callers with very many namespaces do not pay for remembering each
)

func (h *hasher) init() {
	h.a, h.b = maphash.MakeSeed(), maphash.MakeSeed()
	h.c, h.d = maphash.MakeSeed(), maphash.MakeSeed()
}

// of hashes a valid key.
func (h *hasher) of(workspace, namespace, identifier string, duration time.Duration) identity {
	// A place that costs nothing to find; which one it is matters only for speed.
	at := uint(len(workspace))*7 + uint(len(namespace))*5 + uint(workspace[0]) + uint(namespace[len(namespace)-1])*3 + uint(duration>>30)
	a, b := maphash.String(h.a, identifier), maphash.String(h.b, identifier)
	p := h.recent[at%recentPrefixes].Load()
	if p != nil && p.duration == duration && p.namespace == namespace && p.workspace == workspace {
		return identity{p.sum[0] ^ a, p.sum[1] ^ b}
	}
	sum := h.prefix(at%recentPrefixes, workspace, namespace, duration)
	return identity{sum[0] ^ a, sum[1] ^ b}
}

func (h *hasher) ofKey(k *window.Key) identity {
	return h.of(k.Workspace, k.Namespace, k.Identifier, k.Duration)
}

//go:noinline
func (h *hasher) prefix(at uint, workspace, namespace string, duration time.Duration) identity {
	var buf [prefixHeader + window.WorkspaceBytesMax + window.NamespaceBytesMax]byte
	packed := pack(buf[:], workspace, namespace, duration)
	sum := identity{maphash.Bytes(h.c, packed), maphash.Bytes(h.d, packed)}
	if h.missed.Add(1)%rememberEvery == 1 || h.recent[at].Load() == nil {
		h.recent[at].Store(&prefix{strings.Clone(workspace), strings.Clone(namespace), duration, sum})
	}
	return sum
}

const prefixHeader = 16 // duration, length of the workspace

// pack writes the fields so that different ones are different bytes: "ab"+"c" is not
// "a"+"bc".
func pack(buf []byte, workspace, namespace string, duration time.Duration) []byte {
	binary.LittleEndian.PutUint64(buf, uint64(duration))
	binary.LittleEndian.PutUint64(buf[8:], uint64(len(workspace)))
	n := prefixHeader
	n += copy(buf[n:], workspace)
	n += copy(buf[n:], namespace)
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
