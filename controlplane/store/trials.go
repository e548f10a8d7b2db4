package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

// WriteTrials writes trials in one transaction with an entry of the audit log, in order, and answers their numbers. A
// write whose ID is there already is left out and its number answered, and a larger bound widens its trial, whose end
// stays; one of another tuning under that ID, and one over a version that is not the region's newest any more, undoes
// them all. A version that comes at the same moment makes the trial void where nodes read it.
func (s rollouts) WriteTrials(ctx context.Context, writes []tunings.TrialWrite,
	e audit.Entry) (written tunings.TrialsWritten, err error) {
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
		return insertSettingsAudit(ctx, q, e)
	})
	if errors.Is(err, errRefused) {
		return tunings.TrialsWritten{Refused: written.Refused}, nil
	}
	return written, err
}

// writeTrial writes a trial, or widens it; made is false if it was written before, as wide.
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
	var answered *mysql.MySQLError
	if errors.As(err, &answered) && answered.Number == duplicateKey { // another attempt at this very write came first
		number, _, refused, err = trialWritten(ctx, q, w)
		return number, false, refused, err
	}
	return number, true, nil, err
}

// trialWritten is the trial that a write made before, and its bound; sql.ErrNoRows: it has not been made.
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

// errEnded undoes a renewal.
var errEnded = errors.New("a trial is over")

// RenewTrials extends the trials that the given writes began, in one transaction. It extends none
// if one of them has ended, was replaced by another version of its region, or is missing from a
// restored database. A trial never begins again.
func (s rollouts) RenewTrials(ctx context.Context, ids []string,
	leaseMs int64) (renewed tunings.TrialsRenewed, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
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

// endedOf says why a trial is over; nil: it goes on.
func endedOf(t controlplanedb.TrialStandsRow) *tunings.TrialEnded {
	switch newest := t.Newest; {
	case newest != int64(t.OverVersion):
		return &tunings.TrialEnded{Region: string(t.Region), Newer: newest}
	case t.GoesOn == 0:
		return &tunings.TrialEnded{Region: string(t.Region)}
	}
	return nil
}

// EndTrials ends the trials of writes in one transaction, and answers their numbers. A write that has not been made is
// made as one that is over, so that an attempt that arrives later begins nothing.
func (s rollouts) EndTrials(ctx context.Context, writes []tunings.TrialWrite) (numbers []int64, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		numbers = nil
		for _, w := range writes {
			err := q.TrialEnd(ctx, controlplanedb.TrialEndParams{
				Region: []byte(w.Region), Document: w.Document, Below: uint64(w.Below), OverVersion: uint64(w.Over),
				WriteID: []byte(w.ID),
			})
			if err != nil {
				return fmt.Errorf("end trial %s: %w", w.ID, err)
			}
			ended, err := q.TrialWritten(ctx, []byte(w.ID))
			if err != nil {
				return fmt.Errorf("read trial %s: %w", w.ID, err)
			}
			numbers = append(numbers, int64(ended.Number))
		}
		return settingsChanged(ctx, q)
	})
	return numbers, err
}
