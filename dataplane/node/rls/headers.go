package rls

import (
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
		if !it.limited() || it.limit.Shadow || denied && !it.over {
			continue
		}
		if worst == nil || denied && it.wait() > worst.wait() || !denied && it.decision.Remaining < worst.decision.Remaining {
			worst = it
		}
	}
	if worst == nil {
		return nil
	}
	name := quoted(worst.limit.name)
	again := seconds(worst.decision.ResetAt.Sub(now))
	retry := seconds(worst.decision.RetryAfter)
	if denied && retry > 0 {
		again = retry // not earlier than Retry-After, nor later
	}
	added := []*corev3.HeaderValue{
		header("RateLimit-Policy", name+";q="+decimal(worst.decision.Limit)+";w="+decimal(seconds(worst.limit.duration))),
		header("RateLimit", name+";r="+decimal(worst.decision.Remaining)+";t="+decimal(again)),
	}
	if denied && retry > 0 {
		added = append(added, header("Retry-After", decimal(retry)))
	}
	return added
}

// wait is how long a denied item keeps its call from passing; one that never will
// pass has no time, and matters most.
func (i *item) wait() time.Duration {
	if i.decision.RetryAfter == 0 {
		return 1<<63 - 1
	}
	return i.decision.RetryAfter
}

func header(name, value string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, Value: value}
}

// quoted is a rule's name as a structured field's string, which holds printable ASCII.
func quoted(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return `"default"`
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// seconds are whole, and never too few.
func seconds(d time.Duration) int64 { return int64(max(0, d+time.Second-1) / time.Second) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
