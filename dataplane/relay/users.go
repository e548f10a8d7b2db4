package relay

import (
	"cmp"
	"sync"
)

const (
	// usersMax is how many hashes a relay holds: some 400 MB.
	usersMax = 1 << 25
	// userSetCost is what a set of them counts as, beside its hashes.
	userSetCost = 32
)

// users has the hashes of cells that other regions use, by expiry: all that expire together go at once. If there is no
// room for a hash, each cell that expires as early as that one, or earlier, is taken for used: its count is told
// closely, which costs rows and no precision.
type users struct {
	mu          sync.Mutex
	sets        map[int64]map[uint32]struct{}
	cost        int   // of all sets
	costMax     int   // 0 is usersMax
	fullUntilMs int64 // the last expiry of a hash that was left out
}

// add adds hashes of cells that expire together.
func (u *users) add(expiresMs int64, hashes []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	set := u.sets[expiresMs]
	for _, hash := range hashes {
		if _, ok := set[hash]; ok || expiresMs <= u.fullUntilMs {
			continue
		}
		if u.cost >= cmp.Or(u.costMax, usersMax) {
			u.fullUntilMs = expiresMs
			return
		}
		if set == nil {
			set = u.newSetLocked(expiresMs)
		}
		set[hash] = struct{}{}
		u.cost++
	}
}

func (u *users) newSetLocked(expiresMs int64) map[uint32]struct{} {
	if u.sets == nil {
		u.sets = make(map[int64]map[uint32]struct{})
	}
	set := make(map[uint32]struct{})
	u.sets[expiresMs] = set
	u.cost += userSetCost
	return set
}

func (u *users) has(expiresMs int64, hash uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.sets[expiresMs][hash]
	return ok || expiresMs <= u.fullUntilMs
}

// keep forgets the hashes whose expiry does not pass.
func (u *users) keep(pass func(expiresMs int64) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !pass(u.fullUntilMs) {
		u.fullUntilMs = 0
	}
	for expiresMs, set := range u.sets {
		if !pass(expiresMs) {
			u.cost -= userSetCost + len(set)
			delete(u.sets, expiresMs)
		}
	}
}
