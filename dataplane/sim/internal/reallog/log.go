// Package reallog measures real windows outside of the limiters, with a log of the accepted costs and their times.
package reallog

import (
	"slices"
	"time"
)

// EntriesMax is the most entries that a Log keeps. A Log that was full merges costs that are accepted within 1/1024 of
// the window.
const EntriesMax = 2048

// Log is the accepted cost of a key within the last window. The zero Log is empty. It is not safe for concurrent use.
//
// The moment of an acceptance lies between the begin and the end of its call. A Log counts only cost that is certainly
// in the same window, so it never reports more than a window holds. It can report less: by the cost within the time of
// the calls and, once a window had more than EntriesMax acceptances, by the cost within 1/1024 of the window.
type Log struct {
	entries []entry // by began
	sum     int64
	step    time.Duration // within which entries are merged; 0 until the log is full
}

type entry struct {
	began time.Time
	cost  int64
}

// Within returns the cost that was certainly accepted in the window that ends at the given time. Times must not
// decrease.
func (l *Log) Within(ended time.Time, window time.Duration) int64 {
	gone := 0
	for gone < len(l.entries) && !l.entries[gone].began.After(ended.Add(-window)) {
		l.sum -= l.entries[gone].cost
		gone++
	}
	l.entries = slices.Delete(l.entries, 0, gone)
	return l.sum
}

// Accept adds a cost, and returns the result of Within, including the cost.
func (l *Log) Accept(began, ended time.Time, cost int64, window time.Duration) int64 {
	l.Within(ended, window)
	if len(l.entries) >= EntriesMax {
		l.step = window / (EntriesMax / 2)
		l.merge()
	}
	at := len(l.entries)
	for at > 0 && l.entries[at-1].began.After(began) {
		at--
	}
	if at > 0 && l.joins(at-1, began) {
		l.entries[at-1].cost += cost
	} else {
		l.entries = slices.Insert(l.entries, at, entry{began, cost})
	}
	l.sum += cost
	return l.sum
}

// joins reports whether a call that began no earlier than an entry is merged into it, and leaves the window with it.
func (l *Log) joins(at int, began time.Time) bool {
	since := began.Sub(l.entries[at].began)
	return since == 0 || since < l.step
}

// merge merges all entries within a step of the entry before.
func (l *Log) merge() {
	all := l.entries
	l.entries = all[:0]
	for _, e := range all {
		if n := len(l.entries); n > 0 && l.joins(n-1, e.began) {
			l.entries[n-1].cost += e.cost
		} else {
			l.entries = append(l.entries, e)
		}
	}
}
