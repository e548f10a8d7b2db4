package httplimit

import (
	"net/http"
	"strconv"
	"time"
)

// Field names, in the form of net/http's headers.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldStanding   = "Ratelimit"
	fieldRetryAfter = "Retry-After"
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// integerMax is the largest integer of a structured field: 15 digits (RFC 9651,
// section 3.3.1).
const integerMax = 999_999_999_999_999

// AppendPolicy appends an item of RateLimit-Policy: `"name";q=100;w=60`, after a comma if dst has an item already. The
// window is in whole seconds, rounded up.
func AppendPolicy(dst []byte, name string, quota Quota) []byte {
	dst = appendName(dst, name)
	dst = appendParameter(dst, ";q=", quota.Limit)
	return appendParameter(dst, ";w=", Seconds(quota.Duration))
}

// AppendStanding appends an item of RateLimit: `"name";r=50;t=30`, after a comma if dst has an item already. If seconds
// is negative, the item has no t.
func AppendStanding(dst []byte, name string, remaining, seconds int64) []byte {
	dst = appendName(dst, name)
	dst = appendParameter(dst, ";r=", remaining)
	if seconds < 0 {
		return dst
	}
	return appendParameter(dst, ";t=", seconds)
}

// Seconds rounds a duration up to whole seconds.
func Seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendName appends a structured field's string. It shows characters that such a string cannot hold as '?'.
func appendName(dst []byte, name string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c > '~':
			dst = append(dst, '?')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func appendParameter(dst []byte, prefix string, n int64) []byte {
	return strconv.AppendInt(append(dst, prefix...), min(max(n, 0), integerMax), 10)
}

// WriteFields sets the fields of an answer:
//
//   - RateLimit-Policy lists all policies.
//   - RateLimit shows for each policy how much is left, and when more will be. On a denial only policies that denied
//     have a t, because no t may be later than Retry-After, and policies by which the call never passes have none.
//   - Retry-After is the latest t. It is not set if waiting does not help.
//
// WriteFields sets nothing for a call that was not decided, nor, with Config.Quiet, for a call that passed.
func (o *Outcome) WriteFields(h http.Header) {
	if o.Fault != FaultNone || o.Allowed && o.guard.config.Quiet {
		return
	}
	values := make([]string, 2) // a single allocation for both
	if values[0] = o.policyField(); values[0] == "" {
		return
	}
	values[1] = o.standingField()
	h[fieldPolicy], h[fieldStanding] = values[0:1:1], values[1:2:2]
	if seconds, ok := o.RetryAfterSeconds(); ok {
		h[fieldRetryAfter] = []string{strconv.FormatInt(seconds, 10)}
	}
	if o.guard.config.Legacy != LegacyNone {
		o.writeLegacy(h)
	}
}

// policyField returns the field RateLimit-Policy, or "" if there is nothing to show.
func (o *Outcome) policyField() string {
	if o.asConfigured() {
		return o.guard.fixed
	}
	b := o.text[:0]
	for i := range o.Standings {
		if s := &o.Standings[i]; !s.Decision.Shadowed {
			b = AppendPolicy(b, s.Policy.Name, Quota{s.Decision.Limit, s.Decision.Duration})
		}
	}
	o.text = b
	return string(b)
}

// asConfigured reports whether the fields show the configured quotas, because no override and no shadow mode changes
// them.
func (o *Outcome) asConfigured() bool {
	if o.guard.fixed == "" || len(o.Standings) != len(o.guard.policies) {
		return false
	}
	for i := range o.Standings {
		if d := &o.Standings[i].Decision; d.Shadowed || (Quota{d.Limit, d.Duration}) != o.Standings[i].Quota {
			return false
		}
	}
	return true
}

func (o *Outcome) standingField() string {
	b := o.text[:0]
	for i := range o.Standings {
		if s := &o.Standings[i]; !s.Decision.Shadowed {
			b = AppendStanding(b, s.Policy.Name, s.Decision.Remaining, o.seconds(s))
		}
	}
	o.text = b
	return string(b)
}

// seconds returns a standing's t, or -1 for none.
func (o *Outcome) seconds(s *Standing) int64 {
	switch {
	case o.Allowed:
		return Seconds(s.Decision.ResetAt.Sub(o.now))
	case !s.denied() || s.passesNever():
		return -1
	}
	return Seconds(s.Decision.RetryAfter + o.jitter)
}

// RetryAfterSeconds returns the seconds after which a denied call may come back. ok is false if the call passed, or if
// waiting does not help.
func (o *Outcome) RetryAfterSeconds() (seconds int64, ok bool) {
	if o.Allowed || o.Fault != FaultNone {
		return 0, false
	}
	for i := range o.Standings {
		s := &o.Standings[i]
		if s.passesNever() {
			return 0, false
		}
		seconds = max(seconds, o.seconds(s))
	}
	return seconds, true
}

// writeLegacy shows for a single policy the figures that RateLimit shows for all.
func (o *Outcome) writeLegacy(h http.Header) {
	s := o.tightest()
	seconds := o.seconds(s)
	if seconds < 0 {
		seconds = Seconds(s.Decision.ResetAt.Sub(o.now))
	}
	if o.guard.config.Legacy == LegacyEpoch {
		seconds += o.now.Unix()
		if o.now.Nanosecond() > 0 {
			seconds++ // not too early
		}
	}
	h.Set(legacyLimit, strconv.FormatInt(s.Decision.Limit, 10))
	h.Set(legacyRemaining, strconv.FormatInt(s.Decision.Remaining, 10))
	h.Set(legacyReset, strconv.FormatInt(seconds, 10))
}

// tightest returns the policy that matters most to the caller. At least one policy must be shown.
func (o *Outcome) tightest() (worst *Standing) {
	for i := range o.Standings {
		if s := &o.Standings[i]; !s.Decision.Shadowed && (worst == nil || s.tighter(worst)) {
			worst = s
		}
	}
	return worst
}

func (s *Standing) tighter(other *Standing) bool {
	switch {
	case s.denied() != other.denied():
		return s.denied()
	case !s.denied():
		return s.Decision.Remaining < other.Decision.Remaining
	case s.passesNever() != other.passesNever():
		return s.passesNever()
	}
	return s.Decision.RetryAfter > other.Decision.RetryAfter
}
