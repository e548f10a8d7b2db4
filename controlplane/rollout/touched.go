package rollout

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

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

// touch records the regions that the stage is about to write. Trials of earlier stages are widened, and never narrowed.
func (r *transition) touch(inForce []tunings.RegionTuning) {
	j := r.judge()
	for _, is := range inForce {
		bound := j.Aim(is.Region)
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

// Applied counts the nodes that run a tuning.
type Applied struct {
	Live    int // nodes that should run it
	Applied int
	Waiting string // a node that does not run it, and the tuning that it reports
}

func (a Applied) String() string {
	return fmt.Sprintf("%d of %s applied it; %s", a.Applied,
		controlplane.CountOf(a.Live, "live node has", "live nodes have"), a.Waiting)
}

// lag describes the tuning of a node that does not run the tuning of its region, for example "version 3, not trial 7";
// empty: it does.
func (t Touched) lag(n fleet.NodeFigures, hash string) string {
	want := fleet.NodeFigures{Version: t.Applied, Trial: t.Trial}
	if t.Applied > 0 {
		want.Trial = 0
	}
	switch {
	case n.Trial != want.Trial || n.Trial == 0 && n.Version != want.Version:
		runs := n.Runs()
		if hash == "" && n.Trial == 0 { // a trial of limits, which has no version of the tuning
			runs = "the stored limits"
		}
		return runs + ", not " + want.Runs()
	case hash != "" && n.Hash != hash:
		return fmt.Sprintf("%s with the hash %q, not %q", n.Runs(), n.Hash, hash)
	}
	return ""
}

// Touches are the regions that run, or may run, the tuning of a rollout, in the order in which they got it.
type Touches []Touched

// of returns what was written for a region. Regions without a row of their own follow the fleet's row.
func (ts Touches) of(region string) (of Touched, ok bool) {
	for _, row := range []string{region, ""} {
		i := slices.IndexFunc(ts, func(t Touched) bool { return t.Region == row })
		if i >= 0 {
			return ts[i], true
		}
	}
	return Touched{}, false
}

// scope returns every region that the rollout has, or may have, written.
func (ts Touches) scope() (scope fleet.Scope) {
	for _, t := range ts {
		if t.Region == "" {
			return fleet.Scope{Rest: true}
		}
		scope.Regions = append(scope.Regions, t.Region)
	}
	return scope
}

// rows returns the regions; "" is the fleet's row.
func (ts Touches) rows() (regions []string) {
	for _, t := range ts {
		regions = append(regions, t.Region)
	}
	return regions
}

// applied counts the nodes of a scope that run the rollout's own trials or versions with this document. Trials of
// limits go by their numbers alone, because the hash is the tuning's. A newer trial or version does not count. Nodes
// whose share keeps them out of the trial are left out.
func (ts Touches) applied(look fleet.Look, scope fleet.Scope, document string) (a Applied) {
	hash := tunings.HashOf(document)
	for _, n := range look.Nodes {
		want, _ := ts.of(n.Region)
		if !scope.Has(n.Region) || !want.expects(n.ID) {
			continue
		}
		a.Live++
		switch lag := want.lag(n, hash); {
		case lag == "":
			a.Applied++
		case a.Waiting == "" || n.Problem != "":
			a.Waiting = fmt.Sprintf("%s in %s runs %s", n.ID, n.Region, lag) + n.ProblemSuffix()
		}
	}
	return a
}
