package census

import (
	"cmp"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/denied"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/topk"
)

// Ranking ranks a node's keys. A walk over the table finds the hot keys by their counts. Denials leave no count behind,
// so a log has the denied keys. All methods may be called concurrently.
type Ranking struct {
	Clock  *clock.Clock
	Table  *cell.Table
	Rules  *rules.Rules
	Denied *denied.Log

	walking sync.Mutex
	restEnd time.Time // under walking
}

// Query selects the keys of a ranking.
type Query struct {
	Workspace, Namespace string // "" for all
	Limit                int
	Visible              func(workspace string) bool // nil for all
}

// Answer is the answer to a Query.
type Answer struct {
	At    time.Time
	Since time.Time // of denied keys: earlier denials are not included
	Keys  []Key     // largest Count first
}

// Key is a key of an Answer. Its fields are those of the limiter's TopKey.
type Key struct {
	Workspace, Namespace, Identifier string
	Duration                         time.Duration
	Limit, Count, Regional, More     int64
}

func (q *Query) wants(f *cell.Family) bool {
	return (q.Workspace == "" || q.Workspace == f.Workspace) && (q.Namespace == "" || q.Namespace == f.Namespace) &&
		(q.Visible == nil || q.Visible(f.Workspace))
}

const (
	walkRest = 9 // minimum rest between walks, in durations of the last walk
	walkFree = time.Millisecond
)

// Hottest walks the table. It keeps a rest between walks, except for walks that are due. ok is false if it must rest,
// or if another walk is running.
func (r *Ranking) Hottest(q *Query, due bool) (answer Answer, ok bool) {
	if !r.walking.TryLock() {
		return answer, false
	}
	defer r.walking.Unlock()
	began := time.Now()
	if !due && began.Before(r.restEnd) {
		return answer, false
	}
	nowMs := r.Clock.ReadMs()
	found := topk.Ranking[Key]{Limit: q.Limit, Compare: byCount}
	r.Table.Walk(func(e *cell.Entry) {
		k := Key{Limit: -1}
		if k.Count, k.Regional = e.InWindow(nowMs); k.Count == 0 || !found.Takes(&k) {
			return
		}
		f := e.Names().Family()
		if !q.wants(&f) || r.Rules.InForce().Superseded(e.Names()) {
			return
		}
		k.Workspace, k.Namespace, k.Identifier, k.Duration = f.Workspace, f.Namespace, e.Names().Identifier(),
			milliseconds(f.DurationMs)
		k.Limit = e.LowestLimit()
		found.Add(k)
	})
	if took := time.Since(began); took > walkFree {
		r.restEnd = began.Add((walkRest + 1) * took)
	}
	enforce(r.Rules.InForce(), found.Items)
	return Answer{At: time.UnixMilli(nowMs), Keys: found.Items}, true
}

// MostDenied ranks the keys that this node denies.
func (r *Ranking) MostDenied(q *Query, nowMs int64) Answer {
	answer := Answer{At: time.UnixMilli(nowMs), Since: time.UnixMilli(nowMs)}
	found := topk.Ranking[Key]{Limit: q.Limit, Compare: byCount}
	if since := r.Denied.Each(r.Clock.ReadSteady(), func(d *denied.Key) {
		if f := d.Names.Family(); q.wants(&f) {
			found.Add(Key{Workspace: f.Workspace, Namespace: f.Namespace, Identifier: d.Names.Identifier(),
				Duration: milliseconds(f.DurationMs), Limit: d.Limit, Count: d.Count, More: d.More})
		}
	}); since > 0 {
		answer.Since = r.Clock.WallOf(since, nowMs)
	}
	answer.Keys = found.Items
	enforce(r.Rules.InForce(), answer.Keys)
	return answer
}

// enforce sets the limits of the overrides that apply to the keys. An override with another window counts in other
// cells, so the key keeps the limit that its own cells were counted against.
func enforce(s *rules.Settings, keys []Key) {
	for i := range keys {
		k := &keys[i]
		limit, duration := k.Limit, k.Duration
		if s.Resolve(k.Workspace, k.Namespace, k.Identifier, &limit, &duration); duration == k.Duration {
			k.Limit = limit
		}
	}
}

// byCount sorts the largest count first. Names decide between equal counts, so that an answer does not depend on the
// positions of keys in the table.
func byCount(a, b Key) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Identifier, b.Identifier), cmp.Compare(a.Duration, b.Duration))
}
