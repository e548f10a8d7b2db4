package rollout

import (
	"github.com/weirhq/weir/controlplane/tunings"
)

func (r *transition) trialWrite(t Touched) tunings.TrialWrite {
	return tunings.TrialWrite{ID: r.trialID(t), Region: t.Region, Document: r.Document, Below: t.below(), Over: t.Over,
		LeaseMs: r.Spec.Plan.LeaseMs}
}

func (r *transition) trialID(t Touched) string { return r.ID + "/try/" + t.Region }

// renew extends the trials that have begun. If a trial has ended, it returns a problem that must fail the rollout: the
// trial's nodes have returned to the stored tuning, so their figures are no evidence for the new tuning.
func (r *transition) renew() (problem string, err error) {
	var ids []string
	for _, t := range r.Touched {
		if t.Trial > 0 && t.Applied == 0 {
			ids = append(ids, r.trialID(t))
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	renewed, err := r.steps.renew(ids, r.Spec.Plan.LeaseMs)
	if err != nil || renewed.Ended == nil {
		return "", err
	}
	return renewed.Ended.String(), nil
}

// endTrials ends every trial that the rollout has, or may have, begun. An attempt that arrives later finds its write
// made, and changes nothing.
func (r *transition) endTrials() error {
	var writes []tunings.TrialWrite
	for _, t := range r.Touched {
		writes = append(writes, r.trialWrite(t))
	}
	numbers, err := r.steps.endTrials(writes)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		r.Touched[i].Trial = number
	}
	r.TrialsEnded = true
	return nil
}
