package fair

import "sync"

// HasRoom reports whether a caller may take a further place, of most places in all. own is how many places the caller
// has, all how many its namespace has (own, if that is more or namespaces have no share), and free how many are free.
//
// One sixteenth of the places is a reserve. A caller with fewer than 1/1024 of the places may take any free place.
// Other callers may not use the reserve, and own + all must be less than 8 times the free places beyond it. So the more
// others have, the less each caller may take. For example, of 100,000 places:
//
//   - A caller alone gets 75,000. At the same time, a caller of another namespace can take 15,000 at once, and a caller
//     of the same namespace 7,500. Once the first caller has given back enough, both get the same number: 41,666 in two
//     namespaces, or 39,473 in one.
//   - Ten callers get 8,241 each if they belong to one namespace, and 9,146 if they belong to ten.
//   - Without the reserve, a namespace gets at most 83,333, however many callers it has.
//
// In whatever order callers come and go, a caller with fewer than 1/1024 of the places is refused only if 63 others
// have places: only callers with fewer than 1/1024 take places from the reserve, and each of them at most 1/64 of it.
// Of fewer than 1,024 places, the reserve is for callers that have none.
func HasRoom(own, all, free, most int64) bool {
	if own < max(1, most/1024) {
		return free > 0
	}
	reserve := (most + 15) / 16
	return own+all < 8*(free-reserve)
}

// Of is the owner of a place. Without a Space, the places are for a single key, and only callers with a label have
// shares: for example, two may have 5/12 each. Callers without a label may then take any free place, because a key has
// a single namespace, whose callers have nothing to separate them.
type Of struct {
	Caller Caller
	Space  Space
}

// Places are a number of places, of which callers and namespaces have shares: see HasRoom. They remember a caller or
// namespace only while it has a place. Set Most before the first call. All methods may be called concurrently.
type Places struct {
	Most int64

	mu      sync.Mutex
	used    int64
	callers map[Caller]int64 // with a label
	spaces  map[Space]int64
}

// HasRoom reports whether Take would take a place.
func (p *Places) HasRoom(of Of) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasRoom(of)
}

func (p *Places) hasRoom(of Of) bool {
	own, all := p.callers[of.Caller], p.spaces[of.Space]
	if !of.Caller.Labelled() {
		own = all // a namespace's callers without a label count as a single caller
	}
	return HasRoom(own, max(own, all), p.Most-p.used, p.Most)
}

// Take takes n places at once if there is room for a place. So up to n - 1 more may be taken than there are. Give them
// back with Give.
func (p *Places) Take(of Of, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(of) {
		return false
	}
	p.add(of, n)
	return true
}

// Give gives back n places that Take took.
func (p *Places) Give(of Of, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(of, -n)
}

func (p *Places) add(of Of, n int64) {
	p.used += n
	if of.Caller.Labelled() {
		add(&p.callers, of.Caller, n)
	}
	if of.Space != (Space{}) {
		add(&p.spaces, of.Space, n)
	}
}

// add adds n to a number in a map that has no zeros.
func add[K comparable](to *map[K]int64, k K, n int64) {
	if *to == nil {
		*to = make(map[K]int64)
	}
	if (*to)[k] += n; (*to)[k] == 0 {
		delete(*to, k)
	}
}

// Used returns how many places are taken.
func (p *Places) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
