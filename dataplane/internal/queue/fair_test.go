package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// value belongs to a namespace, and is numbered in the order of arrival.
type value struct {
	of uint16
	n  int
}

// Whatever is pushed and removed, the queue returns each value once, and the values of a namespace in their order.
// While a namespace waits for its turn, no other namespace has two turns.
func TestNamespacesTakeTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Fair[value]
		lines := make(map[uint16][]value)  // the dumb version
		passed := make(map[[2]uint16]bool) // whether, since the first waited or had its turn, the second had a turn
		next := 0
		group := rapid.Uint16Range(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				v := value{group.Draw(t, "namespace"), next}
				next++
				q.Push(v.of, v)
				lines[v.of] = append(lines[v.of], v)
			},
			"push to the front": func(t *rapid.T) {
				of := group.Draw(t, "namespace")
				var front []value
				for range rapid.IntRange(0, 3).Draw(t, "values") {
					front = append(front, value{of, next})
					next++
				}
				q.PushFront(of, front...)
				lines[of] = slices.Concat(front, lines[of])
			},
			"remove": func(t *rapid.T) {
				of := group.Draw(t, "namespace")
				gone := value{of, -1} // it is not there
				if line := lines[of]; len(line) > 0 {
					gone = rapid.SampledFrom(line).Draw(t, "value")
				}
				is := func(v value) bool { return v == gone }
				q.Remove(of, is)
				lines[of] = slices.DeleteFunc(lines[of], is)
			},
			"pop": func(t *rapid.T) {
				peeked, some := q.Peek()
				got, ok := q.Pop()
				if ok != some || got != peeked {
					t.Fatalf("Pop returned %v %v, Peek %v %v", got, ok, peeked, some)
				}
				if !ok {
					return
				}
				if want := lines[got.of][0]; got != want {
					t.Fatalf("got %v, want %v", got, want)
				}
				lines[got.of] = lines[got.of][1:]
				for of, line := range lines {
					delete(passed, [2]uint16{got.of, of})
					if of == got.of || len(line) == 0 {
						continue
					}
					if passed[[2]uint16{of, got.of}] {
						t.Fatalf("namespace %d had two turns while %d waited", got.of, of)
					}
					passed[[2]uint16{of, got.of}] = true
				}
			},
			"": func(t *rapid.T) {
				all := 0
				for of, line := range lines {
					if all += len(line); len(line) == 0 { // it gets a new place when it comes back
						for other := range uint16(5) {
							delete(passed, [2]uint16{of, other})
						}
					}
				}
				if q.Len() != all {
					t.Fatalf("%d values, want %d", q.Len(), all)
				}
			},
		})
	})
}

// Take returns the values of as many calls of Pop, and stops at the end of the queue.
func TestTakeEndsWithTheQueue(t *testing.T) {
	var q Fair[int]
	for i := range 3 {
		q.Push(1, i)
	}
	q.Push(2, 10)
	if got := q.Take(3); !slices.Equal(got, []int{0, 10, 1}) {
		t.Errorf("took %v", got)
	}
	if got := q.Take(3); !slices.Equal(got, []int{2}) || q.Take(1) != nil {
		t.Errorf("took %v", got)
	}
}
