package topk

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Every key that came more than n/capacity times has a counter; true <= count, and
// count - over <= true; over <= n/capacity: for any stream.
func TestSketchKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		s := New[string, string](capacity)
		truth := make(map[string]int64)
		var n int64
		few, many := rapid.IntRange(0, 5), rapid.IntRange(0, 60)
		for range rapid.IntRange(0, 400).Draw(t, "length") {
			of := many
			if rapid.Bool().Draw(t, "skewed") {
				of = few
			}
			key, weight := fmt.Sprint(of.Draw(t, "key")), rapid.Int64Range(1, 9).Draw(t, "weight")
			value, fresh := s.Add(key, weight)
			if fresh != (*value == "") {
				t.Fatalf("%s: fresh %v, with the value %q", key, fresh, *value)
			}
			*value = "value of " + key
			truth[key] += weight
			n += weight
		}
		if len(s.heap) > capacity || len(s.at) != len(s.heap) {
			t.Fatalf("%d counters, %d keys, of %d", len(s.heap), len(s.at), capacity)
		}
		bound := n / int64(capacity)
		held := make(map[string]bool)
		for i, c := range s.heap {
			held[c.Key] = true
			if s.at[c.Key] != i || c.Value != "value of "+c.Key {
				t.Errorf("%s is at %d, taken to be at %d, with %q", c.Key, i, s.at[c.Key], c.Value)
			}
			if true := truth[c.Key]; c.Count < true || c.Count-c.Over > true || c.Over > bound {
				t.Errorf("%s came %d times: counted %d, of which up to %d of others, at most %d", c.Key, true, c.Count, c.Over, bound)
			}
		}
		for key, times := range truth {
			if times > bound && !held[key] {
				t.Errorf("%s came %d times, more than %d, and has no counter", key, times, bound)
			}
			if !held[key] && times > s.Least() {
				t.Errorf("%s came %d times, without a counter at most %d", key, times, s.Least())
			}
		}
	})
}

// A cleared sketch behaves like a new sketch.
func TestSketchForgets(t *testing.T) {
	s := New[string, int](2)
	for _, key := range []string{"a", "b", "b", "c"} {
		value, _ := s.Add(key, 1)
		*value = 7
	}
	s.Clear()
	if s.Least() != 0 || len(s.at) != 0 {
		t.Errorf("least %d, %d keys", s.Least(), len(s.at))
	}
	if value, fresh := s.Add("b", 3); !fresh || *value != 0 || s.heap[0].Count != 3 || s.heap[0].Over != 0 {
		t.Errorf("fresh %v, %+v", fresh, s.heap[0])
	}
}
