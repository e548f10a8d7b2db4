package rollout

import (
	"slices"

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
