package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stay is a time in which a holder certainly had a lease: from the response that granted it to the last moment at which
// the holder could still check that it had not ended. Its end moves with each report. The stay of a killed holder gets
// no later end. The referee's mutex guards it.
type stay struct {
	who         string
	from, until int64 // Unix ns, of the machine's clock, which all its processes share
}

// referee counts the holders of each key at each instant, which must not exceed the limit. Reports can arrive late and
// in any order, because the referee uses the times in them.
type referee struct {
	limits map[string]int

	mu     sync.Mutex
	stays  map[string][]*stay
	most   map[string]int // largest number of concurrent leases
	counts map[string]int
}

// remembered is how long after its end a stay is looked at: longer than any process is stopped.
const remembered = 30 * time.Second

func newReferee() *referee {
	return &referee{limits: make(map[string]int), stays: make(map[string][]*stay), most: make(map[string]int),
		counts: make(map[string]int)}
}

// watch starts to look at a key.
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

// held records that a stay lasted at least until a moment.
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

// check checks every instant of the recorded stays, and removes stays that ended long ago. It returns the problems: for
// each key the worst moment with more leases than the limit.
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

// mostAtOnce returns how many stays overlap where most do, and the moment at which that begins.
func mostAtOnce(stays []*stay) (most int, at int64) {
	type edge struct {
		at   int64
		step int // 1 at the begin of a stay, -1 at its end
	}
	edges := make([]edge, 0, 2*len(stays))
	for _, s := range stays {
		if s.from < s.until {
			edges = append(edges, edge{s.from, 1}, edge{s.until, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { // stays that end and begin at the same instant do not overlap
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

// transcript describes all stays around a moment, relative to it.
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

// figures formats the counters, for example the numbers of granted and denied leases.
func (r *referee) figures() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.counts[what], what))
	}
	return strings.Join(parts, ", ")
}

// mostOf returns the largest number of concurrent leases of a key.
func (r *referee) mostOf(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most[key]
}
