package rollout

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

// StageNodes is the number or the share of a region's nodes that run the tuning in a stage, including nodes of earlier
// stages. At most one of the fields can be set; the zero value means all nodes. For example, NodesPercent: 10 takes in
// 3 of 25 nodes.
//
// Nodes are chosen by tuning.TrialShare, a hash of their IDs: when the stage's baseline begins, the stage gets the
// lowest bound below which enough of the live nodes are. A node that joins later runs the tuning if its hash is below
// the bound.
type StageNodes struct {
	NodesPercent int `json:"nodes_percent,omitempty"` // 1 to 100, rounded up to whole nodes
	Nodes        int `json:"nodes,omitempty"`         // 1 to fleet.NodesMax; a region with fewer nodes takes in all
}

// Validate reports the first field outside its bounds.
func (s StageNodes) Validate() error {
	switch {
	case s.NodesPercent != 0 && s.Nodes != 0:
		return fmt.Errorf("%w: nodes_percent is %d and nodes is %d: at most one of them may be set", controlplane.ErrInvalid,
			s.NodesPercent,
			s.Nodes)
	case s.NodesPercent < 0 || s.NodesPercent > 100:
		return fmt.Errorf("%w: nodes_percent is %d (1 to 100)", controlplane.ErrInvalid, s.NodesPercent)
	case s.Nodes < 0 || s.Nodes > fleet.NodesMax:
		return fmt.Errorf("%w: nodes is %d (1 to %d)", controlplane.ErrInvalid, s.Nodes, fleet.NodesMax)
	}
	return nil
}

// All reports whether the stage takes in all nodes of a region.
func (s StageNodes) All() bool { return s.Nodes == 0 && (s.NodesPercent == 0 || s.NodesPercent == 100) }

func (s StageNodes) String() string {
	switch {
	case s.All():
		return "all nodes"
	case s.Nodes > 0:
		return controlplane.CountOf(s.Nodes, "node", "nodes")
	}
	return fmt.Sprintf("%d%% of the nodes", s.NodesPercent)
}

// more reports whether s may take in nodes that another share does not. A number and a percentage can only be compared
// once the nodes are counted, so for them it returns true.
func (s StageNodes) more(than StageNodes) bool {
	switch {
	case s.All() || than.All():
		return !than.All()
	case s.Nodes > 0 && than.Nodes > 0:
		return s.Nodes > than.Nodes
	case s.NodesPercent > 0 && than.NodesPercent > 0:
		return s.NodesPercent > than.NodesPercent
	}
	return true
}

// below returns the least trial bound that takes in this share of the nodes. Without nodes it returns the percentage of
// all shares, or 1 for a number of nodes.
func (s StageNodes) below(nodes []fleet.NodeFigures) int64 {
	want := s.Nodes
	if s.NodesPercent > 0 {
		want = (len(nodes)*s.NodesPercent + 99) / 100
	}
	switch {
	case s.All():
		return tuning.TrialShares
	case len(nodes) == 0 && s.Nodes > 0:
		return 1
	case len(nodes) == 0:
		return tuning.TrialShares / 100 * int64(s.NodesPercent)
	case want > len(nodes):
		return tuning.TrialShares
	}
	shares := make([]int64, len(nodes))
	for i, n := range nodes {
		shares[i] = tuning.TrialShare(n.ID)
	}
	slices.Sort(shares)
	return shares[want-1] + 1
}

// WatchedShare selects the nodes of a region that a stage takes in: nodes whose tuning.TrialShare is at least From,
// because earlier stages have reached the nodes below From, and less than Below.
type WatchedShare struct {
	From  int64 `json:"from,omitempty"`
	Below int64 `json:"below"`
}

// has reports whether the watch includes a node.
func (w *RegionWatch) has(id string) bool {
	return w.Share == nil || w.Share.has(id)
}

func (s WatchedShare) has(id string) bool {
	share := tuning.TrialShare(id)
	return s.From <= share && share < s.Below
}

// below returns the bound of the region's trial.
func (t Touched) below() int64 {
	if t.Below == 0 {
		return tuning.TrialShares
	}
	return t.Below
}

// Part reports whether the region's trial covers a part of its nodes, and no version is stored.
func (t Touched) Part() bool { return t.Applied == 0 && t.below() < tuning.TrialShares }

// expects reports whether a node of the region should run the tuning that was written for it.
func (t Touched) expects(id string) bool {
	return !t.Part() || tuning.TrialShare(id) < t.below()
}

// aim returns the bound that the stage sets for a region with these nodes. Regions that have come since the rollout
// began follow the fleet's row, so their nodes do not matter.
func (r *transition) aim(region string, nodes []fleet.NodeFigures) int64 {
	bound := r.stage().below(nil)
	if slices.Contains(r.stage().Scope.Regions, region) {
		bound = r.stage().below(nodes)
	}
	if t, ok := r.Touched.of(region); ok {
		bound = max(bound, t.below())
	}
	return bound
}

// watchParts begins to watch a region whose nodes get the tuning in several stages. It adds one watch of the whole
// region, for the region's own figures, and one watch for the nodes of each stage, because they have a baseline of
// their own.
func (r *transition) watchParts(region string, nodes []fleet.NodeFigures, shadow bool) {
	var from int64
	if t, ok := r.inMode(shadow).of(region); ok {
		from = t.below()
	}
	last := r.stageOf(region)
	if !slices.ContainsFunc(r.Watch, func(w RegionWatch) bool { return w.Region == region }) {
		first := r.Stages.first(region, shadow)
		r.Watch = append(r.Watch, RegionWatch{Region: region, Stage: first, BucketMs: r.nowMs, Whole: true})
		if from > 0 {
			if r.Phase == Measuring && last == r.Stage {
				last = r.Stages.before(r.Stage, region)
			}
			r.Watch = append(r.Watch, RegionWatch{Region: region, Stage: last, BucketMs: r.nowMs,
				Share: &WatchedShare{Below: from}})
		}
	}
	if r.Phase == Measuring && r.stage().Scope.Has(region) && r.Watch.part(region, r.Stage) == nil {
		r.Watch = append(r.Watch, RegionWatch{Region: region, Stage: r.Stage, BucketMs: r.nowMs,
			Share: &WatchedShare{From: from, Below: r.aim(region, nodes)}})
	}
}

// stageOf returns the last stage that has begun and includes a region.
func (r *transition) stageOf(region string) int {
	if r.Phase != Awaiting && r.stage().Scope.Has(region) {
		return r.Stage
	}
	return r.Stages.before(r.Stage, region)
}

// touch records the regions that the stage is about to write. Trials of earlier stages are widened, and never narrowed.
func (r *transition) touch(inForce []tunings.RegionTuning) {
	for _, is := range inForce {
		bound := r.aim(is.Region, nil)
		if part := r.Watch.part(is.Region, r.Stage); part != nil {
			bound = part.Below
		}
		if bound == tuning.TrialShares {
			bound = 0
		}
		i := slices.IndexFunc(r.Touched, func(t Touched) bool { return t.Region == is.Region })
		if i >= 0 {
			r.Touched[i].Below = bound
			continue
		}
		t := Touched{Region: is.Region, Over: is.Version, Below: bound}
		if r.Spec.Limits == nil {
			t.Previous = is.Document
		}
		r.Touched = append(r.Touched, t)
	}
}

// TriedBy returns how many live nodes of a region should run the tuning by their share, and how many live nodes it has.
// ok is false if the region is not watched.
func (r *Rollout) TriedBy(region string) (expected, live int, ok bool) {
	touched, has := r.Touched.of(region)
	for i := range r.Watch {
		w := &r.Watch[i]
		if w.Region != region || w.Share != nil {
			continue
		}
		for _, n := range w.Nodes {
			if n.Gone {
				continue
			}
			live++
			if has && touched.expects(n.ID) {
				expected++
			}
		}
		return expected, live, true
	}
	return 0, 0, false
}
