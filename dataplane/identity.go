package dataplane

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unique"
	"unsafe"

	"github.com/weirhq/weir/shared/window"
)

// identity stands for a key wherever one is looked up: two keyed 64-bit hashes of its
// fields, by independent keys. Comparing it instead of four fields saves the cache lines in
// which the names lie.
//
// The keys are drawn at random by each process, so nobody outside can construct two
// keys that meet; by chance, among a million keys held at once, two of them do with
// a probability of 10^-27.
type identity struct{ a, b uint64 }

// less orders identities, so that whoever needs several keys at once takes them in the
// same order as everybody else.
func (id *identity) less(other *identity) bool {
	return id.a < other.a || id.a == other.a && id.b < other.b
}

// compare is less as a comparison.
func (id *identity) compare(other *identity) int {
	return cmp.Or(cmp.Compare(id.a, other.a), cmp.Compare(id.b, other.b))
}

// hasher makes identities. Its zero value is not usable.
//
// The part of a key that many requests share, workspace, namespace and duration, is
// hashed once and remembered, with its family; an identifier is hashed by two seeds, without being
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

// tagged is a duration with the mode of its key in the bits above all durations, so that
// the two are hashed and compared as one.
type tagged int64

func tag(d time.Duration, mode window.Mode) tagged { return tagged(d) | tagged(mode)<<56 }

// prefix is what is remembered of a workspace, namespace, duration and mode. The names are
// copies, so no caller's buffer is kept alive.
type prefix struct {
	workspace, namespace string
	duration             tagged
	sum                  identity
	family               unique.Handle[family]
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
func (h *hasher) of(workspace, namespace, identifier string, d time.Duration, mode window.Mode) identity {
	duration := tag(d, mode)
	at := placeOf(workspace, namespace, duration)
	a, b := maphash.String(h.a, identifier), maphash.String(h.b, identifier)
	p := h.recent[at].Load()
	if p != nil && p.duration == duration && p.namespace == namespace && p.workspace == workspace {
		return identity{p.sum.a ^ a, p.sum.b ^ b}
	}
	sum := h.prefix(at, workspace, namespace, duration)
	return identity{sum.a ^ a, sum.b ^ b}
}

// placeOf is a place in recent that costs nothing to find; which one it is matters only
// for speed.
func placeOf(workspace, namespace string, duration tagged) uint {
	at := uint(len(workspace))*7 + uint(len(namespace))*5 + uint(workspace[0]) + uint(namespace[len(namespace)-1])*3 + uint(duration>>30)
	return at % recentPrefixes
}

// ofKey hashes a valid key, and its reset; nil is none. Its generation does not matter.
func (h *hasher) ofKey(k *window.Key, reset *window.Reset) identity {
	id := h.of(k.Workspace, k.Namespace, k.Identifier, k.Duration, k.Mode)
	if reset != nil {
		id.renew(reset)
	}
	return id
}

// renew makes the identity of a key that was never reset that of the key since a reset:
// another one for each, with an entry of its own that begins empty.
func (id *identity) renew(reset *window.Reset) {
	n := uint64(reset.Generation)
	id.a ^= n * 0x9e3779b97f4a7c15 // odd: no two generations are the same
	id.b ^= n * 0xd6e8feb86659fd93
}

//go:noinline
func (h *hasher) prefix(at uint, workspace, namespace string, duration tagged) identity {
	var buf [prefixHeader + window.WorkspaceBytesMax + window.NamespaceBytesMax]byte
	packed := pack(buf[:], workspace, namespace, duration)
	sum := identity{maphash.Bytes(h.c, packed), maphash.Bytes(h.d, packed)}
	if h.missed.Add(1)%rememberEvery == 1 || h.recent[at].Load() == nil {
		shared := h.newFamily(workspace, namespace, duration, window.Reset{})
		f := shared.Value() // its strings are copies
		h.recent[at].Store(&prefix{f.workspace, f.namespace, duration, sum, shared})
	}
	return sum
}

const prefixHeader = 16 // duration and mode, length of the workspace

// pack writes the fields so that different ones are different bytes: "ab"+"c" is not
// "a"+"bc".
func pack(buf []byte, workspace, namespace string, duration tagged) []byte {
	binary.LittleEndian.PutUint64(buf, uint64(duration))
	binary.LittleEndian.PutUint64(buf[8:], uint64(len(workspace)))
	n := prefixHeader
	n += copy(buf[n:], workspace)
	n += copy(buf[n:], namespace)
	return buf[:n]
}

// names are a key's fields in the least space. What many keys share is held once for
// all of them, as long as one is left. An entry outlives the request, so it must not
// keep alive whatever the caller's strings are slices of.
type names struct {
	family unique.Handle[family]
	packed *byte // the identifier's length, and its bytes: half of what a string would take
}

// cloneOf packs a copy of an identifier, of at most window.IdentifierBytesMax bytes.
func cloneOf(identifier string) *byte {
	b := make([]byte, 1+len(identifier))
	b[0] = byte(len(identifier))
	copy(b[1:], identifier)
	return &b[0]
}

func (n *names) identifier() string {
	if *n.packed == 0 {
		return "" // there is no byte to point at
	}
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(n.packed), 1)), int(*n.packed))
}

// family is what the identifiers of one limit have in common.
type family struct {
	workspace, namespace string
	durationMs           int64
	mode                 window.Mode
	reset                window.Reset // of its one identifier; zero for none
	group                uint16       // of the namespace, in table.groups
}

func (h *hasher) newFamily(workspace, namespace string, duration tagged, reset window.Reset) unique.Handle[family] {
	d, mode := duration.split()
	return unique.Make(family{workspace, namespace, d.Milliseconds(), mode, reset, h.groupOf(workspace, namespace)})
}

// groupOf is where a namespace's entries are counted.
func (h *hasher) groupOf(workspace, namespace string) uint16 {
	return uint16(maphash.Comparable(h.c, [2]string{workspace, namespace}) % groupsMax)
}

func (t tagged) split() (time.Duration, window.Mode) {
	return time.Duration(t & (1<<56 - 1)), window.Mode(t >> 56)
}

func (h *hasher) names(k *window.Key, reset *window.Reset) names {
	duration := tag(k.Duration, k.Mode)
	if reset != nil {
		return names{h.newFamily(k.Workspace, k.Namespace, duration, *reset), cloneOf(k.Identifier)}
	}
	if p := h.recent[placeOf(k.Workspace, k.Namespace, duration)].Load(); p != nil &&
		p.duration == duration && p.namespace == k.Namespace && p.workspace == k.Workspace {
		return names{p.family, cloneOf(k.Identifier)}
	}
	return names{h.newFamily(k.Workspace, k.Namespace, duration, window.Reset{}), cloneOf(k.Identifier)}
}

func (n *names) durationMs() int64 { return n.family.Value().durationMs }

// shared is what the key has in common with others.
func (n *names) shared() family { return n.family.Value() }

// key is the names' key, with generation 0; cell has its cells.
func (n *names) key() window.Key {
	f := n.family.Value()
	return window.Key{Workspace: f.workspace, Namespace: f.namespace, Identifier: n.identifier(), Duration: time.Duration(f.durationMs) * time.Millisecond, Mode: f.mode}
}

// cell is a cell of the key by the name that others know it by.
func (n *names) cell(sequence int64) window.Cell {
	c := window.Cell{Key: n.key(), Sequence: sequence}
	c.Generation = n.generation(sequence)
	return c
}

func (n *names) generation(sequence int64) window.Generation {
	f := n.family.Value()
	return f.reset.GenerationOf(sequence, f.durationMs)
}
