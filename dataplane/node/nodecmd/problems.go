package nodecmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/relay"
)

// watch finds faults of the node's surroundings that make Weir lose or repeat counts although every
// call succeeds. For example, Redis evicts keys, or another process has the same node ID, or
// another region the same name. The node continues to decide. A problem appears in the node's
// heartbeats, on /readyz and in weir_node_problem, and is logged once when it begins and once when
// it ends.
//
// All methods may be called concurrently. The methods of a nil watch do nothing.
type watch struct {
	origin  watchedOrigin
	node    string
	process string // ID of this process; random, so no other process has it
	logger  *slog.Logger

	mu       sync.Mutex
	found    map[problemKind]string // "": looked and found none; absent: unknown
	others   map[string]int64       // other processes with this node's ID, as of the last step
	fenced   []fence                // readings of the last fencedWithin
	evictsAt time.Time              // when the eviction policies were last read
}

// watchedOrigin is the part of an origin that a watch reads.
type watchedOrigin interface {
	Evicting(ctx context.Context) (servers []string, err error)
	Announce(ctx context.Context, node, process string) (others map[string]int64, err error)
	Withdraw(ctx context.Context, node, process string) error
}

type problemKind string

const (
	problemEviction problemKind = "redis_evicts"
	problemNodeID   problemKind = "duplicate_node_id"
	problemRegion   problemKind = "duplicate_region"
)

var problemKinds = []problemKind{problemEviction, problemNodeID, problemRegion}

const (
	watchEvery    = 5 * time.Second
	watchTimeout  = 3 * time.Second
	evictionEvery = time.Minute // a policy seldom changes

	// A relay is fenced once when another relay takes over its lease. If two regions have the same
	// name and a Redis each, their relays fence each other forever while both keep their leases.
	fencedWithin = 3 * time.Minute
	fencedMin    = 3
)

// fence is a reading of the relay's counter of fencings.
type fence struct {
	at    time.Time
	total int64
}

// watch returns nil without Redis, because such a node shares nothing.
func (s *stores) watch(node string, logger *slog.Logger) *watch {
	origin, ok := s.origin.(watchedOrigin)
	if !ok {
		return nil
	}
	return newWatch(origin, node, logger)
}

func newWatch(origin watchedOrigin, node string, logger *slog.Logger) *watch {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return &watch{origin: origin, node: node, process: hex.EncodeToString(random[:]), logger: logger,
		found: make(map[problemKind]string)}
}

// run calls step immediately and then every watchEvery, until ctx ends.
func (w *watch) run(ctx context.Context) {
	if w == nil {
		return
	}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		w.step(ctx, time.Now())
		select {
		case <-ctx.Done():
			w.leave()
			return
		case <-ticker.C:
		}
	}
}

// leave withdraws this process from the list of its node ID, so that the next process of this node
// isn't taken for a duplicate.
func (w *watch) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
	defer cancel()
	if err := w.origin.Withdraw(ctx, w.node, w.process); err != nil {
		w.logger.Debug("cannot take this process off the list of its node-id: it stays listed for a minute",
			"error", err)
	}
}

// step looks for problems once.
func (w *watch) step(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if others, err := w.origin.Announce(ctx, w.node, w.process); err == nil {
		w.seen(others)
	}
	w.mu.Lock()
	due := w.evictsAt.IsZero() || now.Sub(w.evictsAt) >= evictionEvery
	w.mu.Unlock()
	if !due {
		return
	}
	servers, err := w.origin.Evicting(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(servers) == 0 && err != nil { // unknown, so keep the last finding
		return
	}
	w.evictsAt = now
	text := ""
	if len(servers) > 0 {
		text = fmt.Sprintf("Redis may drop counts when memory is short: set maxmemory-policy noeviction at %s",
			strings.Join(servers, ", "))
	}
	w.setLocked(problemEviction, text)
}

// seen compares the processes with this node's ID to the processes of the last step.
func (w *watch) seen(others map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lives := false
	for process, at := range others {
		last, known := w.others[process]
		lives = lives || known && at > last
	}
	first := w.others == nil
	w.others = others
	switch {
	case lives:
		w.setLocked(problemNodeID, fmt.Sprintf("another process has the node-id %q: give each node its own, because "+
			"heartbeats and leases of nodes with one name replace each other", w.node))
	case !first || len(others) == 0:
		w.setLocked(problemNodeID, "")
	}
}

// relayed reads the figures of this node's relay. It is called for each heartbeat.
func (w *watch) relayed(f *relay.Figures, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.fenced { // of a clock that was ahead: they stand no longer for it
		if w.fenced[i].at.After(now) {
			w.fenced[i].at = now
		}
	}
	w.fenced = append(w.fenced, fence{now, f.Fenced})
	w.fenced = slices.DeleteFunc(w.fenced, func(x fence) bool { return now.Sub(x.at) > fencedWithin })
	text := ""
	if n := f.Fenced - w.fenced[0].total; n >= fencedMin && len(f.Held) > 0 {
		text = fmt.Sprintf("another relay took over from this one %d times within %v, while this one held the "+
			"lease: two regions with separate Redis servers have the same name", n, fencedWithin)
	}
	w.setLocked(problemRegion, text)
}

// setLocked stores the result of a look; "" means that no problem was found. It logs each change.
func (w *watch) setLocked(kind problemKind, text string) {
	was := w.found[kind]
	w.found[kind] = text
	switch {
	case was == "" && text != "":
		w.logger.Error("a problem with this node's surroundings began", "problem", string(kind), "what", text)
	case was != "" && text == "":
		w.logger.Info("a problem with this node's surroundings has ended", "problem", string(kind))
	}
}

// texts returns the current problems.
func (w *watch) texts() (all []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range problemKinds {
		if text := w.found[kind]; text != "" {
			all = append(all, text)
		}
	}
	return all
}

// ProblemDesc describes weir_node_problem, which only a running node publishes.
var ProblemDesc = prometheus.NewDesc("weir_node_problem",
	"1 if the node has this problem, 0 if it has not, -1 if the node could not find out.",
	[]string{"problem"}, nil)

// Describe implements prometheus.Collector.
func (w *watch) Describe(descs chan<- *prometheus.Desc) { descs <- ProblemDesc }

// Collect implements prometheus.Collector.
func (w *watch) Collect(metrics chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range problemKinds {
		value := -1.0
		if text, looked := w.found[kind]; looked {
			value = 0
			if text != "" {
				value = 1
			}
		}
		metrics <- prometheus.MustNewConstMetric(ProblemDesc, prometheus.GaugeValue, value, string(kind))
	}
}
