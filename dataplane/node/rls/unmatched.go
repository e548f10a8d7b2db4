package rls

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of what is logged about descriptors without a rule.
const (
	unknownDomainsMax = 100
	keysShownMax      = 256 // bytes
)

// Unmatched counts the descriptors that no rule is for, and logs the first ones of each domain: nothing limits them,
// which a misspelt domain or key brings about without any other sign. Make one with NewUnmatched; its methods may run
// concurrently. A nil Unmatched does nothing.
type Unmatched struct {
	descriptors *prometheus.CounterVec // by domain, of those that have rules
	elsewhere   prometheus.Counter     // of all other domains
	logger      *slog.Logger

	counters sync.Map // of prometheus.Counter, by domain: as many as there ever were with rules
	logged   sync.Map // by domain
	unknown  atomic.Int32
}

// NewUnmatched makes an Unmatched.
func NewUnmatched(logger *slog.Logger) *Unmatched {
	u := &Unmatched{logger: logger, descriptors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rls_unmatched_total",
		Help: "Descriptors of Envoy's calls that no rule is for, so that nothing limits them, by domain. " +
			"The domain is empty for all domains without rules.",
	}, []string{"domain"})}
	u.elsewhere = u.descriptors.WithLabelValues("")
	return u
}

// Describe is prometheus.Collector's.
func (u *Unmatched) Describe(to chan<- *prometheus.Desc) { u.descriptors.Describe(to) }

// Collect is prometheus.Collector's.
func (u *Unmatched) Collect(to chan<- prometheus.Metric) { u.descriptors.Collect(to) }

// note records a descriptor of a domain, which has rules or not.
func (u *Unmatched) note(domain string, known bool, d *ratelimitv3.RateLimitDescriptor) {
	if u == nil {
		return
	}
	if !known {
		u.elsewhere.Inc()
	} else {
		u.counter(domain).Inc()
	}
	if _, done := u.logged.Load(domain); done || !known && u.unknown.Load() >= unknownDomainsMax {
		return
	}
	domain = strings.Clone(domain) // of the call, whose message is long
	if _, done := u.logged.LoadOrStore(domain, true); done {
		return
	}
	if known {
		u.logger.Warn("no rule is for a descriptor, so nothing limits it; this is logged once for each domain",
			"domain", domain, "keys", keysOf(d))
		return
	}
	u.unknown.Add(1)
	u.logger.Warn("no rules are for a domain, so nothing limits its requests; this is logged once for each domain",
		"domain", domain, "keys", keysOf(d))
}

// counter is the counter of a domain that has rules.
func (u *Unmatched) counter(domain string) prometheus.Counter {
	if c, ok := u.counters.Load(domain); ok {
		return c.(prometheus.Counter)
	}
	domain = strings.Clone(domain)
	c := u.descriptors.WithLabelValues(domain)
	u.counters.Store(domain, c)
	return c
}

// keysOf lists a descriptor's keys. Its values are the limited caller's, and not for logs.
func keysOf(d *ratelimitv3.RateLimitDescriptor) string {
	var b strings.Builder
	for i, e := range d.GetEntries() {
		if i > 0 {
			b.WriteByte(',')
		}
		key := e.GetKey()
		if !utf8.ValidString(key) {
			key = strings.ToValidUTF8(key, "\uFFFD")
		}
		if b.WriteString(key); b.Len() > keysShownMax {
			return strings.ToValidUTF8(b.String()[:keysShownMax], "") + "…"
		}
	}
	return b.String()
}
