package held

import (
	"cmp"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
)

// book has the reservations that a node has made, changed or taken back, and finds out by the numbers of answers which
// of them the origin has lost. It makes no call and has no clock: callers pass the origin's time, in Unix ms.
//
// The mutex guards all fields of the book and of its kept reservations. A Record that is kept is never changed, but
// replaced. The zero book is empty. All methods lock the mutex and may be called concurrently, except the methods whose
// comments require that it is held.
type book struct {
	mu      sync.Mutex
	stream  uint64
	groups  map[int]*group
	kept    map[uint64]*kept // by Record.MadeBy
	ids     map[string]*kept
	pending map[*kept]bool // reservations that must be stated again
	room    room           // that the reservations take
	crowds  crowds
}

// kept is a reservation that this node has made, changed or taken back, as it was last stated.
type kept struct {
	id     string // "" if its record was never stored
	record *Record
	of     fair.Of // whose share of the room it takes
	size   int64   // of the room that it takes
	atMs   int64   // time of the last change

	numbers  numbers // of the latest answers about it
	made     bool    // this node made it: its holds are at the origin, unless they are lost
	unstated bool    // the origin has not acknowledged the statements about its holds
	withdraw bool    // its maker cannot find out whether the record was stored, and has decided otherwise
	lost     bool    // the origin may have lost it
}

const (
	settledKept = 10 * time.Second // a promoted replica can lack calls that were answered within this time
	pendingMax  = 1000             // most reservations that a turn states again
	sweepMax    = 5000             // most reservations that a turn checks for their end
)

// keep stores a reservation until it ends, and for HoldKeptFor after its last change. It merges the copy that was kept
// before. If there is no room, the reservation is not kept, and not stated again if the origin loses it.
func (b *book) keep(k *kept, nowMs int64) *kept {
	b.mu.Lock()
	defer b.mu.Unlock()
	answered := k.numbers
	if was := b.kept[k.record.MadeBy]; was != nil {
		was.record, was.id = was.record.merged(k.record), cmp.Or(was.id, k.id)
		was.made, was.unstated, was.withdraw = was.made || k.made, was.unstated || k.unstated, was.withdraw && k.withdraw
		k = was
	} else if k.of, k.size = k.record.of(), k.record.size(); !b.room.take(k.of, k.size) {
		return k
	} else {
		if b.kept == nil {
			b.kept, b.ids, b.pending = make(map[uint64]*kept), make(map[string]*kept), make(map[*kept]bool)
		}
		b.kept[k.record.MadeBy] = k
	}
	k.atMs = nowMs
	b.number(k, answered)
	b.index(k)
	if k.id != "" && !k.withdraw {
		b.ids[k.id] = k
	}
	return k
}

// number records the numbers of answers about a reservation. If the origin has lost these calls meanwhile, the
// reservation must be stated again. The mutex must be held.
func (b *book) number(k *kept, answered numbers) {
	for _, is := range answered {
		g, was := b.groups[is.group], k.numbers.of(is.group)
		if is.n > was.n || is.epoch != was.epoch {
			k.numbers.set(is.group, is.number)
		}
		if g != nil && is.n > 0 && (is.epoch != g.after.Epoch || is.losses != g.losses || !g.seen[is.n]) {
			k.lost = true
		}
	}
}

// index adds a reservation to pending, or removes it. The mutex must be held.
func (b *book) index(k *kept) {
	if b.kept[k.record.MadeBy] != k {
		return
	}
	if delete(b.pending, k); k.unstated || k.withdraw || k.lost {
		b.pending[k] = true
	}
}

// forget removes a reservation. The mutex must be held.
func (b *book) forget(k *kept) {
	if b.kept[k.record.MadeBy] == k {
		delete(b.kept, k.record.MadeBy)
		b.room.bytes.Give(k.of, k.size)
	}
	if b.ids[k.id] == k {
		delete(b.ids, k.id)
	}
	delete(b.pending, k)
}

// find returns the reservation with an ID that this node has made, found or changed, and for some time after its end.
// It returns nil if there is none.
func (b *book) find(id string) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.ids[id]; k != nil {
		return k.record
	}
	return nil
}

// hasRoom reports whether there is room for a reservation of a caller and namespace. If there is none, it first forgets
// reservations that have ended, at most once a second, and reports that as swept.
func (b *book) hasRoom(of fair.Of, nowMs int64) (has, swept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if swept = !b.room.hasRoom(of) && b.room.sweeps(nowMs); swept {
		// Nodes restore the totals of an ended reservation anyway.
		for _, k := range b.kept {
			if !k.record.Open(nowMs) && !b.pending[k] {
				b.forget(k)
			}
		}
	}
	return b.room.hasRoom(of), swept
}

// lose marks reservations as lost. The mutex must be held.
func (b *book) lose(of func(k *kept) bool) {
	for _, k := range b.kept {
		if of(k) {
			k.lost, b.pending[k] = true, true
		}
	}
}

// loseAll marks all reservations as lost.
func (b *book) loseAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose(func(*kept) bool { return true })
}

// loseID marks a reservation as lost whose record the origin lacks, and returns it. It returns nil if the node has no
// open reservation with this ID, or has not changed it for so long that another node may have settled it.
func (b *book) loseID(id string, nowMs int64) *kept {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.ids[id]
	if k == nil || !k.record.Open(nowMs) || !k.lost && nowMs-k.atMs >= afterFor.Milliseconds() {
		return nil
	}
	k.lost = true
	return k
}

// look returns the ID of a reservation, its record, and whether the record must be withdrawn.
func (b *book) look(k *kept) (id string, r *Record, withdraw bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.id, k.record, k.withdraw
}

// restates is called before a reservation is stated again. It returns whether the origin may have lost it, and how its
// holds must be stated. If stating it fails, call notRestated.
func (b *book) restates(k *kept, nowMs int64) (lost bool, as store.HoldAs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost, as = k.lost, store.HoldState
	k.lost = false // unless more is lost meanwhile
	if lost || k.made && nowMs-k.atMs < afterFor.Milliseconds() {
		as = store.HoldForced // the final cost of a hold counts even if the hold is lost
	}
	return lost, as
}

// notRestated records that a reservation could not be stated again.
func (b *book) notRestated(k *kept, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.lost = k.lost || lost
	b.index(k)
}

// follows is called before statements about a reservation's holds, and returns the record that they follow from. Call
// followed after them.
func (b *book) follows(k *kept) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.unstated = false // unless the record changes meanwhile
	return k.record
}

// followed records the answers to statements about a reservation's holds, or their error. lacks is set if the origin
// lacks a hold.
func (b *book) followed(k *kept, answered numbers, lacks bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number(k, answered)
	k.unstated, k.lost = k.unstated || err != nil, k.lost || lacks
	b.index(k)
}

// take merges the stored record, which is in the group of, into a reservation. A withdrawn reservation is undone. If
// another reservation has the ID since, the first stays as it is, because its holds were granted.
func (b *book) take(k *kept, of int, reply *answer, nowMs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is, err := Parse(&reply.Record)
	switch own := err == nil && is.MadeBy == k.record.MadeBy; {
	case own:
		k.record = k.record.merged(is)
		if k.withdraw && k.record.Open(nowMs) && b.kept[k.record.MadeBy] == k { // another call has found it
			b.ids[k.id] = k
		}
	case k.withdraw:
		k.record = k.record.undone()
	}
	k.withdraw = false
	b.number(k, numbers{{of, reply.number}})
}

// due returns reservations that must be stated again, and forgets some that have ended.
func (b *book) due(nowMs int64) (some []*kept) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.pending {
		if over := nowMs - k.record.EndsMs; over >= store.HoldKeptFor.Milliseconds() {
			b.forget(k)
		} else if len(some) < pendingMax {
			some = append(some, k)
		}
	}
	looked := 0
	for _, k := range b.kept {
		if looked++; looked > sweepMax {
			break
		}
		if !k.record.Open(nowMs) && nowMs-k.atMs >= store.HoldKeptFor.Milliseconds() && !b.pending[k] {
			b.forget(k)
		}
	}
	return some
}

// lostOf returns the reservations that a group has lost, and that must be stated again.
func (b *book) lostOf(of int) (some []*kept) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.pending {
		if k.lost && k.numbers.of(of).n > 0 && len(some) < pendingMax {
			some = append(some, k)
		}
	}
	return some
}

// each calls f for the open reservations.
func (b *book) each(nowMs int64, f func(id string, r *Record)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.kept {
		if k.id != "" && !k.withdraw && k.record.Open(nowMs) {
			f(k.id, k.record)
		}
	}
}
