package rollout

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/tunings"
)

// Try writes trials.
func (w *RolloutWork) Try(ctx context.Context, writes []tunings.TrialWrite, by controlplane.By) (tunings.TrialsWritten,
	error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	entry, err := tunings.TrialEntry(writes, by)
	if err != nil {
		return tunings.TrialsWritten{}, err
	}
	written, err := w.store.WriteTrials(ctx, writes, entry)
	if err != nil {
		return tunings.TrialsWritten{}, fmt.Errorf("write the trials of %d regions: %w", len(writes), err)
	}
	return written, nil
}

// Renew moves the ends of trials.
func (w *RolloutWork) Renew(ctx context.Context, ids []string, leaseMs int64) (tunings.TrialsRenewed, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	renewed, err := w.store.RenewTrials(ctx, ids, leaseMs)
	if err != nil {
		return tunings.TrialsRenewed{}, fmt.Errorf("renew %d trials: %w", len(ids), err)
	}
	return renewed, nil
}

// EndTrials ends trials.
func (w *RolloutWork) EndTrials(ctx context.Context, writes []tunings.TrialWrite) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	numbers, err := w.store.EndTrials(ctx, writes)
	if err != nil {
		return nil, fmt.Errorf("end %d trials: %w", len(writes), err)
	}
	return numbers, nil
}

func (r *Rollout) trialWrite(t Touched) tunings.TrialWrite {
	return tunings.TrialWrite{ID: r.trialID(t), Region: t.Region, Document: r.Document, Below: t.below(), Over: t.Over,
		LeaseMs: r.Spec.Plan.LeaseMs}
}

func (r *Rollout) trialID(t Touched) string { return r.ID + "/try/" + t.Region }

// renew moves the ends of the trials that are known to have begun. One that is over fails the rollout: its nodes have
// returned to what they ran before, so what is seen of them says nothing of the tuning.
func (r *Rollout) renew(steps RolloutSteps) (problem string, err error) {
	var ids []string
	for _, t := range r.Touched {
		if t.Trial > 0 && t.Applied == 0 {
			ids = append(ids, r.trialID(t))
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	renewed, err := steps.Renew(ids, r.Spec.Plan.LeaseMs)
	if err != nil || renewed.Ended == nil {
		return "", err
	}
	return renewed.Ended.String(), nil
}

// endTrials ends every trial that the rollout has, or may have, begun: an attempt that is still on its way finds its
// write made.
func (r *Rollout) endTrials(steps RolloutSteps) error {
	var writes []tunings.TrialWrite
	for _, t := range r.Touched {
		writes = append(writes, r.trialWrite(t))
	}
	numbers, err := steps.EndTrials(writes)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		r.Touched[i].Trial = number
	}
	r.TrialsEnded = true
	return nil
}
