package slots

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule wakes a loop for entries whose moment has come.
type schedule struct {
	mu    sync.Mutex
	items alarms
	wake  chan struct{} // something has to be done earlier than the loop knows
}

// alarm is an entry's moment, by the table's clock. The schedule's mutex guards it.
type alarm struct {
	e     *entry
	at    time.Duration
	place int // in the heap, + 1; 0 if it is not there
}

func newSchedule() *schedule { return &schedule{wake: make(chan struct{}, 1)} }

// set sets an alarm, anew if it is set.
func (s *schedule) set(a *alarm, at time.Duration) {
	s.mu.Lock()
	a.at = at
	if a.place == 0 {
		heap.Push(&s.items, a)
	} else {
		heap.Fix(&s.items, a.place-1)
	}
	first := s.items[0] == a
	s.mu.Unlock()
	if first {
		s.rouse()
	}
}

// rouse makes one of the running loops check when the first entry is due.
func (s *schedule) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take removes what is due.
func (s *schedule) take(now time.Duration) (due []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.items) > 0 && s.items[0].at <= now {
		due = append(due, heap.Pop(&s.items).(*alarm).e)
	}
	return due
}

// next is when the first one is due.
func (s *schedule) next() (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) == 0 {
		return 0, false
	}
	return s.items[0].at, true
}

// run calls step when something is due, until ctx ends: at once for what is due at once, and for the rest at the next
// tick together.
func (s *schedule) run(ctx context.Context, now func() time.Duration, step func()) {
	defer s.rouse() // this run may have used up a wake-up that another run needs
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := time.Hour
		if at, ok := s.next(); ok {
			moment := now()
			if wait = at - moment; wait > 0 {
				wait = (at+tick-1)/tick*tick - moment
			}
		}
		timer.Reset(max(0, wait))
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
			step()
		}
	}
}

// alarms is a heap, the first one first.
type alarms []*alarm

func (m alarms) Len() int           { return len(m) }
func (m alarms) Less(i, j int) bool { return m[i].at < m[j].at }

func (m alarms) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].place, m[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (m *alarms) Push(x any) {
	a := x.(*alarm)
	*m = append(*m, a)
	a.place = len(*m)
}

// Pop implements heap.Interface.
func (m *alarms) Pop() any {
	last := len(*m) - 1
	a := (*m)[last]
	a.place, (*m)[last] = 0, nil
	*m = (*m)[:last]
	return a
}
