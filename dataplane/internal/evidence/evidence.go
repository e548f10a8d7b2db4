// Package evidence counts how a trial of limits differs from the limits before it: how many decisions each of them
// denies, and which callers are denied by the trial alone.
package evidence

import (
	"bytes"
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/denied"
	"github.com/weirhq/weir/dataplane/internal/topk"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

// Log has the evidence about a trial. All methods may be called concurrently. Counting takes no lock, except that a
// decision which only the trial denies tries to take the lock of the list of keys.
type Log struct {
	spaces  map[Name]*Space                   // of the namespaces that the trial changes; immutable
	callers atomic.Pointer[heartbeat.Callers] // with decisions that only the trial denies; immutable

	newly  atomic.Int64 // decisions that only the trial denies
	listed int64        // of newly, those in top; under its lock
	top    denied.Log

	protected atomic.Int64 // of newly, those of protected callers
	caller    atomic.Pointer[caller]
}

// Name names a namespace.
type Name struct{ Workspace, Namespace string }

// caller is the first protected caller that was newly denied.
type caller struct {
	id  cell.Identity
	key heartbeat.TopKey // without its Count
	n   atomic.Int64
}

// New returns an empty log.
func New(t *settings.LimitsTrial) *Log {
	l := &Log{spaces: make(map[Name]*Space)}
	for _, n := range Namespaces(&t.Change) {
		l.spaces[n] = &Space{log: l, name: n}
	}
	l.callers.Store(new(heartbeat.Callers))
	patterns := make(map[Name][]string)
	for _, p := range t.Protected {
		n := Name{p.Workspace, p.Namespace}
		patterns[n] = append(patterns[n], p.Pattern)
	}
	for n, list := range patterns {
		if s := l.spaces[n]; s != nil {
			s.protect(list)
		}
	}
	return l
}

// Namespaces returns the namespaces that a change touches, each once.
func Namespaces(c *settings.Change) (names []Name) {
	for _, n := range c.Namespaces {
		names = append(names, Name{n.After.Workspace, n.After.Namespace})
	}
	for _, o := range c.Overrides {
		of := o.Name()
		names = append(names, Name{of.Workspace, of.Namespace})
	}
	slices.SortFunc(names, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
	})
	return slices.Compact(names)
}

// Space returns the evidence about a namespace that the trial changes.
func (l *Log) Space(n Name) *Space { return l.spaces[n] }

// Outcome compares the verdicts of both limits about a decision. For example, a decision that only the trial denies is
// newly denied.
type Outcome uint8

// The outcomes.
const (
	Allowed      Outcome = iota // by both
	Denied                      // by both
	NewlyDenied                 // by the trial alone
	NewlyAllowed                // denied before the trial alone
	Outcomes
)

// OutcomeOf returns the outcome of a decision that the limits before the trial deny or allow, and those after it.
func OutcomeOf(deniedBefore, deniedAfter bool) Outcome {
	switch {
	case deniedBefore && deniedAfter:
		return Denied
	case deniedAfter:
		return NewlyDenied
	case deniedBefore:
		return NewlyAllowed
	}
	return Allowed
}

// String returns the name used in metrics.
func (o Outcome) String() string {
	return [...]string{"allowed", "denied", "newly_denied", "newly_allowed"}[o]
}

// stripes are shares of a namespace's counters, each on its own cache line; a power of two.
const stripes = 16

// Space has the evidence about a namespace.
type Space struct {
	log     *Log
	name    Name
	counts  [stripes]stripe
	exact   map[string]bool
	pattern *window.Patterns
	others  []string // patterns that do not fit into the index
}

type stripe struct {
	n [Outcomes]atomic.Int64
	_ [64 - Outcomes*8]byte
}

// protect sets the protected callers.
func (s *Space) protect(patterns []string) {
	s.exact = make(map[string]bool)
	patterns = slices.DeleteFunc(patterns, func(p string) bool {
		if window.IsExact(p) {
			s.exact[p] = true
		}
		return window.IsExact(p)
	})
	slices.SortFunc(patterns, window.ComparePatterns)
	patterns = slices.Compact(patterns)
	var leftOut []int
	s.pattern, leftOut = window.NewPatterns(patterns)
	for _, at := range leftOut {
		s.others = append(s.others, patterns[at])
	}
}

func (s *Space) protects(identifier string) bool {
	switch {
	case s.exact == nil:
		return false
	case s.exact[identifier] || s.pattern.Find(identifier) >= 0:
		return true
	}
	return slices.ContainsFunc(s.others, func(p string) bool { return window.Matches(p, identifier) })
}

// Add counts a decision. at is any number that differs between processors.
func (s *Space) Add(at uintptr, o Outcome) { s.counts[at%stripes].n[o].Add(1) }

// Denied records a decision that only the trial denies, after Add. limit is the limit of the trial. names returns the
// key's names, and is only called for keys that are not listed yet.
func (s *Space) Denied(id *cell.Identity, identifier string, limit int64, now clock.Steady, names func() cell.Names) {
	l := s.log
	l.newly.Add(1)
	l.addCaller(heartbeat.CallerHash(s.name.Workspace, s.name.Namespace, identifier))
	l.top.Add(*id, now, limit, func() int64 {
		weight := l.newly.Load() - l.listed // those that found the list busy, too
		l.listed += weight
		return weight
	}, names)
	if !s.protects(identifier) {
		return
	}
	l.protected.Add(1)
	c := l.caller.Load()
	if c == nil {
		n := names()
		l.caller.CompareAndSwap(nil, &caller{id: *id, key: keyOf(&n, limit)})
		c = l.caller.Load()
	}
	if c.id == *id {
		c.n.Add(1)
	}
}

// addCaller allocates only for a caller that changes the set.
func (l *Log) addCaller(hash uint64) {
	for {
		before := l.callers.Load()
		after, changed := before.With(hash)
		if !changed {
			return
		}
		if kept := after; l.callers.CompareAndSwap(before, &kept) { // only kept moves to the heap
			return
		}
	}
}

func keyOf(n *cell.Names, limit int64) heartbeat.TopKey {
	f := n.Family()
	return heartbeat.TopKey{Workspace: []byte(f.Workspace), Namespace: []byte(f.Namespace),
		Identifier: []byte(n.Identifier()), DurationMs: f.DurationMs, Limit: limit}
}

// Figures returns the evidence so far, within the bounds of heartbeats.
func (l *Log) Figures(now clock.Steady) *heartbeat.Limits {
	h := &heartbeat.Limits{Callers: *l.callers.Load(), Protected: l.protected.Load()}
	spaces := topk.Ranking[heartbeat.LimitsNamespace]{Limit: heartbeat.LimitsNamespacesMax, Compare: compareNamespaces}
	for name, s := range l.spaces {
		var n [Outcomes]int64
		for i := range s.counts {
			for o := range n {
				n[o] += s.counts[i].n[o].Load()
			}
		}
		in := heartbeat.LimitsNamespace{Workspace: []byte(name.Workspace), Namespace: []byte(name.Namespace),
			Judged:       n[Allowed] + n[Denied] + n[NewlyDenied] + n[NewlyAllowed],
			DeniedBefore: n[Denied] + n[NewlyAllowed], DeniedAfter: n[Denied] + n[NewlyDenied], NewlyDenied: n[NewlyDenied]}
		h.Judged, h.DeniedBefore = h.Judged+in.Judged, h.DeniedBefore+in.DeniedBefore
		h.DeniedAfter, h.NewlyDenied = h.DeniedAfter+in.DeniedAfter, h.NewlyDenied+in.NewlyDenied
		if in.Judged > 0 {
			spaces.Add(in)
		}
	}
	h.Namespaces = spaces.Items
	top := topk.Ranking[heartbeat.TopKey]{Limit: heartbeat.LimitsTopMax, Compare: compareKeys}
	l.top.Each(now, func(k *denied.Key) {
		key := keyOf(k.Names, k.Limit)
		key.Count, key.More = k.Count, k.More
		top.Add(key)
	})
	h.Top = top.Items
	if c := l.caller.Load(); c != nil {
		key := c.key
		key.Count = c.n.Load()
		h.Caller = &key
	}
	return h.Bounded()
}

func compareNamespaces(a, b heartbeat.LimitsNamespace) int {
	return cmp.Or(cmp.Compare(b.NewlyDenied, a.NewlyDenied), cmp.Compare(b.Judged, a.Judged),
		bytes.Compare(a.Workspace, b.Workspace), bytes.Compare(a.Namespace, b.Namespace))
}

func compareKeys(a, b heartbeat.TopKey) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), bytes.Compare(a.Workspace, b.Workspace),
		bytes.Compare(a.Namespace, b.Namespace), bytes.Compare(a.Identifier, b.Identifier),
		cmp.Compare(a.DurationMs, b.DurationMs))
}
