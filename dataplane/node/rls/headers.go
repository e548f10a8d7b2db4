package rls

import (
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weirhq/weir/dataplane/httplimit"
)

// Headers says to which answers Envoy is to add the fields that HTTP clients know.
type Headers int

const (
	// HeadersOnDenial adds RateLimit-Policy, RateLimit and Retry-After to denials.
	HeadersOnDenial Headers = iota
	// HeadersAlways adds the first two to what passes as well.
	HeadersAlways
	// HeadersNever leaves answers alone.
	HeadersNever
)

// headers describe the limit that matters most to the caller: of a denied call the one
// that it has to wait for longest, of another the one with the least left.
func headers(items []item, denied bool, now time.Time) []*corev3.HeaderValue {
	var worst *item
	for i := range items {
		it := &items[i]
		if !it.limited() || it.limit.Shadow || denied && (!it.over || it.charges()) {
			continue
		}
		if worst == nil || denied && it.wait() > worst.wait() || !denied && it.decision.Remaining < worst.decision.Remaining {
			worst = it
		}
	}
	if worst == nil {
		return nil
	}
	name := shown(worst.limit.name)
	again := httplimit.Seconds(worst.decision.ResetAt.Sub(now))
	retry := httplimit.Seconds(worst.decision.RetryAfter)
	switch {
	case denied && worst.decision.NeverPasses:
		again = -1 // none
	case denied && retry > 0:
		again = retry // not earlier than Retry-After, nor later
	}
	added := []*corev3.HeaderValue{
		header("RateLimit-Policy", string(httplimit.AppendPolicy(nil, name,
			httplimit.Quota{Limit: worst.decision.Limit, Duration: worst.decision.Duration}))),
		header("RateLimit", string(httplimit.AppendStanding(nil, name, worst.decision.Remaining, again))),
	}
	if denied && retry > 0 {
		added = append(added, header("Retry-After", strconv.FormatInt(retry, 10)))
	}
	return added
}

// wait is how long a denied item keeps its call from passing; one that never will
// pass has no time, and matters most.
func (i *item) wait() time.Duration {
	if i.decision.NeverPasses {
		return 1<<63 - 1
	}
	return i.decision.RetryAfter
}

func header(name, value string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, Value: value}
}

// shown is a rule's name where a structured field's string, which is printable ASCII,
// can hold it.
func shown(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "default"
	}
	return name
}
