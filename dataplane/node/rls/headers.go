package rls

import (
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weirhq/weir/dataplane/httplimit"
)

// Headers selects the responses to which Envoy adds the headers that HTTP clients know. For example, use HeadersAlways
// if clients should slow down before they are denied.
type Headers int

const (
	// HeadersOnDenial adds RateLimit-Policy, RateLimit and Retry-After to denials.
	HeadersOnDenial Headers = iota
	// HeadersAlways adds RateLimit-Policy and RateLimit to responses that pass as well.
	HeadersAlways
	// HeadersNever adds no headers.
	HeadersNever
)

// standing is the limit that matters most to a call, as its response shows it.
type standing struct {
	*item
	policy  string // the rule's name, or "default"
	seconds int64  // until the call can pass, or until the cell ends if it passes, rounded up; -1 if it never passes
}

// standingOf returns the limit that matters most among the items that count: for a denied call the limit with the
// longest wait, for other calls the limit with the least remaining. ok is false if there is none.
func standingOf(items []item, denied bool, now time.Time, counts func(*item) bool) (worst standing, ok bool) {
	for i := range items {
		it := &items[i]
		if !it.limited() || !counts(it) || denied && (!it.over || it.charges()) {
			continue
		}
		if worst.item == nil || denied && it.wait() > worst.wait() ||
			!denied && it.decision.Remaining < worst.decision.Remaining {
			worst.item = it
		}
	}
	if worst.item == nil {
		return worst, false
	}
	worst.policy, worst.seconds = shown(worst.limit.name), httplimit.Seconds(worst.decision.ResetAt.Sub(now))
	switch retry := worst.retry(); {
	case denied && worst.decision.NeverPasses:
		worst.seconds = -1
	case denied && retry > 0:
		worst.seconds = retry // the same as Retry-After
	}
	return worst, true
}

// enforced reports whether the rule of an item can deny its call. Callers see no other limits.
func (i *item) enforced() bool { return !i.limit.Shadow }

func (i *item) retry() int64 { return httplimit.Seconds(i.decision.RetryAfter) }

// headers describes the limit that matters most to the caller.
func headers(items []item, denied bool, now time.Time) []*corev3.HeaderValue {
	worst, ok := standingOf(items, denied, now, (*item).enforced)
	if !ok {
		return nil
	}
	added := []*corev3.HeaderValue{
		header("RateLimit-Policy", string(httplimit.AppendPolicy(nil, worst.policy,
			httplimit.Quota{Limit: worst.decision.Limit, Duration: worst.decision.Duration}))),
		header("RateLimit", string(httplimit.AppendStanding(nil, worst.policy, worst.decision.Remaining, worst.seconds))),
	}
	if retry := worst.retry(); denied && retry > 0 {
		added = append(added, header("Retry-After", strconv.FormatInt(retry, 10)))
	}
	return added
}

// wait returns how long a denied item keeps its call from passing. An item that never passes has the longest wait, so
// it matters most.
func (i *item) wait() time.Duration {
	if i.decision.NeverPasses {
		return 1<<63 - 1
	}
	return i.decision.RetryAfter
}

func header(name, value string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, Value: value}
}

// shown returns a rule's name if the string of a structured field, which is printable ASCII, can hold it. Otherwise it
// returns "default".
func shown(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "default"
	}
	return name
}
