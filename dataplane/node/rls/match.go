package rls

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirhq/weir/shared/window"
)

// match returns the limit of the rule that a descriptor leads to, or nil, and the same shared as rule.
func (r Rules) match(domain string, entries []*ratelimitv3.RateLimitDescriptor_Entry) (limit *Limit, shared bool) {
	found, shared := r.rule(domain, entries)
	if found == nil {
		return nil, false
	}
	return found.limit, shared
}

// rule returns the rule that a descriptor leads to, or nil. It follows all of the descriptor's entries from level to
// level, because a rule matches only descriptors of its own depth. On each level a key with exactly the entry's value
// is preferred to a pattern, the first pattern to later patterns, and a pattern to the key without a value.
//
// shared reports whether the values of a rule on the way share a count; sharedPatterns returns which rule.
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

// find can be called on nil.
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
