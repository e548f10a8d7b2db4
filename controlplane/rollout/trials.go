package rollout

import (
	"slices"

	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/tunings"
)

func (r *transition) trialWrite(t Touched, shadow bool) tunings.TrialWrite {
	w := tunings.TrialWrite{ID: r.trialID(t, shadow), Region: t.Region, Document: r.Document, Below: t.below(),
		Over: t.Over, LeaseMs: r.Spec.Plan.LeaseMs}
	if shadow {
		w.Document, _ = r.Spec.trial(true) // valid since the rollout began
	}
	return w
}

func (r *transition) trialID(t Touched, shadow bool) string {
	if shadow {
		return r.ID + "/shadow/" + t.Region
	}
	return r.ID + "/try/" + t.Region
}

// renew extends the trials that have begun. If a trial has ended, it returns a problem that must fail the rollout: the
// trial's nodes have returned to the stored tuning, so their figures are no evidence for the new tuning.
func (r *transition) renew() (problem string, err error) {
	var ids []string
	for _, t := range r.Touched {
		if t.Trial > 0 && t.Applied == 0 && !r.Kept {
			ids = append(ids, r.trialID(t, r.shadowing()))
		}
	}
	for _, t := range r.Shadows {
		if !r.Kept && !r.Touched.have(t.Region) {
			ids = append(ids, r.trialID(t, true))
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	renewed, err := r.steps.renew(ids, r.Spec.Plan.LeaseMs, r.Spec.Limits)
	if err != nil || renewed.Ended == nil {
		return "", err
	}
	return renewed.Ended.String(), nil
}

// trialWrites returns the writes of the trials of Touched and then of Shadows.
func (r *transition) trialWrites() (writes []tunings.TrialWrite) {
	for _, t := range r.Touched {
		writes = append(writes, r.trialWrite(t, r.shadowing()))
	}
	for _, t := range r.Shadows {
		writes = append(writes, r.trialWrite(t, true))
	}
	return writes
}

// endTrials ends every trial that the rollout has, or may have, begun. An attempt that arrives later finds its write
// made, and changes nothing.
func (r *transition) endTrials() error {
	numbers, err := r.steps.endTrials(r.trialWrites())
	if err != nil {
		return err
	}
	for i, number := range numbers {
		if of := i - len(r.Touched); of >= 0 {
			r.Shadows[of].Trial = number
		} else {
			r.Touched[i].Trial = number
		}
	}
	r.TrialsEnded = true
	return nil
}

// have reports whether trials have begun for the row of a region.
func (ts Touches) have(region string) bool {
	return slices.ContainsFunc(ts, func(t Touched) bool { return t.Region == region && t.Trial > 0 })
}

// begun reports whether the rollout has, or may have, written anything.
func (r *Rollout) begun() bool { return len(r.Touched)+len(r.Shadows) > 0 }

// beginMeasuring begins the baseline of a stage. If it is the first stage without shadow, Touched begins again: the
// regions with shadow trials keep them, and serve as regions without the change. A region that the stage takes in gets
// a baseline of its own.
func (r *Rollout) beginMeasuring() {
	r.Phase = Measuring
	if r.stage().Shadow || !r.Stages[0].Shadow {
		return
	}
	if r.shadowing() {
		r.Shadows, r.Touched, r.Compared = r.Touched, nil, guard.Compared{}
	}
	r.Watch = slices.DeleteFunc(r.Watch, func(w guard.RegionWatch) bool {
		return r.Stages[w.Stage].Shadow && r.stage().Scope.Has(w.Region)
	})
}

// shadowing reports whether the trials of Touched have shadow.
func (r *Rollout) shadowing() bool { return r.Stages[0].Shadow && len(r.Shadows) == 0 }

// inMode returns the regions whose trials have shadow, or those whose trials do not.
func (r *Rollout) inMode(shadow bool) Touches {
	switch {
	case shadow == r.shadowing():
		return r.Touched
	case shadow:
		return r.Shadows
	}
	return nil
}

// Trials returns the regions that run, or may run, a trial or the stored subject of the rollout: Touched, and those of
// Shadows whose trial is not yet replaced.
func (r *Rollout) Trials() Touches {
	all := slices.Clip(r.Touched)
	for _, t := range r.Shadows {
		if !r.Touched.have(t.Region) {
			all = append(all, t)
		}
	}
	return all
}

// ran returns a region that runs or ran a trial, with the larger bound of its trials.
func (r *Rollout) ran(region string) (t Touched, ok bool) {
	t, ok = r.Touched.of(region)
	if s, shadow := r.Shadows.of(region); shadow && (!ok || s.below() > t.below()) {
		return s, true
	}
	return t, ok
}
