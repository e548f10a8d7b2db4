package cell

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

// Identity identifies a key in tables and lists: two keyed 64-bit hashes of its fields, by independent keys. Comparing
// it instead of four fields saves the cache lines in which the names lie.
//
// Each process draws the hash keys at random, so an outsider can't construct two keys with equal identities. Among a
// million keys held at once, two are equal by chance with a probability of 10^-27.
type Identity struct{ a, b uint64 }

// Less orders identities, so that all batches take their keys in the same order.
func (id *Identity) Less(other *Identity) bool {
	return id.a < other.a || id.a == other.a && id.b < other.b
}

// Compare orders identities, for example for slices.SortFunc.
func (id *Identity) Compare(other *Identity) int {
	return cmp.Or(cmp.Compare(id.a, other.a), cmp.Compare(id.b, other.b))
}

// Hash returns half of the identity, for lists in which a mistake once in a great many times does no harm.
func (id *Identity) Hash() uint64 { return id.a }

// Hasher makes identities. Its zero value is not usable.
//
// Workspace, namespace and duration are hashed once and cached, with their family, because many requests share them. An
// identifier is hashed by two seeds, without being copied, and added. Two keys are equal only if both sums are equal.
//
// Prefixes have their own seeds. With the seeds of identifiers, an identifier that spells the packed prefix of another
// key would cancel out: anybody could make two keys equal.
type Hasher struct {
	a, b   maphash.Seed // of identifiers
	c, d   maphash.Seed // of prefixes
	recent [recentPrefixes]atomic.Pointer[prefix]
	missed atomic.Uint32
}

// tagged is a duration with the mode of its key in the bits above all durations, so that both are hashed and compared
// as a single number.
type tagged int64

func tag(d time.Duration, mode window.Mode) tagged { return tagged(d) | tagged(mode)<<56 }

// prefix is the cached data of a workspace, namespace, duration and mode. The names are copies, so no caller's buffer
// is kept alive.
type prefix struct {
	workspace, namespace string
	duration             tagged
	sum                  Identity
	family               unique.Handle[Family]
}

const (
	recentPrefixes = 64
	rememberEvery  = 16 // misses; so callers with very many namespaces do not pay for remembering each
)

// Init draws the seeds.
func (h *Hasher) Init() {
	h.a, h.b = maphash.MakeSeed(), maphash.MakeSeed()
	h.c, h.d = maphash.MakeSeed(), maphash.MakeSeed()
}

// IdentityOf hashes a valid key.
func (h *Hasher) IdentityOf(workspace, namespace, identifier string, d time.Duration, mode window.Mode) Identity {
	duration := tag(d, mode)
	at := placeOf(workspace, namespace, duration)
	a, b := maphash.String(h.a, identifier), maphash.String(h.b, identifier)
	p := h.recent[at].Load()
	if p != nil && p.duration == duration && p.namespace == namespace && p.workspace == workspace {
		return Identity{p.sum.a ^ a, p.sum.b ^ b}
	}
	sum := h.prefix(at, workspace, namespace, duration)
	return Identity{sum.a ^ a, sum.b ^ b}
}

// placeOf returns a place in recent that costs nothing to find. The choice affects only speed.
func placeOf(workspace, namespace string, duration tagged) uint {
	at := uint(len(workspace))*7 + uint(len(namespace))*5 + uint(workspace[0]) +
		uint(namespace[len(namespace)-1])*3 + uint(duration>>30)
	return at % recentPrefixes
}

// IdentityOfKey hashes a valid key, and its reset; nil is none. Its generation does not matter.
func (h *Hasher) IdentityOfKey(k *window.Key, reset *window.Reset) Identity {
	id := h.IdentityOf(k.Workspace, k.Namespace, k.Identifier, k.Duration, k.Mode)
	if reset != nil {
		id.Renew(reset)
	}
	return id
}

// Renew turns the identity of a key that was never reset into the identity of the key since a reset. Each reset has its
// own identity, and so its own entry that begins empty.
func (id *Identity) Renew(reset *window.Reset) {
	n := uint64(reset.AtMs)<<15 | uint64(reset.Generation)
	id.a ^= n * 0x9e3779b97f4a7c15 // odd: no two resets are the same
	id.b ^= n * 0xd6e8feb86659fd93
}

//go:noinline
func (h *Hasher) prefix(at uint, workspace, namespace string, duration tagged) Identity {
	var buf [prefixHeader + window.WorkspaceBytesMax + window.NamespaceBytesMax]byte
	packed := pack(buf[:], workspace, namespace, duration)
	sum := Identity{maphash.Bytes(h.c, packed), maphash.Bytes(h.d, packed)}
	if h.missed.Add(1)%rememberEvery == 1 || h.recent[at].Load() == nil {
		shared := h.newFamily(workspace, namespace, duration, window.Reset{})
		f := shared.Value() // its strings are copies
		h.recent[at].Store(&prefix{f.Workspace, f.Namespace, duration, sum, shared})
	}
	return sum
}

const prefixHeader = 16 // duration and mode, length of the workspace

// pack writes the fields so that different fields give different bytes. For example, "ab"+"c" differs from "a"+"bc".
func pack(buf []byte, workspace, namespace string, duration tagged) []byte {
	binary.LittleEndian.PutUint64(buf, uint64(duration))
	binary.LittleEndian.PutUint64(buf[8:], uint64(len(workspace)))
	n := prefixHeader
	n += copy(buf[n:], workspace)
	n += copy(buf[n:], namespace)
	return buf[:n]
}

// Names are a key's fields in the least space. Keys with the same family share a single copy of it, which lives as long
// as any of the keys. An entry outlives the request, so it must not keep the caller's strings, or the memory that they
// are slices of, alive.
type Names struct {
	family unique.Handle[Family]
	packed *byte // the identifier's length, and its bytes: half the size of a string
}

// cloneOf packs a copy of an identifier, of at most window.IdentifierBytesMax bytes.
func cloneOf(identifier string) *byte {
	b := make([]byte, 1+len(identifier))
	b[0] = byte(len(identifier))
	copy(b[1:], identifier)
	return &b[0]
}

// Identifier returns the key's identifier, which shares the memory of the names.
func (n *Names) Identifier() string {
	if *n.packed == 0 {
		return "" // there is no byte to point at
	}
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(n.packed), 1)), int(*n.packed))
}

// Family holds the fields that the identifiers of one limit share.
type Family struct {
	Workspace, Namespace string
	DurationMs           int64
	Mode                 window.Mode
	Reset                window.Reset // of its only identifier; zero for none
	group                uint16       // of the namespace, in table.groups
}

func (h *Hasher) newFamily(workspace, namespace string, duration tagged, reset window.Reset) unique.Handle[Family] {
	d, mode := duration.split()
	return unique.Make(Family{workspace, namespace, d.Milliseconds(), mode, reset, h.groupOf(workspace, namespace)})
}

// groupOf returns the group in which a namespace's entries are counted.
func (h *Hasher) groupOf(workspace, namespace string) uint16 {
	return uint16(maphash.Comparable(h.c, [2]string{workspace, namespace}) % groupsMax)
}

func (t tagged) split() (time.Duration, window.Mode) {
	return time.Duration(t & (1<<56 - 1)), window.Mode(t >> 56)
}

// groupFor is groupOf for a key's namespace, mostly from the cache.
func (h *Hasher) groupFor(k *window.Key) uint16 {
	if p := h.remembered(k); p != nil {
		return p.family.Value().group
	}
	return h.groupOf(k.Workspace, k.Namespace)
}

// remembered returns the cached prefix of a key, or nil.
func (h *Hasher) remembered(k *window.Key) *prefix {
	duration := tag(k.Duration, k.Mode)
	if p := h.recent[placeOf(k.Workspace, k.Namespace, duration)].Load(); p != nil &&
		p.duration == duration && p.namespace == k.Namespace && p.workspace == k.Workspace {
		return p
	}
	return nil
}

// NamesOf returns the names of a key and its reset, nil for none, with copies of its strings.
func (h *Hasher) NamesOf(k *window.Key, reset *window.Reset) Names {
	if reset == nil {
		if p := h.remembered(k); p != nil {
			return Names{p.family, cloneOf(k.Identifier)}
		}
		reset = &window.Reset{}
	}
	return Names{h.newFamily(k.Workspace, k.Namespace, tag(k.Duration, k.Mode), *reset), cloneOf(k.Identifier)}
}

func (n *Names) durationMs() int64 { return n.family.Value().DurationMs }

// Family returns the fields that the key shares with others.
func (n *Names) Family() Family { return n.family.Value() }

// FamilyHandle returns the handle of Family, which is quick to compare and to hash.
func (n *Names) FamilyHandle() unique.Handle[Family] { return n.family }

// Key returns the names' key, with generation 0. cell returns its cells.
func (n *Names) Key() window.Key {
	f := n.family.Value()
	return window.Key{Workspace: f.Workspace, Namespace: f.Namespace, Identifier: n.Identifier(),
		Duration: time.Duration(f.DurationMs) * time.Millisecond, Mode: f.Mode}
}

// cell returns a cell of the key, named as other nodes name it.
func (n *Names) cell(sequence int64) window.Cell {
	c := window.Cell{Key: n.Key(), Sequence: sequence}
	c.Generation = n.generation(sequence)
	return c
}

func (n *Names) generation(sequence int64) window.Generation {
	f := n.family.Value()
	return f.Reset.GenerationOf(sequence, f.DurationMs)
}
