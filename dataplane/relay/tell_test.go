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
		{"the first cost, just below half of the floor", 49, toldNothing, 1000, alone, 0, tellHash},
		{"the first cost, half of the floor", 50, toldNothing, 1000, alone, 0, tellCount},
		{"told below the floor, and not at it yet", 99, 50, 1000, alone, time.Hour, keepIt},
		{"told below the floor, and at it", 100, 50, 1000, alone, 0, tellCount},
		{"told beyond the floor, and not at twice of it", 199, 150, 1000, alone, time.Hour, keepIt},
		{"told beyond the floor, and at twice of it", 200, 150, 1000, alone, 0, tellCount},
		{"the first cost reaches the floor", 100, toldNothing, 1000, alone, 0, tellCount},
		{"10 % of a limit of 25 is 3", 1, toldNothing, 25, alone, 0, tellHash},
		{"10 % of a limit of 25 is 3, and 2 is more than half of it", 2, toldNothing, 25, alone, 0, tellCount},
		{"10 % of a limit of 15 is 2, and 1 half of it", 1, toldNothing, 15, alone, 0, tellCount},
		{"10 % of a limit of 15 is 2", 2, toldNothing, 15, alone, 0, tellCount},
		{"a limit of 1 has no first 10 %", 1, toldNothing, 1, alone, 0, tellCount},
		{"the first cost, another region was first", 1, toldNothing, 1000, shared, 0, tellCount},
		{"announced, below the floor", 99, toldHash, 1000, alone, time.Hour, keepIt},
		{"announced, and the floor reached", 100, toldHash, 1000, alone, 0, tellCount},
		{"announced, and another region came", 2, toldHash, 1000, shared, 0, tellCount},
		{"alone, told, and less than a floor more", 199, 100, 1000, alone, time.Hour, keepIt},
		{"alone, told, and a floor more", 200, 100, 1000, alone, 0, tellCount},
		{"alone, and near its limit", 999, 901, 1000, alone, time.Hour, keepIt},
		{"alone, and at its limit", 1000, 999, 1000, alone, 0, tellCount},
		{"alone, and above its limit", 1001, 1000, 1000, alone, time.Hour, keepIt},
		{"told alone, and another region came", 199, 100, 1000, shared, 0, tellCount},
		{"nothing of the own region's, another region uses it", 0, toldNothing, 0, shared, time.Hour, keepIt},
		{"nothing new", 100, 100, 1000, shared, time.Hour, keepIt},
		{"an origin that lost its counts has less", 90, 100, 1000, shared, time.Hour, keepIt},
		{"a whole step", 110, 100, 1000, shared, 0, tellCount},
		{"below a step", 109, 100, 1000, shared, stillFor - 1, laterIt},
		{"below a step for a second", 109, 100, 1000, shared, stillFor, tellCount},
		{"a step is at least 1", 2, 1, 10, shared, 0, tellCount},
		{"1 % of a limit of 150 is 2", 101, 100, 150, shared, 0, tellCount}, // hot
		{"1 % of a limit of 150 is 2", 51, 50, 150, shared, 0, laterIt},
		{"from 60 % of the limit on, every unit", 600, 599, 1000, shared, 0, tellCount},
		{"just below 60 %", 599, 598, 1000, shared, 0, laterIt},
		{"above the limit", 5000, 4999, 1000, shared, 0, tellCount},
		{"the largest limit", window.LimitMax, window.LimitMax - 1, window.LimitMax, shared, 0, tellCount},
		{"a limit beyond the largest one", 1, toldNothing, 1<<63 - 1, alone, 0, tellHash},
	} {
		s := standing{total: c.total, told: c.told, limit: c.limit, shared: c.shared, still: c.still}
		if got := s.verdict(Tuning{Floor: 0.1, Step: 0.01}); got != c.want {
			t.Errorf("%s: %+v: %v, want %v", c.what, s, got, c.want)
		}
	}
}

// A floor and a step of 0 tell every growth, a floor of 1 what has reached its limit.
func TestR5WhatIsToldFollowsTheTuning(t *testing.T) {
	for _, c := range []struct {
		tuning Tuning
		s      standing
		want   verdict
	}{
		{Tuning{}, standing{total: 1, told: toldNothing, limit: 1000}, tellCount},
		{Tuning{}, standing{total: 2, told: 1, limit: 1000}, tellCount},
		{Tuning{}, standing{total: 2, told: 1, limit: 1000, shared: true}, tellCount},
		{Tuning{Floor: 1}, standing{total: 999, told: toldHash, limit: 1000}, keepIt},
		{Tuning{Floor: 1}, standing{total: 1000, told: toldHash, limit: 1000}, tellCount},
		{Tuning{Floor: 0.3, Step: 0.2}, standing{total: 149, told: toldNothing, limit: 1000}, tellHash},
		{Tuning{Floor: 0.3, Step: 0.2}, standing{total: 300, told: toldNothing, limit: 1000}, tellCount},
		{Tuning{Floor: 0.3, Step: 0.2}, standing{total: 500, told: 301, limit: 1000, shared: true}, laterIt},
		{Tuning{Floor: 0.3, Step: 0.2}, standing{total: 500, told: 300, limit: 1000, shared: true}, tellCount},
		{Tuning{Floor: 0.07}, standing{total: 7, told: toldNothing, limit: 100}, tellCount}, // 0.07*100 > 7
	} {
		if got := c.s.verdict(c.tuning); got != c.want {
			t.Errorf("%+v, %+v: %v, want %v", c.tuning, c.s, got, c.want)
		}
	}
}
