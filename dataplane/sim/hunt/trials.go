package hunt

import (
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// trialSlack is how much longer than its lease a node may run a trial, because some times are rounded to milliseconds.
const trialSlack = 5 * time.Millisecond

// try begins a trial, which replaces the region's last trial.
func (o *operators) try(s Step) error {
	document, err := s.Tuning.Document()
	if err != nil {
		return err
	}
	region, ends := o.region(s), time.Now().Add(s.After)
	o.ends = append(o.ends, ends)
	o.trials[region] = memstore.Trial{
		TrialRow: store.TrialRow{
			Number: int64(len(o.ends)), Document: document, Below: int64(s.Share * tuning.TrialShares),
		},
		Over: o.versions[region], Ends: ends,
	}
	o.world.Counts.SetTrial(region, o.trials[region])
	return nil
}

// renew moves the end of the trial that a step has begun. It does so a third of the trial's time before the end, as
// often as the step has it, and until another trial replaces this trial.
func (o *operators) renew(s Step) {
	o.mu.Lock()
	region := o.region(s)
	number := o.trials[region].Number
	o.mu.Unlock()
	for range s.Count {
		time.Sleep(s.After * 2 / 3)
		o.mu.Lock()
		if t := o.trials[region]; t.Number == number {
			t.Ends = time.Now().Add(s.After)
			o.trials[region], o.ends[number-1] = t, t.Ends
			o.world.Counts.RenewTrial(region, t.Ends)
		}
		o.mu.Unlock()
	}
}

// tried returns the trial that a node is to run, 0 for none; ending: it is about to end, or has just, and either is
// right.
func (o *operators) tried(region, nodeID string) (number int64, ending bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	regions := []string{region, ""}
	if _, tuned := o.versions[region]; tuned {
		regions = regions[:1]
	}
	for _, r := range regions {
		t := o.trials[r]
		left := time.Until(t.Ends)
		switch {
		case t.Number == 0 || t.Over != o.versions[r] || left < -settingsSeen:
			continue
		case left < settingsSeen:
			return 0, true
		case tuning.TrialShare(nodeID) < t.Below:
			return t.Number, false
		}
		return 0, false
	}
	return 0, false
}

// settingsSeen is how old a node's settings may be.
const settingsSeen = 2 * time.Second

// outlived reports whether a trial has ended, by the latest of its renewals.
func (o *operators) outlived(number int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.ends[number-1]) > trialSlack
}
