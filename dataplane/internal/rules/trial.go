package rules

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// trial is a tuning, or a change of limits, that this node runs while a rollout renews it.
type trial struct {
	tuned               // of a trial of limits only the number is set
	limits *limitsTrial // nil: it is a tuning
	until  atomic.Int64 // clock.Steady
}

// try takes a trial from rows, if this node should run it. s is compiled from the rows.
func (s *Settings) try(rows *store.SettingsRows, last *Settings, nodeID string) error {
	row, same := &rows.Trial, last.trial
	if same != nil && same.TrialNumber != row.Number {
		same = nil
	}
	if row.Number == 0 || tuning.TrialShare(nodeID) >= row.Below {
		return nil
	}
	err := error(nil)
	switch {
	case settings.IsLimitsTrial(row.Document):
		err = s.tryLimits(rows, last, same)
	case same != nil:
		s.trial = same
	default:
		var t tuning.Tuning
		if t, err = tuning.Read(row.Document); err == nil {
			s.trial = &trial{tuned: tuned{t, t.Hash(), row.Number}}
		}
	}
	if err != nil {
		return fmt.Errorf("trial %d: %w", row.Number, err)
	}
	return nil
}

// renew extends the trial by rows that were requested at asked. It uses steady time, so no step of this node's wall
// clock makes the trial longer.
func (t *trial) renew(rows *store.SettingsRows, asked clock.Steady) {
	if t == nil {
		return
	}
	until := int64(asked) + (rows.Trial.Left - rows.Age).Milliseconds()
	t.until.Store(max(until, t.until.Load()))
}

// left returns the time until the trial ends, or 0.
func (t *trial) left(now clock.Steady) time.Duration {
	if t == nil {
		return 0
	}
	return time.Duration(max(0, t.until.Load()-int64(now))) * time.Millisecond
}

// at returns s, or a copy of it, with the tuning and the limits in force at a time.
func (s *Settings) at(now clock.Steady) *Settings {
	want, by := s.stored, s.storedSpaces
	if t := s.trial; t.left(now) > 0 {
		if want.TrialNumber = t.TrialNumber; t.limits == nil {
			want = t.tuned
		} else {
			by = s.trialSpaces
		}
	}
	if want.TrialNumber == s.TrialNumber {
		return s
	}
	next := *s
	next.run(want)
	next.spaces = by
	return &next
}

// EndTrials returns to the stored tuning and limits when a trial ends, until ctx does. It is apart from the reading
// of settings, which may hang.
func (r *Rules) EndTrials(ctx context.Context) {
	for {
		var ends <-chan time.Time
		if left := r.InForce().trial.left(r.cfg.Clock.ReadSteady()); left > 0 {
			ends = time.After(left)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.tries:
		case <-ends:
			r.endTrial()
		}
	}
}

// endTrial puts the stored tuning and limits in force if a trial is over.
func (r *Rules) endTrial() {
	for {
		last := r.InForce()
		next := last.at(r.cfg.Clock.ReadSteady())
		if next == last {
			return
		}
		if r.inForce.CompareAndSwap(last, next) {
			r.tuned(last, next)
			return
		}
	}
}

// tuned logs a change of the tuning or of the trial, and wakes the loops and waiting goroutines.
func (r *Rules) tuned(last, next *Settings) {
	if next != last {
		r.others.Notify()
	}
	if next.Version == last.Version && next.TrialNumber == last.TrialNumber {
		return
	}
	r.changes.Notify()
	if next.Version == last.Version && next.Hash == last.Hash {
		r.cfg.Logger.Info("limits applied", "trial", next.TrialNumber, "was", last.TrialNumber)
		return
	}
	r.cfg.Logger.Info("tuning applied", "version", next.Version, "was", last.Version, "trial", next.TrialNumber)
}
