package relay

import (
	"testing"

	"github.com/weirhq/weir/shared/window"
)

// R5, as the package comment states it under "Publishing".
func TestR5WhatIsTold(t *testing.T) {
	const shared, alone = true, false
	for _, c := range []struct {
		what                    string
		total, published, limit int64
		shared                  bool
		want                    bool
	}{
		{"the first cost, however small", 1, 0, 1000, alone, true},
		{"the first cost at the largest limit", 1, 0, window.LimitMax, alone, true},
		{"the first cost at a limit beyond the largest one", 1, 0, 1<<63 - 1, alone, true},
		{"the first cost, another region was first", 1, 0, 1000, shared, true},
		{"below the floor", 99, 1, 1000, alone, false},
		{"at the floor", 100, 1, 1000, alone, true},
		{"beyond the floor, and below twice of it", 199, 150, 1000, alone, false},
		{"beyond the floor, and at twice of it", 200, 150, 1000, alone, true},
		{"10 % of a limit of 25 is 3", 2, 1, 25, alone, false},
		{"10 % of a limit of 25 is 3", 3, 1, 25, alone, true},
		{"a limit of 1 has no first 10 %", 2, 1, 1, alone, true},
		{"near the limit", 999, 901, 1000, alone, false},
		{"at the limit", 1000, 999, 1000, alone, true},
		{"at a limit that the floor of 11 does not divide", 105, 99, 105, alone, true},
		{"just below a limit that the floor does not divide", 104, 99, 105, alone, false},
		{"above a limit that was published", 1001, 1000, 1000, alone, false},
		{"another region came", 2, 1, 1000, shared, true},
		{"nothing of the own region's, another region uses it", 0, 0, 0, shared, false},
		{"nothing new", 100, 100, 1000, shared, false},
		{"an origin that lost its counts has less", 90, 100, 1000, shared, false},
		{"shared: every growth", 101, 100, window.LimitMax, shared, true},
		{"shared, above the limit", 5000, 4999, 1000, shared, true},
	} {
		s := standing{total: c.total, published: c.published, limit: c.limit, shared: c.shared}
		if got := s.isDue(0.1); got != c.want {
			t.Errorf("%s: %+v: %v, want %v", c.what, s, got, c.want)
		}
	}
}

// A floor of 0 publishes every growth, and a floor of 1 only counts that have reached their limit.
func TestR5WhatIsToldFollowsTheTuning(t *testing.T) {
	for _, c := range []struct {
		floor float64
		s     standing
		want  bool
	}{
		{0, standing{total: 2, published: 1, limit: 1000}, true},
		{1, standing{total: 999, published: 1, limit: 1000}, false},
		{1, standing{total: 1000, published: 1, limit: 1000}, true},
		{0.3, standing{total: 299, published: 1, limit: 1000}, false},
		{0.3, standing{total: 300, published: 1, limit: 1000}, true},
		{0.07, standing{total: 7, published: 1, limit: 100}, true}, // 0.07*100 > 7
	} {
		if got := c.s.isDue(c.floor); got != c.want {
			t.Errorf("%v, %+v: %v, want %v", c.floor, c.s, got, c.want)
		}
	}
}
