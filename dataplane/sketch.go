package dataplane

// sketch finds what came most often in a stream, in bounded space: Space-Saving
// (Metwally, Agrawal, El Abbadi 2005). It has a counter for each of capacity keys; a key
// without one takes over the smallest counter, count and all. So with n the sum of all
// that was added, every key that came
//
//	more than n/capacity times      has a counter
//	true times, if it has one       true <= count, and count - over <= true
//	over                            <= n/capacity
//
// It is not safe for concurrent use; its zero value holds nothing.
type sketch[K comparable, V any] struct {
	at       map[K]int // index into heap
	heap     []counted[K, V]
	capacity int
}

type counted[K comparable, V any] struct {
	key   K
	value V
	count int64
	over  int64 // of count: may be of keys that had the counter before
}

func newSketch[K comparable, V any](capacity int) *sketch[K, V] {
	return &sketch[K, V]{at: make(map[K]int, capacity), heap: make([]counted[K, V], 0, capacity), capacity: capacity}
}

// add counts n > 0 of key. fresh is true when it has just got a counter: then its value,
// which the pointer leads to until the next add, is the zero one.
func (s *sketch[K, V]) add(key K, n int64) (value *V, fresh bool) {
	i, known := s.at[key]
	switch {
	case known:
		s.heap[i].count += n
	case len(s.heap) < s.capacity:
		i = len(s.heap)
		s.heap = append(s.heap, counted[K, V]{key: key, count: n})
		s.at[key] = i
		i = s.up(i)
	default:
		i = 0 // the root is the smallest
		least := s.heap[0].count
		delete(s.at, s.heap[0].key)
		s.heap[0] = counted[K, V]{key: key, count: least + n, over: least}
		s.at[key] = 0
	}
	return &s.heap[s.down(i)].value, !known
}

// clear forgets everything and keeps the space.
func (s *sketch[K, V]) clear() {
	clear(s.at)
	clear(s.heap[:cap(s.heap)])
	s.heap = s.heap[:0]
}

// least is what a key without a counter may have come to, at most.
func (s *sketch[K, V]) least() int64 {
	if len(s.heap) < s.capacity {
		return 0
	}
	return s.heap[0].count
}

func (s *sketch[K, V]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if s.heap[parent].count <= s.heap[i].count {
			break
		}
		s.swap(i, parent)
		i = parent
	}
	return i
}

func (s *sketch[K, V]) down(i int) int {
	for {
		child := 2*i + 1
		if child >= len(s.heap) {
			return i
		}
		if other := child + 1; other < len(s.heap) && s.heap[other].count < s.heap[child].count {
			child = other
		}
		if s.heap[i].count <= s.heap[child].count {
			return i
		}
		s.swap(i, child)
		i = child
	}
}

func (s *sketch[K, V]) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.at[s.heap[i].key], s.at[s.heap[j].key] = i, j
}
