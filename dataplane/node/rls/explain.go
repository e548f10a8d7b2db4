package rls

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Explain returns a sentence with the rule that applies to a descriptor and the identifier under which it is counted.
// The descriptor is written like an identifier: key=value,key=value, where '%' and two hexadecimal digits encode a
// byte. The domain can be empty if only one domain has rules. matched is false if no rule applies, so that nothing
// limits the descriptor.
func (s *Source) Explain(domain, descriptor string) (words string, matched bool, err error) {
	rules := s.rules()
	if domain == "" {
		names := s.domains()
		if len(names) != 1 {
			return "", false, fmt.Errorf("domain is empty, want one of the %d domains with rules: %s", len(names),
				strings.Join(names, ", "))
		}
		domain = names[0]
	}
	entries, err := readDescriptor(descriptor)
	if err != nil {
		return "", false, fmt.Errorf("descriptor %q: %w", descriptor, err)
	}
	if !rules.has(domain) {
		return fmt.Sprintf("domain %q has no rules: nothing limits its requests", domain), false, nil
	}
	found, shared := rules.rule(domain, entries)
	if found == nil || found.limit == nil {
		return "no rule matches it: nothing limits it", false, nil
	}
	var patterns []string
	if shared {
		patterns = rules.sharedPatterns(domain, entries)
	}
	name := identifier(entries, patterns)
	return fmt.Sprintf("%s, by the rule in %s, counted as %q", found.limit, found.at, name), true, nil
}

// Rules returns the number of rules in all domains.
func (s *Source) Rules() (n int) {
	for _, top := range s.rules() {
		n += top.count()
	}
	return n
}

func (s *Source) domains() []string { return slices.Sorted(maps.Keys(s.rules())) }

// count returns the number of rules with a limit at this level and below.
func (l *level) count() (n int) {
	if l == nil {
		return 0
	}
	each := func(r *rule) {
		if r.limit != nil {
			n++
		}
		n += r.next.count()
	}
	for _, r := range l.keys {
		each(r)
	}
	for _, r := range l.pairs {
		each(r)
	}
	return n
}

// String formats the limit, for example "10 per 1m0s, shadow_mode".
func (l *Limit) String() string {
	if l.Unlimited {
		return "unlimited"
	}
	text := fmt.Sprintf("%d per %v", l.limit, l.duration)
	for _, mode := range []struct {
		name string
		is   bool
	}{{"shadow_mode", l.Shadow}, {"quota_mode", l.Quota}, {"charged", l.Charged}} {
		if mode.is {
			text += ", " + mode.name
		}
	}
	return text
}

func readDescriptor(text string) (entries []*ratelimitv3.RateLimitDescriptor_Entry, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, errors.New("want key=value, several separated by commas")
		}
		e := new(ratelimitv3.RateLimitDescriptor_Entry)
		if e.Key, err = unescaped(key); err == nil {
			e.Value, err = unescaped(value)
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// unescaped reverses appendEscaped.
func unescaped(text string) (string, error) {
	var b strings.Builder
	for {
		before, after, more := strings.Cut(text, "%")
		b.WriteString(before)
		if !more {
			return b.String(), nil
		}
		c, err := hex.DecodeString(after[:min(2, len(after))])
		if err != nil || len(c) != 1 {
			return "", errors.New("want two hexadecimal digits after each %")
		}
		b.Write(c)
		text = after[2:]
	}
}
