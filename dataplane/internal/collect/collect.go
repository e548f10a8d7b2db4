// Package collect describes a limiter's metrics and counts its calls to the origin. It emits metrics to a Sink, so it
// depends on no monitoring system.
package collect

import (
	"github.com/weirhq/weir/dataplane/internal/histogram"
)

// Kind is how a metric changes.
type Kind uint8

// Kinds of metrics.
const (
	Counter   Kind = iota // only grows
	Gauge                 // may fall
	Histogram             // counts values by their size
)

// Desc describes all series of a name.
type Desc struct {
	Name, Help string
	Kind       Kind
	Labels     []string // names
}

// Sink receives one series: its description, the values of its labels in the order of Desc.Labels, and its value.
// A histogram has counts instead of a value; for other kinds counted is nil.
type Sink func(d *Desc, value float64, counted *histogram.Snapshot, labels ...string)

// Value emits a counter or a gauge.
func (s Sink) Value(d *Desc, v int64, labels ...string) { s(d, float64(v), nil, labels...) }

// Histogram emits a histogram's counts so far.
func (s Sink) Histogram(d *Desc, h *histogram.Histogram, labels ...string) {
	counted := h.Snapshot()
	s(d, 0, &counted, labels...)
}

// Node writes the series that identifies the node. Rules and dashboards join it to the other series
// of the same target to get the region, so a limiter that is embedded in a program publishes it
// too.
func Node(to Sink, region, id, build string) {
	to.Value(descNode, 1, region, id, build)
}

var descNode = NewGauge("weir_node_info", "Always 1: the node's region, id and build.", "region", "node_id", "build")

// NewCounter describes a metric that only grows.
func NewCounter(name, help string, labels ...string) *Desc { return &Desc{name, help, Counter, labels} }

// NewGauge describes a metric that may fall.
func NewGauge(name, help string, labels ...string) *Desc { return &Desc{name, help, Gauge, labels} }

func counts(name, help string, labels ...string) *Desc { return &Desc{name, help, Histogram, labels} }
