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

func (u *users) add(h hashed) {
	u.mu.Lock()
	defer u.mu.Unlock()
	set := u.sets[h.expiresMs]
	if _, ok := set[h.hash]; ok || h.expiresMs <= u.fullUntilMs {
		return
	}
	if u.cost >= cmp.Or(u.costMax, usersMax) {
		u.fullUntilMs = h.expiresMs
		return
	}
	if set == nil {
		set = make(map[uint32]struct{})
		if u.sets == nil {
			u.sets = make(map[int64]map[uint32]struct{})
		}
		u.sets[h.expiresMs] = set
		u.cost += userSetCost
	}
	set[h.hash] = struct{}{}
	u.cost++
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
