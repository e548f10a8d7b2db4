package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stay is a time in which a holder had a lease for certain: from an answer that granted it to the last moment before
// which the holder knew that it had not ended. It lasts as long as its last end says; one of a holder that is killed
// gets no later one. The referee's mutex guards it.
type stay struct {
	who         string
	from, until int64 // Unix ns, of the machine's clock, which all its processes share
}

// referee counts the holders of each key at each instant. What it is told may arrive late and in any order: it goes by
// the times in it.
type referee struct {
	limits map[string]int

	mu     sync.Mutex
	stays  map[string][]*stay
	most   map[string]int // that were held at once
	counts map[string]int
}

// remembered is how long after its end a stay is looked at: longer than any process is stopped.
const remembered = 30 * time.Second

func newReferee() *referee {
	return &referee{limits: make(map[string]int), stays: make(map[string][]*stay), most: make(map[string]int),
		counts: make(map[string]int)}
}

// watch has a key looked at.
func (r *referee) watch(key leaseKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits[key.Name] = key.Limit
}

// enters begins a stay.
func (r *referee) enters(key, who string, at int64) *stay {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &stay{who: who, from: at, until: at}
	r.stays[key] = append(r.stays[key], s)
	return s
}

// held says that a stay lasted until a moment at least.
func (r *referee) held(s *stay, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.until = max(s.until, at)
}

// count counts something.
func (r *referee) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *referee) counted(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

// check looks at every instant of what is remembered, and forgets what ended long ago. It returns what it finds wrong:
// a moment of more leases than the limit, the worst that it knows, of each key.
func (r *referee) check(now time.Time) (problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, stays := range r.stays {
		most, at := mostAtOnce(stays)
		if most > max(r.most[key], r.limits[key]) {
			problems = append(problems, fmt.Sprintf("%s: %d leases at once, the limit is %d:\n%s", key, most, r.limits[key],
				transcript(stays, at)))
		}
		r.most[key] = max(r.most[key], most)
		stays = slices.DeleteFunc(stays, func(s *stay) bool { return s.until < now.Add(-remembered).UnixNano() })
		if r.stays[key] = stays; len(stays) == 0 {
			delete(r.stays, key)
		}
	}
	return problems
}

// mostAtOnce is how many stays overlap where most do, and the moment at which that begins.
func mostAtOnce(stays []*stay) (most int, at int64) {
	type edge struct {
		at   int64
		step int // 1 where one begins, -1 where one ends
	}
	edges := make([]edge, 0, 2*len(stays))
	for _, s := range stays {
		if s.from < s.until {
			edges = append(edges, edge{s.from, 1}, edge{s.until, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { // where one ends and another begins, none overlap
		if a.at != b.at {
			return int(min(1, max(-1, a.at-b.at)))
		}
		return a.step - b.step
	})
	now := 0
	for _, e := range edges {
		if now += e.step; now > most {
			most, at = now, e.at
		}
	}
	return most, at
}

// transcript tells of all stays around a moment, relative to it.
func transcript(stays []*stay, at int64) string {
	var b strings.Builder
	for _, s := range stays {
		if s.from <= at && s.until > at {
			fmt.Fprintf(&b, "  %s from %v to %v\n", s.who, time.Duration(s.from-at), time.Duration(s.until-at))
		}
	}
	fmt.Fprintf(&b, "  at %s", time.Unix(0, at).Format(time.StampMicro))
	return b.String()
}

// figures are what was counted, in words.
func (r *referee) figures() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.counts[what], what))
	}
	return strings.Join(parts, ", ")
}

// mostOf is how many leases of a key were held at once.
func (r *referee) mostOf(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most[key]
}
