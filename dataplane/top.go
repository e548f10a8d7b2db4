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

// The ranking of hot and denied keys. Allowed requests do no work for it: a walk over the table finds the hot keys by
// their counts. Denials leave no count behind; see denials.go.

// TopBy selects the ranking of keys.
type TopBy uint8

const (
	// TopHot ranks by the cost in a key's sliding window, of all regions, as far as this node has read it.
	TopHot TopBy = iota
	// TopDenied ranks by the requests of the last minute or two that this node has denied, or that only shadow mode let
	// pass.
	TopDenied
)

// TopKeysMax is the highest number of keys in an answer of TopKeys.
const TopKeysMax = 100

// TopQuery selects the keys that TopKeys returns.
type TopQuery struct {
	Workspace string // "" for all
	Namespace string // "" for all
	By        TopBy
	Limit     int // 1 to TopKeysMax

	// Visible reports whether the answer may hold keys of a workspace; nil allows all. It is called for each key that is
	// examined, so it must be fast.
	Visible func(workspace string) bool
}

// TopKeys is the answer to a TopQuery.
type TopKeys struct {
	At    time.Time
	Since time.Time // of TopDenied: earlier denials are not included
	Keys  []TopKey  // largest Count first
}

// TopKey is a key of a TopKeys.
type TopKey struct {
	Workspace, Namespace, Identifier string
	Duration                         time.Duration

	// Limit is the limit of the override in force, if there is an override. Otherwise it depends on the ranking:
	//
	//   - For a hot key, it is the lowest limit that its cost was counted against, rounded down by less than a
	//     thousandth. It is -1 on a node that shares its counts with no other node, which keeps no such limit.
	//   - For a denied key, it is the limit of its last sample.
	Limit int64

	Count    int64 // of a hot key: its cost, rounded down; of a denied key: the least number of denied requests
	Regional int64 // of a hot key: the part of Count from this region
	More     int64 // of a denied key: by how much Count may be too low, apart from the error of sampling
}

func (q *TopQuery) wants(f *cell.Family) bool {
	return (q.Workspace == "" || q.Workspace == f.Workspace) && (q.Namespace == "" || q.Namespace == f.Namespace) &&
		(q.Visible == nil || q.Visible(f.Workspace))
}

const (
	walkRest = 9 // minimum rest between walks, in durations of the last walk
	walkFree = time.Millisecond
)

// hottest walks the table. It keeps a rest between walks, except for walks that are due.
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

// enforce sets the limits of the overrides that apply to the keys. An override with another window counts in other
// cells, so the key keeps the limit that its own cells were counted against.
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

// byCount sorts the largest count first. Names decide between equal counts, so that an answer does not depend on the
// positions of keys in the table.
func byCount(a, b TopKey) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Identifier, b.Identifier), cmp.Compare(a.Duration, b.Duration))
}
