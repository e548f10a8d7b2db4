package held

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// endKept is how long it is known that a reservation has ended, so that who settles it then is told so.
const endKept = store.HoldKeptFor

// Here are the reservations of one process.
type Here struct {
	NowMs func() int64 // Unix ms, for people: reservations end by Go's own clock, which no step changes
	Stats Stats

	mu   sync.Mutex
	by   map[string]*Own
	room room // that they take
}

// Count is what a reservation has counted of one item.
type Count interface {
	// Charge counts more.
	Charge(cost int64)
	// Return counts less.
	Return(cost int64)
}

// Own is one of them.
type Own struct {
	in      *Here
	id      string
	bytes   int
	ready   chan struct{} // closed once it is counted or refused; that may wait for the origin, so no lock is held
	mu      sync.Mutex
	record  *Record
	ends    time.Time
	counts  []Count // nil of an item that counts nothing
	counted []int64
	made    any // the answer to who made it; nil if that was refused
	timer   *time.Timer
	ended   bool
	over    atomic.Bool // it is settled, or has ended: nothing resets its timer but its end
}

// Find returns a reservation, nil if there is none.
func (s *Here) Find(id string) *Own {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[id]
}

// Reserve makes a reservation by having count count its items, and keeps what it answers, unless there is one of this
// id: then it returns that one's answer.
func (s *Here) Reserve(id string, r *Record,
	count func() (counts []Count, ok bool, answer any)) (answer any, err error) {
	own := &Own{in: s, id: id, bytes: r.bytes(), record: r, ready: make(chan struct{}),
		ends: time.Now().Add(r.left(r.MadeMs))}
	for {
		was, err := s.enter(own)
		if err != nil {
			return nil, err
		}
		if was == nil {
			break
		}
		if answer, err = was.again(r); !errors.Is(err, errRefused) {
			return answer, err
		}
	}
	defer close(own.ready)
	counts, ok, answer := count() // it may wait for the origin
	own.mu.Lock()
	defer own.mu.Unlock()
	s.Stats.reserved(ok, ok, nil)
	if !ok {
		own.ended = true
		s.leave(own)
		return answer, nil
	}
	own.counts, own.made, own.counted = counts, answer, make([]int64, len(r.Items))
	for i := range r.Items {
		own.counted[i] = r.Items[i].Held
	}
	own.timer = time.AfterFunc(time.Duration(r.EndsMs-r.MadeMs)*time.Millisecond, own.end)
	return answer, nil
}

func (s *Here) enter(own *Own) (was *Own, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch was = s.by[own.id]; {
	case was != nil:
		return was, nil
	case s.full() && !s.makeRoom():
		return nil, ErrFull
	case s.by == nil:
		s.by = make(map[string]*Own)
	}
	s.by[own.id] = own
	s.room.bytes += own.bytes
	return nil, nil
}

func (s *Here) full() bool { return s.room.full(len(s.by)) }

// makeRoom forgets what is settled or has ended, earlier than it would be. The mutex is held.
func (s *Here) makeRoom() bool {
	if !s.room.sweeps(s.NowMs()) {
		return false
	}
	for _, own := range s.by {
		if own.over.Load() {
			own.timer.Stop() // it would keep it
			s.forget(own)
		}
	}
	return !s.full()
}

func (s *Here) leave(own *Own) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(own)
}

// forget leaves another reservation alone that has taken the id of one that was forgotten before.
func (s *Here) forget(own *Own) {
	if s.by[own.id] == own {
		delete(s.by, own.id)
		s.room.bytes -= own.bytes
	}
}

// errRefused is of a reservation that was refused just now: the same may be asked for again.
var errRefused = errors.New("dataplane: the reservation was refused")

// open reports whether it can be settled and extended. The mutex is held.
func (o *Own) open() bool { return !o.ended && !o.record.Settled && time.Now().Before(o.ends) }

// again answers who asks for the same once more.
func (o *Own) again(r *Record) (answer any, err error) {
	<-o.ready
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.made != nil && !o.record.Same(r):
		return nil, ErrUsed
	case o.made == nil:
		return nil, errRefused
	case !o.open():
		return nil, ErrOver
	}
	return o.made, nil
}

// Change is There.Change.
func (o *Own) Change(by Change) (r *Record, late bool, err error) {
	<-o.ready
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.made == nil:
		return nil, false, ErrNone
	case !o.open():
		o.in.Stats.changed(o.record, false)
		return o.record, true, nil
	}
	if err := by.check(len(o.record.Items)); err != nil {
		return nil, false, err
	}
	next := by.apply(o.record, 0)
	if later := time.Now().Add(by.TTL); later.After(o.ends) {
		o.ends = later
	}
	left := time.Until(o.ends)
	next.EndsMs = o.in.NowMs() + left.Milliseconds()
	o.record = next
	o.in.Stats.changed(next, true)
	o.count(next.Settled)
	o.timer.Reset(left)
	o.over.Store(next.Settled)
	return next, false, nil
}

// count brings what is counted to what was spent: to no less than was reserved, unless that is all.
func (o *Own) count(all bool) {
	for i, c := range o.counts {
		switch spent := o.record.Items[i].Spent; {
		case c == nil:
		case spent > o.counted[i]:
			c.Charge(spent - o.counted[i])
			o.counted[i] = spent
		case all:
			c.Return(o.counted[i] - spent)
			o.counted[i] = spent
		}
	}
}

// end is called at the reservation's end, and once more when it is forgotten.
func (o *Own) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		o.in.leave(o)
		return
	}
	if !o.record.Settled && o.record.Returned {
		o.count(true)
	}
	o.ended = true
	o.timer.Reset(endKept)
	o.over.Store(true)
}

// Each is There.Each.
func (s *Here) Each(f func(id string, r *Record)) {
	s.mu.Lock()
	all := maps.Clone(s.by)
	s.mu.Unlock()
	for id, o := range all {
		o.mu.Lock()
		if o.made != nil && o.open() {
			f(id, o.record)
		}
		o.mu.Unlock()
	}
}

// Stop ends the timers: what is reserved here is over with the process.
func (s *Here) Stop() {
	s.mu.Lock()
	all := s.by
	s.by, s.room = nil, room{}
	s.mu.Unlock()
	for _, o := range all {
		<-o.ready
		o.mu.Lock()
		if o.timer != nil {
			o.timer.Stop()
		}
		o.mu.Unlock()
	}
}
