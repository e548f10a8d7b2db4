package topk

import "slices"

// Ranking keeps the first few.
type Ranking[T any] struct {
	Limit   int // of Items
	Compare func(a, b T) int
	Items   []T // the first item first
}

// Takes reports whether Add would keep item.
func (r *Ranking[T]) Takes(item *T) bool {
	return len(r.Items) < r.Limit || r.Compare(*item, r.Items[len(r.Items)-1]) < 0
}

// Add takes item in where it is among the first.
func (r *Ranking[T]) Add(item T) {
	if !r.Takes(&item) {
		return
	}
	at, _ := slices.BinarySearchFunc(r.Items, item, r.Compare)
	r.Items = slices.Insert(r.Items, at, item)
	r.Items = r.Items[:min(len(r.Items), r.Limit)]
}
