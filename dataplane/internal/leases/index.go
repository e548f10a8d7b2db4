package leases

import (
	"container/heap"
	"container/list"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

const (
	liveMax   = 100_000 // leases that a node lists for operators
	overMax   = 50_000  // released or lost leases that are remembered
	overFor   = TTLMax  // how long they are remembered, because a renewal may be late
	expireMax = 16      // leases that a call drops at most
)

// name is a lease's.
type name struct {
	key slots.Name
	id  string
}

// known is a lease of the origin with this node's last information, or a lease that is over. It is constant.
type known struct {
	Lease
	endsMs int64 // by this node's information: another node may have renewed the lease since
	over   bool  // it was released or lost; a later lease of the same ID has another SinceMs
}

// index has this node's leases: live leases until they end, and others for some time after they were released or lost.
// The zero value is empty. The time of a call, except all, does not grow with the number of leases.
type index struct {
	by     map[name]*item
	live   ends
	shares fair.Places // of liveMax; live leases have them
	over   list.List   // of *item, the oldest first
}

// item is a lease in the index.
type item struct {
	*known
	of      fair.Of       // whose share a live lease takes
	place   int           // in live
	element *list.Element // in over; nil if it is live
	overMs  int64         // when it came there
}

// find returns a lease, or nil.
func (x *index) find(n name) *known {
	if it := x.by[n]; it != nil {
		return it.known
	}
	return nil
}

// keep records a lease that a caller has acquired or renewed. It returns false if the shares of the caller and the
// namespace have no room for it. A kept lease stays in the share of the caller who first acquired it.
func (x *index) keep(k *known, by fair.Caller, nowMs int64) bool {
	x.expire(nowMs)
	n, of := k.name(), fair.Of{Caller: by, Space: fair.Space{Workspace: k.Key.Workspace, Namespace: k.Key.Namespace}}
	x.shares.Most = liveMax
	if it := x.by[n]; it != nil && !it.over {
		it.known = k
		heap.Fix(&x.live, it.place)
		return true
	}
	if !x.shares.Take(of, 1) {
		return false
	}
	x.remove(n)
	it := &item{known: k, of: of}
	x.add(n, it)
	heap.Push(&x.live, it)
	return true
}

// end records that a lease was released or lost, also if the index did not have it.
func (x *index) end(l *Lease, nowMs int64) {
	x.expire(nowMs)
	x.remove(l.name())
	it := &item{known: &known{Lease: *l, over: true}, overMs: nowMs}
	x.add(l.name(), it)
	it.element = x.over.PushBack(it)
}

// expire removes leases that have ended, and leases that have been over for long. A lease that has ended is not over,
// because another node may have renewed it.
func (x *index) expire(nowMs int64) {
	for range expireMax {
		if len(x.live) == 0 || x.live[0].endsMs > nowMs {
			break
		}
		x.remove(x.live[0].name())
	}
	for range expireMax {
		first := x.over.Front()
		if first == nil {
			break
		}
		it := first.Value.(*item)
		if x.over.Len() <= overMax && nowMs-it.overMs < overFor.Milliseconds() {
			break
		}
		x.remove(it.name())
	}
}

func (x *index) add(n name, it *item) {
	if x.by == nil {
		x.by = make(map[name]*item)
	}
	x.by[n] = it
}

// remove removes a lease if the index has it.
func (x *index) remove(n name) {
	it := x.by[n]
	switch {
	case it == nil:
		return
	case it.over:
		x.over.Remove(it.element)
	default:
		heap.Remove(&x.live, it.place)
		x.shares.Give(it.of, 1)
	}
	delete(x.by, n)
}

// all returns all live leases.
func (x *index) all() []*known {
	all := make([]*known, len(x.live))
	for i, it := range x.live {
		all[i] = it.known
	}
	return all
}

// ends is a heap of leases, by their ends.
type ends []*item

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].endsMs < e[j].endsMs }

func (e ends) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

// Push implements heap.Interface.
func (e *ends) Push(x any) {
	it := x.(*item)
	it.place = len(*e)
	*e = append(*e, it)
}

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := len(*e) - 1
	it := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return it
}
