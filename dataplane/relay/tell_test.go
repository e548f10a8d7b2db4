package relay

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// R5, as the package comment has it under "What is told".
func TestR5WhatIsTold(t *testing.T) {
	const shared, alone = true, false
	for _, c := range []struct {
		what               string
		total, told, limit int64
		shared             bool
		still              time.Duration
		want               verdict
	}{
		{"the first cost, far from the limit", 1, toldNothing, 1000, alone, 0, tellHash},
		{"the first cost, just below 10 %", 99, toldNothing, 1000, alone, 0, tellHash},
		{"the first cost reaches 10 %", 100, toldNothing, 1000, alone, 0, tellCount},
		{"10 % of a limit of 15 is 2", 1, toldNothing, 15, alone, 0, tellHash},
		{"10 % of a limit of 15 is 2", 2, toldNothing, 15, alone, 0, tellCount},
		{"a limit of 1 has no first 10 %", 1, toldNothing, 1, alone, 0, tellCount},
		{"the first cost, another region was first", 1, toldNothing, 1000, shared, 0, tellCount},
		{"announced, below 10 %", 99, toldHash, 1000, alone, time.Hour, keepIt},
		{"announced, and 10 % reached", 100, toldHash, 1000, alone, 0, tellCount},
		{"announced, and another region came", 2, toldHash, 1000, shared, 0, tellCount},
		{"nothing of the own region's, another region uses it", 0, toldNothing, 0, shared, time.Hour, keepIt},
		{"nothing new", 100, 100, 1000, shared, time.Hour, keepIt},
		{"an origin that lost its counts has less", 90, 100, 1000, shared, time.Hour, keepIt},
		{"a whole step", 110, 100, 1000, shared, 0, tellCount},
		{"below a step", 109, 100, 1000, shared, stillFor - 1, laterIt},
		{"below a step, and alone", 109, 100, 1000, alone, stillFor - 1, laterIt},
		{"below a step for a second", 109, 100, 1000, shared, stillFor, tellCount},
		{"a step is at least 1", 2, 1, 10, shared, 0, tellCount},
		{"from 60 % of the limit on, every unit", 600, 599, 1000, shared, 0, tellCount},
		{"just below 60 %", 599, 598, 1000, shared, 0, laterIt},
		{"above the limit", 5000, 4999, 1000, shared, 0, tellCount},
		{"the largest limit", window.LimitMax, window.LimitMax - 1, window.LimitMax, shared, 0, tellCount},
		{"a limit beyond the largest one", 1, toldNothing, 1<<63 - 1, alone, 0, tellHash},
	} {
		s := standing{total: c.total, told: c.told, limit: c.limit, shared: c.shared, still: c.still}
		if got := s.verdict(); got != c.want {
			t.Errorf("%s: %+v: %v, want %v", c.what, s, got, c.want)
		}
	}
}
