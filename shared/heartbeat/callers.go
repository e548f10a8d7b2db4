package heartbeat

import (
	"math"
	"slices"
)

// Callers is a set of callers of which only the number matters. It has the hashes of at most CallersKept of them, the
// smallest, in ascending order, so sets of several nodes can be united without counting a caller twice (k minimum
// values: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002).
type Callers []uint64

const (
	// CallersKept is the number of hashes that a set keeps. A set of fewer callers is counted exactly.
	CallersKept = 128

	callersBits = 53 // of a hash: any reader of JSON reads such a number exactly
)

// CallerHash returns the hash of a caller, which is the same on all nodes.
func CallerHash(workspace, namespace, identifier string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, part := range [...]string{workspace, namespace, identifier} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * prime
		}
		h = (h ^ 0xff) * prime // is in no UTF-8 text, so it separates the parts
	}
	// FNV mixes its high bits badly; this is the last step of SplitMix64.
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h ^ h>>31) >> (64 - callersBits)
}

// Count returns the number of callers, exactly below CallersKept, else an estimate with a standard error of 9 %.
func (c Callers) Count() int64 {
	if len(c) < CallersKept {
		return int64(len(c))
	}
	largest := float64(c[CallersKept-1]) + 1
	return max(CallersKept, int64(math.Round((CallersKept-1)*math.Exp2(callersBits)/largest)))
}

// With returns the set with another caller. If that changes nothing, it returns c itself and false.
func (c Callers) With(hash uint64) (with Callers, changed bool) {
	at, found := slices.BinarySearch(c, hash)
	if found || at == CallersKept {
		return c, false
	}
	return slices.Insert(slices.Clone(c[:min(len(c), CallersKept-1)]), at, hash), true
}

// Union returns the callers of both sets. A set that comes from elsewhere may be in any order, and too long.
func (c Callers) Union(other Callers) Callers {
	all := slices.Concat(c, other)
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), CallersKept)]
}
