package dataplane

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/shared/heartbeat"
)

// delay is how long after its acceptance cost of one region is used here.
type delay struct {
	seconds prometheus.Histogram
	recent  recentDelays
	all     *recentDelays // of all regions
}

// Observe takes note of one.
func (d *delay) Observe(age time.Duration) {
	age = max(0, age)
	d.seconds.Observe(age.Seconds())
	d.recent.add(age)
	d.all.add(age)
}

// delaysMax bounds the regions that are told apart.
const delaysMax = 64

// delays has one histogram for each region that was heard of.
type delays struct {
	mu       sync.Mutex
	byRegion map[string]*delay
	recent   recentDelays
}

// from is the region's, nil for the regions after the first delaysMax.
func (d *delays) from(region string) *delay {
	if region == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.byRegion[region]; known != nil || len(d.byRegion) >= delaysMax {
		return known
	}
	if d.byRegion == nil {
		d.byRegion = make(map[string]*delay)
	}
	made := &delay{all: &d.recent, seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_convergence_delay_seconds", Help: "Age of the youngest cost of another region when a decision first used it.",
		ConstLabels: prometheus.Labels{"from": region},
		Buckets:     []float64{0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 60},
	})}
	d.byRegion[region] = made
	return made
}

func (d *delays) collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, known := range d.byRegion {
		known.seconds.Collect(ch)
	}
}

// p99ByRegion is of the regions that some came from lately: the first ones by name.
func (d *delays) p99ByRegion() (byRegion map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, region := range slices.Sorted(maps.Keys(d.byRegion)) {
		samples, _, p99Ms := d.byRegion[region].recent.summary()
		if samples == 0 || len(byRegion) >= heartbeat.RegionsMax {
			continue
		}
		if byRegion == nil {
			byRegion = make(map[string]int64)
		}
		byRegion[region] = p99Ms
	}
	return byRegion
}

// forget begins anew, once a heartbeat has told what there was.
func (d *delays) forget() {
	d.recent.forget()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, known := range d.byRegion {
		known.recent.forget()
	}
}

// recentDelays are the last of those since it was last told to forget.
type recentDelays struct {
	mu    sync.Mutex
	ring  [256]time.Duration
	count int
}

func (r *recentDelays) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.count%len(r.ring)] = d
	r.count++
}

// summary is how many there are, and two quantiles of them.
func (r *recentDelays) summary() (samples, p50Ms, p99Ms int64) {
	r.mu.Lock()
	sorted := slices.Clone(r.ring[:min(r.count, len(r.ring))])
	r.mu.Unlock()
	if len(sorted) == 0 {
		return 0, 0, 0
	}
	slices.Sort(sorted)
	at := func(q float64) int64 { return sorted[int(q*float64(len(sorted)-1)+0.5)].Milliseconds() }
	return int64(len(sorted)), at(0.5), at(0.99)
}

func (r *recentDelays) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count = 0
}
