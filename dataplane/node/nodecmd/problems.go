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

// watch looks for what is wrong with a node's surroundings and loses or repeats counts although every call succeeds: a
// Redis that evicts keys, or a name that another process or region has as well. The node goes on deciding. Each problem
// is in its heartbeats, on /readyz, in weir_node_problem, and in the log once as it begins and once as it ends.
//
// The methods of a nil watch do nothing. All may be called at once.
type watch struct {
	origin  watchedOrigin
	node    string
	process string // of this one; no other has it
	logger  *slog.Logger

	mu       sync.Mutex
	found    map[problemKind]string // "" where there is none; absent where it is unknown
	others   map[string]int64       // processes of this node's name, as they were seen last
	fenced   []fence                // of the last fencedWithin
	evictsAt time.Time              // when the policies were looked at last
}

// watchedOrigin is what is looked at.
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
	evictionEvery = time.Minute // a policy changes seldom

	// A relay whose lease another relay took over is fenced once. Two regions of one name, each with a Redis of its own,
	// fence each other's relays for ever, and both keep their leases.
	fencedWithin = 3 * time.Minute
	fencedMin    = 3
)

// fence is how often a relay had been fenced at a moment.
type fence struct {
	at    time.Time
	total int64
}

// watch is nil without Redis: a node alone shares nothing.
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

// run looks until ctx is done, at once and then every watchEvery.
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

// leave tells others that this process has ended, so that its successor is not compared with it.
func (w *watch) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
	defer cancel()
	if err := w.origin.Withdraw(ctx, w.node, w.process); err != nil {
		w.logger.Debug("the node's name stays listed for a minute", "error", err)
	}
}

// step looks once.
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
	if len(servers) == 0 && err != nil { // unknown, which is no sign that the last finding is over
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

// seen compares the processes of this node's name with those of the last look.
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
		w.setLocked(problemNodeID, fmt.Sprintf("another process has the node-id %q: give each node its own, since "+
			"heartbeats and leases of nodes with one name replace each other", w.node))
	case !first || len(others) == 0:
		w.setLocked(problemNodeID, "")
	}
}

// relayed takes the figures of this node's relay, at each heartbeat.
func (w *watch) relayed(f *relay.Figures, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced = append(w.fenced, fence{now, f.Fenced})
	w.fenced = slices.DeleteFunc(w.fenced, func(x fence) bool { return now.Sub(x.at) > fencedWithin })
	text := ""
	if n := f.Fenced - w.fenced[0].total; n >= fencedMin && len(f.Held) > 0 {
		text = fmt.Sprintf("another relay writes under this region's name, %d times within %v, while this one holds the "+
			"lease: two regions with a Redis each have the same name", n, fencedWithin)
	}
	w.setLocked(problemRegion, text)
}

// setLocked notes what a look has found, "" for nothing.
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

// texts are the problems that there are.
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

// collectors are the watch, if there is one.
func (w *watch) collectors() []prometheus.Collector {
	if w == nil {
		return nil
	}
	return []prometheus.Collector{w}
}

var problemDesc = prometheus.NewDesc("weir_node_problem",
	"1 if the node has found the problem, 0 if it has looked and found none, -1 if that is not known.",
	[]string{"problem"}, nil)

// Describe implements prometheus.Collector.
func (w *watch) Describe(descs chan<- *prometheus.Desc) { descs <- problemDesc }

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
		metrics <- prometheus.MustNewConstMetric(problemDesc, prometheus.GaugeValue, value, string(kind))
	}
}
