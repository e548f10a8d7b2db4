package rls

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirhq/weir/shared/window"
)

// match returns the limit of the rule that a descriptor leads to, or nil, and what else rule returns.
func (r Rules) match(domain string, entries []*ratelimitv3.RateLimitDescriptor_Entry) (limit *Limit, shared bool) {
	found, shared := r.rule(domain, entries)
	if found == nil {
		return nil, false
	}
	return found.limit, shared
}

// rule returns the rule that a descriptor leads to, or nil. Its entries are followed from level to
// level, all of them: a rule matches descriptors of its own depth. On each level a key with its very
// value goes before a pattern, the first pattern before the others, and a pattern before the key
// alone.
//
// shared reports whether the values of one of the rules on the way share a count;
// sharedPatterns returns which rule that is.
func (r Rules) rule(domain string, entries []*ratelimitv3.RateLimitDescriptor_Entry) (found *rule, shared bool) {
	at := r[domain]
	for _, entry := range entries {
		if found = at.find(entry.GetKey(), entry.GetValue()); found == nil {
			return nil, false
		}
		shared = shared || found.share
		at = found.next
	}
	return found, shared
}

// has reports whether there are rules for a domain.
func (r Rules) has(domain string) bool {
	_, known := r[domain]
	return known
}

// sharedPatterns returns, for each entry of a descriptor that matches, the pattern
// whose values share one count, or "".
func (r Rules) sharedPatterns(domain string, entries []*ratelimitv3.RateLimitDescriptor_Entry) []string {
	patterns := make([]string, len(entries))
	at := r[domain]
	for i, entry := range entries {
		found := at.find(entry.GetKey(), entry.GetValue())
		if found.share {
			patterns[i] = found.pattern
		}
		at = found.next
	}
	return patterns
}

// find may be called on nil.
func (l *level) find(key, value string) *rule {
	if l == nil {
		return nil
	}
	if value != "" {
		if found := l.pairs[pair{key, value}]; found != nil {
			return found
		}
	}
	for i := range l.wildcards {
		if w := &l.wildcards[i]; w.key == key && window.MatchesParts(w.parts, value) {
			return w.rule
		}
	}
	return l.keys[key]
}
