package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
)

// flood has the settings of a flood.
type flood struct {
	identifiers int
	entriesMax  int
	limit       int64
	workers     int
}

// blocked is over its limit before the flood begins, and no request names it again
// before the flood has passed.
var blocked = request("blocked-caller", 5)

func request(identifier string, limit int64) dataplane.Request {
	return dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: identifier,
		Limit: limit, Duration: time.Hour, Cost: 1,
	}
}

func (f flood) run(ctx context.Context) (r report, err error) {
	l, err := dataplane.New(dataplane.Config{EntriesMax: f.entriesMax})
	if err != nil {
		return r, err
	}
	if err := l.Start(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Stop(ctx)) }()

	for range blocked.Limit {
		l.Allow(ctx, blocked)
	}
	if l.Allow(ctx, blocked).Allowed {
		return r, fmt.Errorf("%d are allowed before the flood, of a limit of %d", blocked.Limit+1, blocked.Limit)
	}

	heap := watchHeap()
	began := time.Now()
	r.decisions, r.denied = f.send(ctx, l)
	r.took = time.Since(began)
	r.heapBefore, r.heapMax, r.liveMax = heap.stop()

	r.blockedAfter = !l.Allow(ctx, blocked).Allowed
	r.identifiers, r.entriesMax, r.workers = f.identifiers, f.entriesMax, f.workers
	r.metrics, err = metricsOf(l)
	return r, err
}

// send sends every identifier once, and times each decision.
func (f flood) send(ctx context.Context, l *dataplane.Limiter) (all *hdrhistogram.Histogram, denied int64) {
	all = newLatencies()
	var next, denials atomic.Int64
	var workers sync.WaitGroup
	var merging sync.Mutex
	for range f.workers {
		workers.Go(func() {
			own := newLatencies()
			began := time.Now()
			for name := []byte(nil); ; {
				i := next.Add(1)
				if i > int64(f.identifiers) {
					break
				}
				name = strconv.AppendInt(append(name[:0], "flood-"...), i, 10)
				r := request(string(name), f.limit)
				before := time.Since(began)
				d := l.Allow(ctx, r)
				record(own, time.Since(began)-before)
				if !d.Allowed {
					denials.Add(1)
				}
			}
			merging.Lock()
			defer merging.Unlock()
			all.Merge(own)
		})
	}
	workers.Wait()
	return all, denials.Load()
}

// metricsOf reads the limiter's own counters. Counters of the same name are added up by label.
func metricsOf(l *dataplane.Limiter) (map[string]float64, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(metrics.New(l)); err != nil {
		return nil, fmt.Errorf("register the limiter's metrics: %w", err)
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather the limiter's metrics: %w", err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values, nil
}
