package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	settingsdoc "github.com/weirhq/weir/shared/settings"
)

// WriteTrials writes trials in one transaction with an entry of the audit log, in order, and returns their numbers. If
// a write with the same ID exists already, it is skipped and its number returned, except that a larger bound widens its
// trial, without a change of its end. Nothing is written if the ID was used for another tuning, or if a trial replaces
// a version that is no longer the region's newest. If a version is written at the same moment, nodes ignore the trial.
func (s rollouts) WriteTrials(ctx context.Context, writes []tunings.TrialWrite,
	e audit.Entry) (written tunings.TrialsWritten, err error) {
	ofLimits := len(writes) > 0 && settingsdoc.IsLimitsTrial([]byte(writes[0].Document))
	err = s.inTransaction(ctx, func(q *queries) error {
		fresh := false
		for _, w := range writes {
			number, made, refused, err := writeTrial(ctx, q, w)
			if err != nil {
				return fmt.Errorf("write trial %s: %w", w.ID, err)
			}
			if written.Refused = refused; refused != nil {
				return errRefused
			}
			fresh = fresh || made
			written.Numbers = append(written.Numbers, number)
		}
		if !fresh {
			return nil
		}
		if ofLimits {
			conflict, err := trialConflict(ctx, q, []byte(writes[0].Document))
			if err != nil {
				return err
			}
			if conflict != "" {
				written.Refused = &tunings.Refusal{ID: writes[0].ID, Region: writes[0].Region, Conflict: conflict}
				return errRefused
			}
		}
		return insertSettingsAudit(ctx, q, e)
	})
	if errors.Is(err, errRefused) {
		return tunings.TrialsWritten{Refused: written.Refused}, nil
	}
	return written, err
}

// writeTrial writes or widens a trial. made is false if the trial already exists with at least this bound.
func writeTrial(ctx context.Context, q *queries,
	w tunings.TrialWrite) (number int64, made bool, refused *tunings.Refusal, err error) {
	number, below, refused, err := trialWritten(ctx, q, w)
	there := !errors.Is(err, sql.ErrNoRows)
	if there && (err != nil || refused != nil || below >= w.Below) {
		return number, false, refused, err
	}
	newest, err := q.TuningNewestOf(ctx, []byte(w.Region))
	if err != nil {
		return 0, false, nil, err
	}
	if newest != w.Over {
		return 0, false, &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: newest}, nil
	}
	if there {
		err = q.TrialWiden(ctx, controlplanedb.TrialWidenParams{Below: uint64(w.Below), WriteID: []byte(w.ID)})
		return number, true, nil, err
	}
	number, err = q.TrialWrite(ctx, controlplanedb.TrialWriteParams{
		Region: []byte(w.Region), Document: w.Document, Below: uint64(w.Below), OverVersion: uint64(w.Over),
		LeaseMs: w.LeaseMs, WriteID: []byte(w.ID),
	})
	if isNumber(err, duplicateKey) { // another attempt at this write came first
		number, _, refused, err = trialWritten(ctx, q, w)
		return number, false, refused, err
	}
	return number, true, nil, err
}

// trialWritten returns the number and bound of the trial that an earlier attempt wrote; sql.ErrNoRows: there was none.
func trialWritten(ctx context.Context, q *queries,
	w tunings.TrialWrite) (number, below int64, refused *tunings.Refusal, err error) {
	before, err := q.TrialWritten(ctx, []byte(w.ID))
	if err != nil {
		return 0, 0, nil, err
	}
	if string(before.Region) == w.Region && before.Document == w.Document {
		return int64(before.Number), int64(before.Below), nil, nil
	}
	return 0, 0, &tunings.Refusal{ID: w.ID, Region: w.Region, IDTaken: true}, nil
}

// errEnded rolls back a renewal.
var errEnded = errors.New("a trial is over")

// RenewTrials extends the trials that the given writes began, in one transaction. It extends none of them if any has
// ended, was replaced by a newer version of its region, or is missing from a restored database. A trial that has ended
// never begins again. With a change of limits it extends none if an item is no longer as before the change. An item
// that changes after that was read needs no lock: nodes ignore the trial from then on, and the next renewal reports it.
func (s rollouts) RenewTrials(ctx context.Context, ids []string, leaseMs int64,
	change *settingsdoc.Change) (renewed tunings.TrialsRenewed, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		if change != nil {
			conflicts, err := limitsConflicts(ctx, q, *change)
			if err != nil {
				return err
			}
			if conflicts.Items() > 0 {
				renewed.Ended = &tunings.TrialEnded{Conflict: rollout.Differences(conflicts)}
				return errEnded
			}
		}
		for _, id := range ids {
			err := q.TrialRenew(ctx, controlplanedb.TrialRenewParams{LeaseMs: leaseMs, WriteID: []byte(id)})
			if err != nil {
				return fmt.Errorf("renew trial %s: %w", id, err)
			}
			stands, err := q.TrialStands(ctx, []byte(id))
			if errors.Is(err, sql.ErrNoRows) {
				renewed.Ended = &tunings.TrialEnded{Lost: id}
				return errEnded
			}
			if err != nil {
				return fmt.Errorf("read trial %s: %w", id, err)
			}
			if renewed.Ended = endedOf(stands); renewed.Ended != nil {
				return errEnded
			}
		}
		return nil
	})
	if errors.Is(err, errEnded) {
		err = nil
	}
	return renewed, err
}

// endedOf returns why a trial has ended, or nil if it has not.
func endedOf(t controlplanedb.TrialStandsRow) *tunings.TrialEnded {
	switch newest := t.Newest; {
	case newest != int64(t.OverVersion):
		return &tunings.TrialEnded{Region: string(t.Region), Newer: newest}
	case t.GoesOn == 0:
		return &tunings.TrialEnded{Region: string(t.Region)}
	}
	return nil
}

// EndTrials ends the trials of writes in one transaction, and returns their numbers. If a write has not been made,
// EndTrials inserts it as a trial that has ended, so that an attempt that arrives later begins nothing.
func (s rollouts) EndTrials(ctx context.Context, writes []tunings.TrialWrite) (numbers []int64, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		numbers = nil
		for _, w := range writes {
			if err := endTrial(ctx, q, w); err != nil {
				return err
			}
			ended, err := q.TrialWritten(ctx, []byte(w.ID))
			if err != nil {
				return fmt.Errorf("read trial %s: %w", w.ID, err)
			}
			numbers = append(numbers, int64(ended.Number))
		}
		return changes.Changed(ctx, q)
	})
	return numbers, err
}

func endTrial(ctx context.Context, q *queries, w tunings.TrialWrite) error {
	err := q.TrialEnd(ctx, controlplanedb.TrialEndParams{
		Region: []byte(w.Region), Document: w.Document, Below: uint64(w.Below), OverVersion: uint64(w.Over),
		WriteID: []byte(w.ID),
	})
	if err != nil {
		return fmt.Errorf("end trial %s: %w", w.ID, err)
	}
	return nil
}
