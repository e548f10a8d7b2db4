package fair

import "sync"

// HasRoom reports whether a caller may take a further place. own is how many the caller has, all how many its namespace
// has, and free how many nobody has.
//
// A namespace's callers without a label may take three quarters of the places together, and a caller with a label half
// of them, as long as no other namespace or caller has any. The more others have, the less each may take. For example,
// of 100 places one caller may have 50, two callers of one namespace 30 each, and ten callers 7 each. So a new caller
// finds a place as long as there are fewer callers than places, and a namespace alone leaves a quarter of them.
func HasRoom(own, all, free int64) bool { return free > 0 && 2*own+all < 3*free }

// Of is the owner of a place. Without a Space, only callers have shares: then the places are for one key, for example,
// two callers may have a third each, and callers without a label may have all.
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

// HasRoom reports whether Take would take one place.
func (p *Places) HasRoom(of Of) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasRoom(of)
}

func (p *Places) hasRoom(of Of) bool {
	own := p.callers[of.Caller] // of a caller without a label, none is counted
	all := own
	if of.Space != (Space{}) {
		all = p.spaces[of.Space]
	}
	return HasRoom(own, all, p.Most-p.used)
}

// Take takes n places at once if there is room for one. So up to n - 1 more may be taken than there are. Give them back
// with Give.
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
