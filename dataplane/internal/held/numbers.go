package held

import (
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// group is a node's record of a group of the origin.
type group struct {
	key      window.Key     // a key in the group
	after    store.Mark     // largest number in an answer
	atMs     int64          // when an answer last had a number
	provenMs int64          // time of the last answer
	seen     map[int64]bool // latest numbers, without the lost numbers
	losses   int            // how often the group has lost calls

	restating chan struct{} // capacity 1; filled while a caller states lost reservations again
}

// number is the number of an answer. The zero number is for an answer to a call that changed nothing.
type number struct {
	n      int64
	losses int         // of the group, at the time of the answer
	epoch  store.Epoch // of the answer
}

// numberOf is the number of an answer of the given group.
type numberOf struct {
	group int
	number
}

// numbers are the numbers of some groups. A reservation has few groups.
type numbers []numberOf

// of returns the number of a group, zero if there is none.
func (all numbers) of(group int) number {
	for i := range all {
		if all[i].group == group {
			return all[i].number
		}
	}
	return number{}
}

// set sets the number of a group, unless it is the zero number.
func (all *numbers) set(group int, is number) {
	if is.n == 0 {
		return
	}
	for i := range *all {
		if (*all)[i].group == group {
			(*all)[i].number = is
			return
		}
	}
	*all = append(*all, numberOf{group, is})
}

const (
	seenMax  = 4096                            // numbers of a group; must exceed the calls under way at the same time
	afterFor = store.HoldKeptFor - settledKept // a group may forget a stream without calls after this time
)

// marks returns the stream, and After of a group's next call.
func (b *book) marks(of int, nowMs int64) (stream uint64, after store.Mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == 0 {
		b.stream = rand.Uint64() | 1
	}
	if g := b.groups[of]; g != nil && nowMs-g.atMs < afterFor.Milliseconds() {
		after = g.after
	}
	return b.stream, after
}

// answered records the number of an answer. If a number comes a second time, the group has lost the call that it first
// answered with it, and all later calls. For example, after the answers 5, 6 and 7 a second 6 shows that the first 6
// and 7 are lost. Another epoch shows that the group has lost all calls. A group that was not called for long may have
// forgotten the stream, and count from 1 again.
func (b *book) answered(of int, key *window.Key, reply *store.HoldReply, nowMs int64) (is number) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[of]
	if g != nil && g.after.Epoch != reply.Epoch {
		b.lose(func(k *kept) bool { return k.numbers.of(of).n > 0 })
		g = nil
	}
	if g == nil || nowMs-g.atMs >= store.HoldKeptFor.Milliseconds() && reply.Number > 0 {
		g = &group{key: *key, after: store.Mark{Epoch: reply.Epoch}, seen: make(map[int64]bool),
			restating: make(chan struct{}, 1)}
		if b.groups == nil {
			b.groups = make(map[int]*group)
		}
		b.groups[of] = g
	}
	n := reply.Number
	g.provenMs = nowMs
	switch {
	case reply.Behind:
		if reply.Have < g.after.Number { // otherwise another answer has already shown this loss
			b.rolledBack(of, g, reply.Have)
		}
		return is
	case n == 0:
		return is
	case g.seen[n]:
		b.rolledBack(of, g, n-1) // the call of either answer can be the lost call
	default:
		g.seen[n] = true
	}
	g.atMs, g.after.Number = nowMs, max(g.after.Number, n)
	if len(g.seen) > seenMax {
		for old := range g.seen {
			if old < g.after.Number-seenMax/2 {
				delete(g.seen, old)
			}
		}
	}
	return number{n, g.losses, reply.Epoch}
}

// rolledBack marks the reservations as lost that a group has answered after its have-th call. The mutex must be held.
func (b *book) rolledBack(of int, g *group, have int64) {
	g.after.Number, g.losses = have, g.losses+1
	for n := range g.seen {
		if n > have {
			delete(g.seen, n)
		}
	}
	b.lose(func(k *kept) bool { return k.numbers.of(of).n > have })
}

// unproven returns keys of the groups that can lose calls that they answered, and that were not called in the last
// second. A group that is away is checked once it is back, because it may be a replica then.
func (b *book) unproven(nowMs int64) (keys []window.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		if nowMs-g.provenMs >= time.Second.Milliseconds() && g.provenMs-g.atMs < settledKept.Milliseconds() {
			keys = append(keys, g.key)
		}
	}
	return keys
}

// epochOf returns a group's latest epoch, or 0 if it has never answered.
func (b *book) epochOf(of int) store.Epoch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[of]; g != nil {
		return g.after.Epoch
	}
	return 0
}

// group returns the record of a group, or nil if it has never answered. Callers may use only its key and restating,
// which never change.
func (b *book) group(of int) *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups[of]
}
