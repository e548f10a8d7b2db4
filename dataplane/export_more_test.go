package dataplane

import (
	"context"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Entry stands for the memory that holds a key at this moment, nil for none. It is
// equal to an earlier one only if the key was not forgotten in between.
func (l *Limiter) Entry(k window.Key) any {
	if e := l.entryOf(k); e != nil {
		return e
	}
	return nil
}

// SweepTick is one tick of the sweep. It returns how many entries it looked at.
func (l *Limiter) SweepTick() (looked int) { return l.table.Sweep(l.nowMs()) }

// BreakersOff lets every call to the origin through.
func (l *Limiter) BreakersOff() {
	for _, sh := range l.shards {
		sh.asks.TurnOff()
		sh.sends.TurnOff()
	}
}

// SyncOnce syncs the keys of the estimate mode that wait, in all shards.
func (l *Limiter) SyncOnce(ctx context.Context) error { return l.syncOnce(ctx) }

// Waiting is how many keys wait for a sync, and how many were not taken.
func (l *Limiter) Waiting() (keys int, refused int64) {
	for _, sh := range l.shards {
		keys += sh.syncs.size()
	}
	return keys, l.syncs.refused.Load()
}

// Asked is true while a key waits for a sync, and not only to be sent.
func (l *Limiter) Asked(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.WantsSync()
}

// Waits is true while a key waits to be sent or synced.
func (l *Limiter) Waits(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.Flags().Asked()
}

// The steps of the digests' loops, for tests that turn them by hand.

func (l *Limiter) DigestOnce(ctx context.Context) error { return l.digestOnce(ctx) }
func (l *Limiter) LearnOnce(ctx context.Context) error  { return l.learnOnce(ctx) }
func (l *Limiter) TellOnce(ctx context.Context) error   { return l.tellOnce(ctx, false) }

// Covered is true when all regions' digests are at hand.
func (l *Limiter) Covered() bool { return l.elsewhere.covered(l.nowMs()) }

// FilterKeysMax is filterKeysMax.
const FilterKeysMax = filterKeysMax

// EncodeBulletin is encodeBulletin.
func EncodeBulletin(counts []store.Count, madeAtMs int64) (payload []byte, told int) {
	return encodeBulletin(counts, madeAtMs)
}

// FilterTakes is how many of so many keys that a filter does not hold it takes for its own.
func FilterTakes(payload []byte, others int) (taken int) {
	set, err := decodeFilter(payload)
	if err != nil {
		panic(err)
	}
	f := filter{set: set}
	var buf [8]byte
	for i := range others {
		binary.LittleEndian.PutUint64(buf[:], uint64(i))
		if f.has(xxhash.Sum64(buf[:])) {
			taken++
		}
	}
	return taken
}

// FilterOf makes the payload of a filter that holds the keys.
func FilterOf(keys []window.Key) []byte {
	var h cell.Hasher
	h.Init()
	hashes := make([]uint64, len(keys))
	for i := range keys {
		n := h.NamesOf(&keys[i], nil)
		hashes[i] = fleetHash(&n)
	}
	f, err := newFilter(hashes)
	if err != nil {
		panic(err)
	}
	return encodeFilter(f)
}

// FilterHolds asks a filter's payload for a key.
func FilterHolds(payload []byte, key window.Key) (bool, error) {
	set, err := decodeFilter(payload)
	if err != nil {
		return false, err
	}
	var h cell.Hasher
	h.Init()
	n := h.NamesOf(&key, nil)
	f := filter{set: set}
	return f.has(fleetHash(&n)), nil
}

// Claimants is how many costs wait for the next call that claims.
func (l *Limiter) Claimants() (n int) {
	for _, sh := range l.shards {
		sh.mu.Lock()
		n += len(sh.claimants)
		sh.mu.Unlock()
	}
	return n
}
