package previews

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/tuning"
)

// Bounds of previews.
const (
	TimeDefault = 10 * time.Second
	TimeMin     = 5 * time.Second // of less, two regions of a few nodes have no answer
	TimeMax     = time.Minute

	previewRegionsMax = plan.RegionsMax
	previewNodesMax   = fleet.NodesMax
	previewKeysMax    = 1_000_000_000
)

// Previewer predicts the effect of a tuning on a fleet. This package only has the interface, and a main provides the
// implementation. Preview must return when ctx is done. It must be safe for concurrent use.
type Previewer interface {
	Preview(ctx context.Context, ask Ask) (Predictions, error)
}

// Ask is the input of a Previewer.
type Ask struct {
	Shape     FleetShape `json:"shape"`
	Old       string     `json:"old"` // tuning documents
	New       string     `json:"new"`
	TimeMaxMs int64      `json:"time_max_ms"` // real time, within which at least Old and New must be predicted
}

// FleetShape describes a fleet in the few figures on which predictions are based.
type FleetShape struct {
	Nodes        []int   `json:"nodes"` // by region
	Keys         int64   `json:"keys"`  // active in the same window, each counted once
	HotShare     float64 `json:"hot_share"`
	OverlapShare float64 `json:"overlap_share"` // of the keys: the share that several regions use
	Limit        int64   `json:"limit"`
	WindowMs     int64   `json:"window_ms"`

	// Assumed lists the fields that neither the fleet nor the caller set, by the caller's names.
	Assumed []string `json:"assumed,omitempty"`
}

// Predictions are the output of a Previewer.
type Predictions struct {
	Old Prediction `json:"old"`
	New Prediction `json:"new"`
	// the new tuning with other feed intervals, shortest first: as many as the time allowed
	Curve []Prediction `json:"curve"`

	KeysSimulated  int64    `json:"keys_simulated"`
	NodesSimulated int      `json:"nodes_simulated"`
	Notes          []string `json:"notes"` // how the figures were scaled, and what they leave out
}

// Prediction describes the expected figures of a fleet under a tuning.
type Prediction struct {
	FeedIntervalMs   int64   `json:"feed_interval_ms"`
	RowsWrittenPerS  float64 `json:"rows_written_per_s"` // of the whole fleet
	RowsReadPerS     float64 `json:"rows_read_per_s"`    // the same
	ConvergenceP50Ms int64   `json:"convergence_p50_ms"`
	ConvergenceP99Ms int64   `json:"convergence_p99_ms"`
	UnknownShare     float64 `json:"unknown_share"` // of the cost in other regions: never counted here
	// the most that a caller who spreads over all regions is admitted, relative to the limit
	Overshoot          float64 `json:"overshoot"`
	OrdinaryOvershoot  float64 `json:"ordinary_overshoot"`  // the same for ordinary callers
	HotConvergeP99Ms   int64   `json:"hot_converge_p99_ms"` // of keys past 80 % of their limits
	SimulatedDecisions int64   `json:"simulated_decisions"`
}

// Request is an operator's request. A nil field of Given is taken from the fleet, or else has a default, which the
// answer lists as assumed.
type Request struct {
	Old       string // tuning document; empty: the tuning in force
	New       string
	NoFleet   bool // look at no fleet, for shapes that do not exist
	Given     GivenShape
	TimeMaxMs int64 // of real time; 0: TimeDefault
}

// GivenShape has the shape's fields that the caller sets. A nil field is not set.
type GivenShape struct {
	Regions, NodesPerRegion *int32
	Keys, Limit, WindowMs   *int64
	HotShare, OverlapShare  *float64
}

// Answer is a preview.
type Answer struct {
	Predictions
	Shape            FleetShape
	OldText, NewText string // the tunings, every field present
	TookMs           int64
}

// Preview predicts the effect of tunings, one request at a time, because a simulation needs a processor and an operator
// waits for it.
type Preview struct {
	previewer Previewer
	work      *rollout.Work
	busy      chan struct{} // full while a preview runs
}

// New returns previews of the fleet that work sees.
func New(previewer Previewer, work *rollout.Work) *Preview {
	return &Preview{previewer: previewer, work: work, busy: make(chan struct{}, 1)}
}

// Preview answers a request. Errors wrap controlplane.ErrInvalid, controlplane.ErrConflict where another preview
// is under way, or the context's.
func (p *Preview) Preview(ctx context.Context, req Request) (answer Answer, err error) {
	timeMaxMs := cmp.Or(req.TimeMaxMs, TimeDefault.Milliseconds())
	if err := controlplane.ValidateMs("time_max_ms", timeMaxMs, TimeMin, TimeMax); err != nil {
		return answer, err
	}
	if answer.NewText, err = (rollout.Spec{Tuning: req.New}).WholeTuning(); err != nil {
		return answer, err
	}
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	default:
		return answer, fmt.Errorf("%w: another preview is under way: try again when it is done, within %v",
			controlplane.ErrConflict,
			TimeMax)
	}
	began := time.Now()
	var fleet fleet.Fleet
	if !req.NoFleet {
		if fleet, err = p.work.Fleet(ctx); err != nil {
			return answer, err
		}
	}
	if answer.Shape, err = shapeOf(fleet, req.Given); err != nil {
		return answer, err
	}
	if answer.OldText, err = p.old(ctx, req, fleet); err != nil {
		return answer, err
	}
	answer.Predictions, err = p.previewer.Preview(ctx, Ask{Shape: answer.Shape, Old: answer.OldText,
		New: answer.NewText, TimeMaxMs: timeMaxMs})
	answer.TookMs = time.Since(began).Milliseconds()
	return answer, err
}

// old returns the tuning to compare with: the given tuning, or the tuning in force in the regions of most live nodes.
func (p *Preview) old(ctx context.Context, req Request, fleet fleet.Fleet) (string, error) {
	switch {
	case req.Old != "":
		return (rollout.Spec{Tuning: req.Old}).WholeTuning()
	case req.NoFleet:
		b, err := tuning.Default().Document()
		return string(b), err
	}
	regions := []string{""}
	for _, n := range fleet.Nodes {
		if n.Live {
			regions = append(regions, n.Region)
		}
	}
	if len(regions) > 1 {
		regions = regions[1:]
	}
	inForce, err := p.work.InForce(ctx, regions)
	if err != nil {
		return "", err
	}
	count := map[string]int{}
	most := inForce[0].Document
	for _, t := range inForce {
		if count[t.Document]++; count[t.Document] > count[most] {
			most = t.Document
		}
	}
	set, err := tuning.Read([]byte(most)) // stored, perhaps by another build
	if err != nil {
		return "", err
	}
	b, err := set.Document()
	return string(b), err
}

// The default shape: the load for which the tuning's defaults were chosen, with a tenth of its keys hot and a twentieth
// used by two regions.
const (
	assumedRegions  = 2
	assumedNodes    = 3
	assumedKeys     = 24_000
	assumedHot      = 0.1
	assumedOverlap  = 0.05
	assumedLimit    = 100
	assumedWindowMs = 60_000
)

// shapeOf returns the fleet's own shape, with the given fields in its place, and assumptions for the rest.
func shapeOf(fleet fleet.Fleet, given GivenShape) (FleetShape, error) {
	seen := seenShape(fleet)
	s := FleetShape{Nodes: seen.nodes}
	if given.Regions != nil || given.NodesPerRegion != nil || len(s.Nodes) == 0 {
		regions := choose(&s, "regions", given.Regions, whole(len(s.Nodes)), assumedRegions)
		each := choose(&s, "nodes_per_region", given.NodesPerRegion, whole(seen.nodesPerRegion()), assumedNodes)
		if err := controlplane.ValidateCount("regions", regions, 1, previewRegionsMax); err != nil {
			return s, err
		}
		if each < 1 || int64(each)*int64(regions) > previewNodesMax {
			return s, fmt.Errorf("%w: nodes_per_region is %d (1 to %d in all regions)", controlplane.ErrInvalid, each,
				previewNodesMax)
		}
		s.Nodes = slices.Repeat([]int{int(each)}, int(regions))
	}
	s.Keys = choose(&s, "keys", given.Keys, seen.keys, assumedKeys)
	s.HotShare = choose(&s, "hot_share", given.HotShare, seen.hot, assumedHot)
	s.OverlapShare = choose(&s, "overlap_share", given.OverlapShare, seen.overlap, assumedOverlap)
	s.Limit = choose(&s, "limit", given.Limit, nil, assumedLimit)
	s.WindowMs = choose(&s, "window_ms", given.WindowMs, nil, assumedWindowMs)
	return s, s.Validate()
}

// Validate reports the first field outside its bounds.
func (s FleetShape) Validate() error {
	return cmp.Or(controlplane.ValidateCount("keys", s.Keys, 1, previewKeysMax),
		validateShare("hot_share", s.HotShare), validateShare("overlap_share", s.OverlapShare),
		controlplane.ValidateCount("limit", s.Limit, 1, 1_000_000),
		controlplane.ValidateMs("window_ms", s.WindowMs, time.Second, time.Hour))
}

func validateShare(field string, share float64) error {
	if !(share >= 0 && share <= 1) { // also refuses NaN
		return fmt.Errorf("%w: %s is %v (0 to 1)", controlplane.ErrInvalid, field, share)
	}
	return nil
}

// choose returns the first of given, seen and assumed that is there.
func choose[T any](s *FleetShape, name string, given, seen *T, assumed T) T {
	switch {
	case given != nil:
		return *given
	case seen != nil:
		return *seen
	}
	s.Assumed = append(s.Assumed, name)
	return assumed
}

func whole(n int) *int32 {
	if n == 0 {
		return nil
	}
	return new(int32(min(n, math.MaxInt32))) //nolint:gosec // bounded
}

// seen is the shape by the nodes' heartbeats. A nil field is in no heartbeat.
type seen struct {
	nodes        []int
	keys         *int64
	hot, overlap *float64
}

func (s seen) nodesPerRegion() int {
	if len(s.nodes) == 0 {
		return 0
	}
	sum := 0
	for _, n := range s.nodes {
		sum += n
	}
	return (sum + len(s.nodes) - 1) / len(s.nodes)
}

// seenShape adds heartbeats up. Requests on a key reach any node of its region, so a region has about as many keys as
// its node with most keys. Keys that two regions use are in both sums, and are counted once.
func seenShape(listing fleet.Fleet) (s seen) {
	type region struct{ nodes, keys, hot, told, shared int64 }
	byName := map[string]*region{}
	for _, n := range listing.Nodes {
		if !n.Live {
			continue
		}
		r := byName[n.Region]
		if r == nil {
			r = &region{}
			byName[n.Region] = r
		}
		r.nodes++
		if h := n.Health; h.ActiveKeys > r.keys {
			r.keys, r.hot = h.ActiveKeys, h.HotKeys
			r.told, r.shared = 0, 0
			if h.SharedKeys != nil {
				r.told, r.shared = h.ActiveKeys, *h.SharedKeys
			}
		}
	}
	var keys, hot, told, shared int64
	for _, r := range byName {
		s.nodes = append(s.nodes, int(r.nodes))
		keys, hot, told, shared = keys+r.keys, hot+r.hot, told+r.told, shared+r.shared
	}
	slices.SortFunc(s.nodes, func(a, b int) int { return b - a })
	if keys == 0 {
		return s
	}
	s.hot = fleet.Quotient(float64(min(hot, keys)), float64(keys))
	if told > 0 {
		twice := min(float64(shared)/float64(told), 1) / 2
		s.overlap = fleet.Quotient(twice, 1-twice) // of the keys counted once
		keys = int64(math.Round(float64(keys) * (1 - twice)))
	}
	keys = max(1, keys)
	s.keys = &keys
	return s
}
