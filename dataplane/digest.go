package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/FastFilter/xorfilter"
	"github.com/cespare/xxhash/v2"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// What a node tells other regions of itself, beside rows of counts, as two Digests that
// each replace the one before:
//
//	filter    which keys it has accepted cost on, in the current cell or the one before:
//	          18 to 23 bits a key, one in 65,000 others taken for one. Every digest interval.
//	bulletin  its region's counts of the cells that other regions should know of now.
//	          See tell.go.
//
// With every region's filter at hand a node knows which of its keys are used elsewhere:
// few. All others need no row that wakes anybody, and none of the rest needs a row of its
// own for each step: a bulletin carries them all.

// Kinds of a digest: its first byte.
const (
	digestFilter   = 1
	digestBulletin = 2
)

const (
	digestTimeout   = 5 * time.Second
	digestIntervals = 6       // that a digest is good for
	filterKeysMax   = 440_000 // fit into store.DigestBytesMax
	filterDrift     = 0.05    // share of keys not in the last filter, from which it is replaced before half its life is over
)

var errDigest = errors.New("dataplane: unreadable digest")

// fleetHash stands for a key in filters: the same on every node, so anybody can look for
// keys that meet. What they win is that a key of theirs is taken for shared.
func fleetHash(n *cell.Names) uint64 {
	f := n.Family()
	var buf [2*binary.MaxVarintLen64 + 1 + window.WorkspaceBytesMax + window.NamespaceBytesMax + window.IdentifierBytesMax]byte
	b := binary.AppendUvarint(buf[:0], uint64(f.DurationMs))
	b = append(b, byte(f.Mode), byte(len(f.Workspace)), byte(len(f.Namespace)))
	b = append(b, f.Workspace...)
	b = append(b, f.Namespace...)
	return xxhash.Sum64(append(b, n.Identifier()...))
}

// filter is a set of keys of one node of another region.
type filter struct {
	set         *xorfilter.BinaryFuse[uint16] // nil is empty
	expiresAtMs int64
}

func (f *filter) has(hash uint64) bool { return f.set != nil && f.set.Contains(hash) }

func newFilter(hashes []uint64) (*xorfilter.BinaryFuse[uint16], error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	return xorfilter.NewBinaryFuse[uint16](hashes)
}

const filterHeaderBytes = 1 + 8 + 3*4

func encodeFilter(f *xorfilter.BinaryFuse[uint16]) []byte {
	if f == nil {
		return []byte{digestFilter}
	}
	b := make([]byte, 0, filterHeaderBytes+2*len(f.Fingerprints))
	b = append(b, digestFilter)
	b = binary.LittleEndian.AppendUint64(b, f.Seed)
	b = binary.LittleEndian.AppendUint32(b, f.SegmentLength)
	b = binary.LittleEndian.AppendUint32(b, f.SegmentCount)
	b = binary.LittleEndian.AppendUint32(b, f.SegmentCountLength)
	for _, p := range f.Fingerprints {
		b = binary.LittleEndian.AppendUint16(b, p)
	}
	return b
}

// decodeFilter refuses what a look-up would run off the end of.
func decodeFilter(b []byte) (*xorfilter.BinaryFuse[uint16], error) {
	if len(b) == 1 {
		return nil, nil
	}
	if len(b) < filterHeaderBytes || len(b)%2 != filterHeaderBytes%2 {
		return nil, fmt.Errorf("%w: filter of %d bytes", errDigest, len(b))
	}
	f := &xorfilter.BinaryFuse[uint16]{
		Seed:               binary.LittleEndian.Uint64(b[1:]),
		SegmentLength:      binary.LittleEndian.Uint32(b[9:]),
		SegmentCount:       binary.LittleEndian.Uint32(b[13:]),
		SegmentCountLength: binary.LittleEndian.Uint32(b[17:]),
	}
	f.SegmentLengthMask = f.SegmentLength - 1
	// The three places of a key lie in consecutive segments, the first of which is one
	// of SegmentCount.
	length, count, places := uint64(f.SegmentLength), uint64(f.SegmentCount), uint64(len(b)-filterHeaderBytes)/2
	if length == 0 || length&(length-1) != 0 || count == 0 || uint64(f.SegmentCountLength) != length*count || places != length*(count+2) {
		return nil, fmt.Errorf("%w: filter of %d segments of %d in %d places", errDigest, count, length, places)
	}
	f.Fingerprints = make([]uint16, places)
	for i := range f.Fingerprints {
		f.Fingerprints[i] = binary.LittleEndian.Uint16(b[filterHeaderBytes+2*i:])
	}
	return f, nil
}

// activeKeys hashes the keys that cost was accepted on here, in a cell that is current or
// was before. Of more than fit it leaves out those with the smallest shares of their
// limits.
func (l *Limiter) activeKeys(set *settings, nowMs int64) (hashes []uint64, leftOut int) {
	type active struct {
		hash  uint64
		share float64
	}
	var all []active
	l.table.Walk(func(e *cell.Entry) {
		durationMs := e.DurationMs()
		if milliseconds(durationMs) < set.tuning.MinGlobalDuration.Std() {
			return
		}
		if set.superseded(e.Names()) { // its successor speaks for the key
			return
		}
		if share := e.ActiveShare(window.Sequence(nowMs, durationMs)); share > 0 {
			all = append(all, active{fleetHash(e.Names()), share})
		}
	})
	if leftOut = max(0, len(all)-filterKeysMax); leftOut > 0 {
		slices.SortFunc(all, func(a, b active) int {
			switch {
			case a.share > b.share:
				return -1
			case a.share < b.share:
				return 1
			}
			return 0
		})
		all = all[:filterKeysMax]
	}
	hashes = make([]uint64, len(all))
	for i := range all {
		hashes[i] = all[i].hash
	}
	return hashes, leftOut
}

// digestOnce publishes this node's filter, unless the last one still says nearly the same
// and is good for long enough.
func (l *Limiter) digestOnce(ctx context.Context) error {
	l.digesting.Lock()
	defer l.digesting.Unlock()
	set, nowMs := l.settings.Load(), l.nowMs()
	interval := set.tuning.DigestInterval.Std()
	if interval == 0 {
		l.elsewhere.forget()
		return nil
	}
	hashes, leftOut := l.activeKeys(set, nowMs)
	l.metrics.digestLeftOut.Add(int64(leftOut))
	if !l.filterIsDue(hashes, nowMs, interval) {
		return nil
	}
	made, err := newFilter(hashes) // reorders hashes
	if err != nil {
		return fmt.Errorf("digest of %d keys: %w", len(hashes), err)
	}
	payload := encodeFilter(made)
	expiresAtMs := nowMs + digestIntervals*interval.Milliseconds()
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	err = l.cfg.Counts.PublishDigest(ctx, l.cfg.Region, store.Digest{
		Region: l.cfg.Region, Node: l.cfg.NodeID, Keys: len(hashes), Filter: payload, MadeAtMs: nowMs, ExpiresAtMs: expiresAtMs})
	if err != nil {
		l.metrics.digestErrors.Add(1)
		return fmt.Errorf("publish a digest of %d keys: %w", len(hashes), err)
	}
	l.elsewhere.ownFilter(&filter{made, expiresAtMs}, leftOut == 0)
	l.metrics.digestKeys.Store(int64(len(hashes)))
	l.metrics.digestBytes.Store(int64(len(payload)))
	return nil
}

func (l *Limiter) filterIsDue(hashes []uint64, nowMs int64, interval time.Duration) bool {
	own := l.elsewhere.own.Load()
	if own == nil || own.expiresAtMs-nowMs < (digestIntervals+1)*interval.Milliseconds()/2 {
		return true
	}
	fresh := 0
	for _, h := range hashes {
		if !own.has(h) {
			fresh++
		}
	}
	return float64(fresh) > filterDrift*float64(len(hashes))
}
