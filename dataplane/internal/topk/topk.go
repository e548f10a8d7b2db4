// Package topk finds the keys that came most often.
package topk

// Sketch finds the most frequent keys of a stream, in bounded space: Space-Saving (Metwally, Agrawal, El Abbadi 2005).
// It has a counter for each of capacity keys. A key without a counter takes over the smallest counter with its count.
// So with n the sum of all added counts, every key that came
//
//	more than n/capacity times      has a counter
//	true times, if it has a counter true <= count, and count - over <= true
//	over                            <= n/capacity
//
// A Sketch is not safe for concurrent use. Its zero value is empty.
type Sketch[K comparable, V any] struct {
	at       map[K]int // index into heap
	heap     []Counter[K, V]
	capacity int
}

// Counter is the counter of a key.
type Counter[K comparable, V any] struct {
	Key   K
	Value V
	Count int64
	Over  int64 // of count: may be of keys that had the counter before
}

// New makes a sketch of capacity counters.
func New[K comparable, V any](capacity int) *Sketch[K, V] {
	return &Sketch[K, V]{at: make(map[K]int, capacity), heap: make([]Counter[K, V], 0, capacity), capacity: capacity}
}

// Add counts n > 0 of key. fresh reports whether the key has just got a counter. Then its value, to which the pointer
// leads until the next Add, is zero.
func (s *Sketch[K, V]) Add(key K, n int64) (value *V, fresh bool) {
	i, known := s.at[key]
	switch {
	case known:
		s.heap[i].Count += n
	case len(s.heap) < s.capacity:
		i = len(s.heap)
		s.heap = append(s.heap, Counter[K, V]{Key: key, Count: n})
		s.at[key] = i
		i = s.up(i)
	default:
		i = 0 // the root is the smallest
		least := s.heap[0].Count
		delete(s.at, s.heap[0].Key)
		s.heap[0] = Counter[K, V]{Key: key, Count: least + n, Over: least}
		s.at[key] = 0
	}
	return &s.heap[s.down(i)].Value, !known
}

// Find returns the counter of key, or nil if it has none. It is valid until the next Add.
func (s *Sketch[K, V]) Find(key K) *Counter[K, V] {
	if i, known := s.at[key]; known {
		return &s.heap[i]
	}
	return nil
}

// Each visits all counters.
func (s *Sketch[K, V]) Each(visit func(*Counter[K, V])) {
	for i := range s.heap {
		visit(&s.heap[i])
	}
}

// Clear forgets everything and keeps the space.
func (s *Sketch[K, V]) Clear() {
	clear(s.at)
	clear(s.heap[:cap(s.heap)])
	s.heap = s.heap[:0]
}

// Least returns the highest count that a key without a counter may have.
func (s *Sketch[K, V]) Least() int64 {
	if len(s.heap) < s.capacity {
		return 0
	}
	return s.heap[0].Count
}

func (s *Sketch[K, V]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if s.heap[parent].Count <= s.heap[i].Count {
			break
		}
		s.swap(i, parent)
		i = parent
	}
	return i
}

func (s *Sketch[K, V]) down(i int) int {
	for {
		child := 2*i + 1
		if child >= len(s.heap) {
			return i
		}
		if other := child + 1; other < len(s.heap) && s.heap[other].Count < s.heap[child].Count {
			child = other
		}
		if s.heap[i].Count <= s.heap[child].Count {
			return i
		}
		s.swap(i, child)
		i = child
	}
}

func (s *Sketch[K, V]) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.at[s.heap[i].Key], s.at[s.heap[j].Key] = i, j
}
