package preview

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane/previews"
	"github.com/weirhq/weir/dataplane/sim"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	seed = 1 // the same for all tunings, so that they meet the same callers

	requestsMax = 8000 // of a run, about: the rest is scaled
	keysMin     = 100
	nodesMax    = 40
	regionsMax  = 10
)

// intervals are the feed intervals at which the curve is measured, the most informative first.
var intervals = []time.Duration{
	time.Second, 200 * time.Millisecond, 5 * time.Second, 50 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond,
	100 * time.Millisecond, 10 * time.Second,
}

// line is a line of the worker's output: one of its fields is set.
type line struct {
	Scale *scale               `json:"scale,omitempty"`
	Old   *previews.Prediction `json:"old,omitempty"`
	New   *previews.Prediction `json:"new,omitempty"`
	Point *previews.Prediction `json:"point,omitempty"`
	Error string               `json:"error,omitempty"`
}

// scale is how a shape became small enough to be simulated.
type scale struct {
	Keys  int      `json:"keys"`
	Nodes int      `json:"nodes"`
	Notes []string `json:"notes"`

	byKeys           float64 // the shape's over the simulated
	regions, reduced int     // the shape's, and the simulated
}

// Work reads a previews.Ask. It writes a line for each tuning that it has simulated, until all are done or the time is
// up.
func Work(stdin io.Reader, stdout io.Writer) error {
	began := time.Now()
	var ask previews.Ask
	if err := json.NewDecoder(stdin).Decode(&ask); err != nil {
		return fmt.Errorf("read the preview's input: %w", err)
	}
	out := json.NewEncoder(stdout)
	if err := work(ask, intervals, began, out.Encode); err != nil {
		return out.Encode(line{Error: err.Error()})
	}
	return nil
}

func work(ask previews.Ask, intervals []time.Duration, began time.Time, tell func(any) error) error {
	last, err := tuning.ReadWhole([]byte(ask.Old)) // stored, perhaps by an earlier build
	if err != nil {
		return err
	}
	next, err := tuning.Parse([]byte(ask.New))
	if err != nil {
		return err
	}
	population, by := shrink(ask.Shape)
	if err := tell(line{Scale: &by}); err != nil {
		return err
	}
	run := func(set tuning.Tuning, as func(*previews.Prediction) line) error {
		p, err := predict(population, by, set)
		if err != nil {
			return err
		}
		return tell(as(&p))
	}
	if err := run(last, func(p *previews.Prediction) line { return line{Old: p} }); err != nil {
		return err
	}
	if err := run(next, func(p *previews.Prediction) line { return line{New: p} }); err != nil {
		return err
	}
	each := time.Since(began) / 2
	for _, interval := range intervals {
		if left := time.Duration(ask.TimeMaxMs)*time.Millisecond - time.Since(began); left < each*3/2 {
			break
		}
		if interval == next.FeedInterval.Std() {
			continue // it is there
		}
		point := next
		point.FeedInterval = tuning.Duration(interval)
		if err := run(point, func(p *previews.Prediction) line { return line{Point: p} }); err != nil {
			return err
		}
	}
	return nil
}

// shrink makes a population out of a shape that can be simulated many times over.
func shrink(shape previews.FleetShape) (sim.Population, scale) {
	p := sim.Population{
		Nodes: slices.Clone(shape.Nodes), HotShare: shape.HotShare, OverlapShare: shape.OverlapShare,
		Limit: shape.Limit, Window: time.Duration(shape.WindowMs) * time.Millisecond, Keys: 1,
	}
	nodes := sum(p.Nodes)
	p.Nodes = p.Nodes[:min(len(p.Nodes), regionsMax)]
	for sum(p.Nodes) > max(nodesMax, len(p.Nodes)) {
		i := largest(p.Nodes)
		p.Nodes[i] = max(1, p.Nodes[i]/2)
	}
	p.Keys = min(max(keysMin, int(requestsMax/(1.5*max(p.Requests(), 0.01)))), int(shape.Keys))
	s := scale{Keys: p.Keys, Nodes: sum(p.Nodes)}
	s.byKeys, s.regions, s.reduced = float64(shape.Keys)/float64(s.Keys), len(shape.Nodes), len(p.Nodes)
	if s.byKeys > 1 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d keys were simulated: stored counts are multiplied by "+
			"%.4g, rows of the change feed only up to one row a region and interval, which is enough for "+
			"5,000 changed keys", s.Keys, shape.Keys, s.byKeys))
	}
	if s.regions > s.reduced {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d regions were simulated: rows of the change feed are multiplied, "+
			"because each region writes its own rows and reads those of all others; each region left out adds overshoot",
			s.reduced, s.regions))
	}
	if s.Nodes < nodes {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d nodes were simulated: rows depend on regions, not on nodes",
			s.Nodes, nodes))
	}
	s.Notes = append(s.Notes,
		"assumed: hot keys are offered 0.55 to 1.5 times their limits and others 0.01 to 0.3 times; Redis "+
			"answers in 1 ms, MySQL in 60 to 120 ms, and nothing fails",
		"overshoot is that of callers who send up to 10 times their limits, evenly to all regions, with no other traffic")
	return p, s
}

func sum(nodes []int) (n int) {
	for _, m := range nodes {
		n += m
	}
	return n
}

func largest(nodes []int) (at int) {
	for i, n := range nodes {
		if n > nodes[at] {
			at = i
		}
	}
	return at
}

// predict runs ordinary traffic and the worst under a tuning.
func predict(p sim.Population, by scale, set tuning.Tuning) (previews.Prediction, error) {
	o := sim.Options{Seed: seed, Tuning: &set, Unweighed: true}
	load, err := sim.Run(p.Load(), o)
	if err != nil {
		return previews.Prediction{}, err
	}
	worst, err := sim.Run(p.Worst(), o)
	if err != nil {
		return previews.Prediction{}, err
	}
	written, read := by.rows(load, set.FeedInterval.Std())
	return previews.Prediction{
		FeedIntervalMs:     set.FeedInterval.Std().Milliseconds(),
		RowsWrittenPerS:    written,
		RowsReadPerS:       read,
		ConvergenceP50Ms:   load.ConvergenceDelayMs.P50,
		ConvergenceP99Ms:   load.ConvergenceDelayMs.P99,
		HotConvergeP99Ms:   load.ConvergenceDelayHotMs.P99,
		UnknownShare:       load.ConvergenceDelayMs.UnknownShare,
		Overshoot:          max(worst.AdmittedOverLimit, load.AdmittedOverLimit),
		OrdinaryOvershoot:  load.AdmittedOverLimit,
		SimulatedDecisions: decided(load) + decided(worst),
	}, nil
}

// rows returns how many rows the whole fleet writes and reads a second. Each stored count is a row. The change feed has
// a row for each region and each interval with changes, which all other regions read.
func (s scale) rows(r sim.Report, interval time.Duration) (written, read float64) {
	feedRows := max(0, r.MySQLRowsWrittenPerS-r.MySQLCountsWrittenPerS)
	written, read = feedRows+r.MySQLCountsWrittenPerS*s.byKeys, r.MySQLRowsReadPerS
	if feedRows == 0 {
		return written, read
	}
	// with all keys, more intervals have changes
	busy := max(1, min(s.byKeys, float64(s.reduced)/interval.Seconds()/feedRows))
	writers := float64(s.regions) / float64(s.reduced)
	readers := 1.0
	if s.reduced > 1 {
		readers = float64(s.regions-1) / float64(s.reduced-1)
	}
	return written + feedRows*(busy*writers-1), read * busy * writers * readers
}

func decided(r sim.Report) int64 { return r.Simulated.Allowed + r.Simulated.Denied }
