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

// Bounds of log entries about descriptors without a rule.
const (
	unknownDomainsMax = 100
	keysShownMax      = 256 // bytes
)

// Unmatched counts the descriptors that no rule matches, and logs the first of each domain. Nothing limits such
// descriptors, and a misspelt domain or key would otherwise have no other sign. Use NewUnmatched to make an Unmatched.
// Its methods are safe for concurrent use. The methods of a nil Unmatched do nothing.
type Unmatched struct {
	descriptors *prometheus.CounterVec // by domain, for domains with rules
	elsewhere   prometheus.Counter     // for all domains without rules
	logger      *slog.Logger

	counters sync.Map // of prometheus.Counter, by domain; at most one for each domain that ever had rules
	logged   sync.Map // by domain
	unknown  atomic.Int32
}

// NewUnmatched returns an Unmatched that logs to logger.
func NewUnmatched(logger *slog.Logger) *Unmatched {
	u := &Unmatched{logger: logger, descriptors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rls_unmatched_total",
		Help: "Descriptors in Envoy's calls that no rule matches, so that nothing limits them, by domain. " +
			"All domains without rules share the empty domain.",
	}, []string{"domain"})}
	u.elsewhere = u.descriptors.WithLabelValues("")
	return u
}

// Describe implements prometheus.Collector.
func (u *Unmatched) Describe(to chan<- *prometheus.Desc) { u.descriptors.Describe(to) }

// Collect implements prometheus.Collector.
func (u *Unmatched) Collect(to chan<- prometheus.Metric) { u.descriptors.Collect(to) }

// note records a descriptor that no rule matches. known reports whether its domain has rules.
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
	domain = strings.Clone(domain) // otherwise the map would keep the call's message in memory
	if _, done := u.logged.LoadOrStore(domain, true); done {
		return
	}
	if known {
		u.logger.Warn("no rule matches a descriptor, so nothing limits it; logged once for each domain",
			"domain", domain, "keys", keysOf(d))
		return
	}
	u.unknown.Add(1)
	u.logger.Warn("a domain has no rules, so nothing limits its requests; logged once for each domain",
		"domain", domain, "keys", keysOf(d))
}

// counter returns the counter of a domain that has rules.
func (u *Unmatched) counter(domain string) prometheus.Counter {
	if c, ok := u.counters.Load(domain); ok {
		return c.(prometheus.Counter)
	}
	domain = strings.Clone(domain)
	c := u.descriptors.WithLabelValues(domain)
	u.counters.Store(domain, c)
	return c
}

// keysOf lists a descriptor's keys. Its values are not logged, because they come from limited
// callers.
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
