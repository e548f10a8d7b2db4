package slots

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule wakes a loop when entries are due.
type schedule struct {
	mu    sync.Mutex
	items alarms
	wake  chan struct{} // an alarm may be earlier than the loop's next one
}

// alarm is the time at which an entry is due, by the table's clock. The schedule's mutex guards it.
type alarm struct {
	e     *entry
	at    time.Duration
	place int // in the heap, + 1; 0 if it is not in the heap
}

func newSchedule() *schedule { return &schedule{wake: make(chan struct{}, 1)} }

// set sets an alarm, or moves it.
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

// rouse makes a running loop check when the first entry is due.
func (s *schedule) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the entries that are due.
func (s *schedule) take(now time.Duration) (due []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.items) > 0 && s.items[0].at <= now {
		due = append(due, heap.Pop(&s.items).(*alarm).e)
	}
	return due
}

// next returns when the first entry is due.
func (s *schedule) next() (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) == 0 {
		return 0, false
	}
	return s.items[0].at, true
}

// run calls step when entries are due, until ctx ends. Entries that are due already are handled at once, and all others
// together at the next tick.
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

// alarms is a heap with the earliest alarm first.
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
