package dataplane

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/denied"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/topk"
)

// Which keys are hot, and which are denied. An allowed request does nothing for it: the
// hot keys are found by a walk over the table, which holds their counts already.
// A denial leaves no count behind; see denials.go.

// TopBy is what keys are ranked by.
type TopBy uint8

const (
	// TopHot ranks by the cost in a key's sliding window, of all regions, as this node
	// knows it.
	TopHot TopBy = iota
	// TopDenied ranks by the requests that this node has denied, or that only shadow mode
	// let pass, for the last minute or two.
	TopDenied
)

// TopKeysMax is the most keys that one TopKeys returns.
const TopKeysMax = 100

// TopQuery asks for keys.
type TopQuery struct {
	Workspace string // "" for all
	Namespace string // "" for all
	By        TopBy
	Limit     int // 1 to TopKeysMax

	// Visible reports whether the answer may hold keys of a workspace; nil allows all. It is called
	// for each key that is examined, so it must be fast.
	Visible func(workspace string) bool
}

// TopKeys answers a TopQuery.
type TopKeys struct {
	At    time.Time
	Since time.Time // of TopDenied: what was denied before is not in it
	Keys  []TopKey  // largest Count first
}

// TopKey is one key of a TopKeys.
type TopKey struct {
	Workspace, Namespace, Identifier string
	Duration                         time.Duration

	// Limit is that of the override in force, if one is. Without one, a hot key has the lowest
	// limit that its cost was counted against, rounded down by less than a thousandth, or -1
	// where that is unknown: on a node that shares its counts with no other. A denied key has
	// the limit of its last sample.
	Limit int64

	Count    int64 // of a hot key cost, rounded down; of a denied one requests, at least
	Regional int64 // of a hot key: the part of Count that is this region's own
	More     int64 // of a denied key: how many more it may be, sampling apart
}

func (q *TopQuery) wants(f *cell.Family) bool {
	return (q.Workspace == "" || q.Workspace == f.Workspace) && (q.Namespace == "" || q.Namespace == f.Namespace) &&
		(q.Visible == nil || q.Visible(f.Workspace))
}

const (
	walkRest = 9 // minimum rest between walks, in durations of the last walk
	walkFree = time.Millisecond
)

// hottest walks the table, and sees to it that walks leave time between them, except those
// that are due.
func (t *top) hottest(q *TopQuery, due bool) (TopKeys, error) {
	g := t.engine
	if !t.walking.TryLock() {
		return TopKeys{}, ErrTopBusy
	}
	defer t.walking.Unlock()
	began := time.Now()
	if !due && began.Before(t.restEnd) {
		return TopKeys{}, ErrTopBusy
	}
	nowMs := g.clock.ReadMs()
	found := topk.Ranking[TopKey]{Limit: q.Limit, Compare: byCount}
	g.table.Walk(func(e *cell.Entry) {
		k := TopKey{Limit: -1}
		if k.Count, k.Regional = e.InWindow(nowMs); k.Count == 0 || !found.Takes(&k) {
			return
		}
		f := e.Names().Family()
		if !q.wants(&f) || g.rules.InForce().Superseded(e.Names()) {
			return
		}
		k.Workspace, k.Namespace, k.Identifier, k.Duration = f.Workspace, f.Namespace, e.Names().Identifier(),
			milliseconds(f.DurationMs)
		k.Limit = e.LowestLimit()
		found.Add(k)
	})
	if took := time.Since(began); took > walkFree {
		t.restEnd = began.Add((walkRest + 1) * took)
	}
	enforce(g.rules.InForce(), found.Items)
	return TopKeys{At: time.UnixMilli(nowMs), Keys: found.Items}, nil
}

// denials ranks the keys that this node denies.
func (t *top) denials(q *TopQuery, nowMs int64) TopKeys {
	g := t.engine
	answer := TopKeys{At: time.UnixMilli(nowMs), Since: time.UnixMilli(nowMs)}
	found := topk.Ranking[TopKey]{Limit: q.Limit, Compare: byCount}
	if since := g.denied.Each(g.clock.ReadSteady(), func(d *denied.Key) {
		if f := d.Names.Family(); q.wants(&f) {
			found.Add(TopKey{Workspace: f.Workspace, Namespace: f.Namespace, Identifier: d.Names.Identifier(),
				Duration: milliseconds(f.DurationMs), Limit: d.Limit, Count: d.Count, More: d.More})
		}
	}); since > 0 {
		answer.Since = g.clock.WallOf(since, nowMs)
	}
	answer.Keys = found.Items
	enforce(g.rules.InForce(), answer.Keys)
	return answer
}

// enforce sets the limits of the overrides that apply to the keys. One of another window counts other cells: the key
// keeps what its own were counted against.
func enforce(s *rules.Settings, keys []TopKey) {
	for i := range keys {
		k := &keys[i]
		r := Request{Workspace: k.Workspace, Namespace: k.Namespace, Identifier: k.Identifier, Limit: k.Limit,
			Duration: k.Duration}
		if r.resolve(s); r.Duration == k.Duration {
			k.Limit = r.Limit
		}
	}
}

// top ranks keys, for TopKeys and for heartbeats.
type top struct {
	engine     *engine
	walking    sync.Mutex
	restEnd    time.Time    // under walking
	reportedAt atomic.Int64 // clock.Steady when a heartbeat last reported keys; 0: never
}

// byCount has the largest first; of the same count, names decide, so that an answer does
// not depend on where keys lie.
func byCount(a, b TopKey) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Identifier, b.Identifier), cmp.Compare(a.Duration, b.Duration))
}
