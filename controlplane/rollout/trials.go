package rollout

import (
	"github.com/weirhq/weir/controlplane/tunings"
)

func (r *transition) trialWrite(t Touched) tunings.TrialWrite {
	return tunings.TrialWrite{ID: r.trialID(t), Region: t.Region, Document: r.Document, Below: t.below(), Over: t.Over,
		LeaseMs: r.Spec.Plan.LeaseMs}
}

func (r *transition) trialID(t Touched) string { return r.ID + "/try/" + t.Region }

// renew moves the ends of the trials that are known to have begun. One that is over fails the rollout: its nodes have
// returned to what they ran before, so what is seen of them says nothing of the tuning.
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

// endTrials ends every trial that the rollout has, or may have, begun: an attempt that is still on its way finds its
// write made.
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
