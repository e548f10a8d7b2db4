package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ rollout.Store = (*Store)(nil) // and rollout.TrialStore, see trials.go

const (
	duplicateKey = 1062
)

// NewestTunings returns the newest version of each region that has a version, and of the fleet.
func (s rollouts) NewestTunings(ctx context.Context) ([]tunings.RegionTuning, error) {
	rows, err := s.queries.TuningNewest(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tunings: %w", explain(err))
	}
	var newest []tunings.RegionTuning
	for _, r := range rows {
		newest = append(newest, tunings.RegionTuning{Region: string(r.Region), Version: int64(r.Version),
			Document: r.Document})
	}
	return newest, nil
}

// errRefused rolls back a transaction in which a write is refused.
var errRefused = errors.New("refused")

// WriteTunings writes versions in one transaction, in order, and returns their numbers. If a write with the same ID
// exists already, it is skipped and its number returned. Nothing is written if the ID was used for another document, or
// if a write replaces a version that is no longer the region's newest. Unique keys decide between concurrent attempts.
func (s rollouts) WriteTunings(ctx context.Context,
	writes []tunings.Write) (written tunings.Written, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		own := map[string]int64{} // versions of this call, by region
		for _, w := range writes {
			if version, ok := own[w.Region]; ok {
				w.Over = version
			}
			version, refused, err := writeTuning(ctx, q, w)
			if err != nil {
				return fmt.Errorf("write tuning %s: %w", w.ID, err)
			}
			if written.Refused = refused; refused != nil {
				return errRefused
			}
			own[w.Region] = version
			written.Versions = append(written.Versions, version)
		}
		return changes.Changed(ctx, q)
	})
	if errors.Is(err, errRefused) {
		return tunings.Written{Refused: written.Refused}, nil
	}
	return written, err
}

func writeTuning(ctx context.Context, q *queries,
	w tunings.Write) (int64, *tunings.Refusal, error) {
	version, refused, err := writtenBefore(ctx, q, w)
	if !errors.Is(err, sql.ErrNoRows) {
		return version, refused, err
	}
	newest, err := q.TuningNewestOf(ctx, []byte(w.Region))
	if err != nil {
		return 0, nil, err
	}
	if newest == w.Over {
		version, err := insertTuning(ctx, q, w)
		if !isNumber(err, duplicateKey) {
			return version, nil, err
		}
	}
	// Another attempt at this write came first, or another write.
	version, refused, err = writtenBefore(ctx, q, w)
	if !errors.Is(err, sql.ErrNoRows) {
		return version, refused, err
	}
	newest, err = q.TuningNewestOf(ctx, []byte(w.Region))
	return 0, &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: newest}, err
}

func insertTuning(ctx context.Context, q *queries, w tunings.Write) (int64, error) {
	return q.TuningWrite(ctx, controlplanedb.TuningWriteParams{
		Region: []byte(w.Region), Document: w.Document, Actor: w.Actor, Reason: w.Reason,
		WriteID: sql.NullString{String: w.ID, Valid: true}, Replaces: sql.NullInt64{Int64: w.Over, Valid: true},
	})
}

// writtenBefore returns the version that an earlier attempt wrote; sql.ErrNoRows: there was none.
func writtenBefore(ctx context.Context, q *queries,
	w tunings.Write) (int64, *tunings.Refusal, error) {
	before, err := q.TuningWritten(ctx, sql.NullString{String: w.ID, Valid: true})
	if err != nil {
		return 0, nil, err
	}
	if string(before.Region) == w.Region && before.Document == w.Document {
		return int64(before.Version), nil, nil
	}
	newest, err := q.TuningNewestOf(ctx, []byte(w.Region))
	return 0, &tunings.Refusal{ID: w.ID, Region: w.Region, Newest: newest, IDTaken: true}, err
}

// TuningsOf returns the versions that a rollout wrote, oldest first, at most rows.
func (s rollouts) TuningsOf(ctx context.Context, id string, rows int) ([]tunings.RegionTuning, error) {
	found, err := s.queries.TuningsOf(ctx, controlplanedb.TuningsOfParams{
		// '0' follows '/'
		FromID: sql.NullString{String: id + "/", Valid: true}, ToID: sql.NullString{String: id + "0", Valid: true},
		Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("read the tunings of rollout %s: %w", id, explain(err))
	}
	var wrote []tunings.RegionTuning
	for _, r := range found {
		wrote = append(wrote, tunings.RegionTuning{Region: string(r.Region), Version: int64(r.Version),
			Document: r.Document})
	}
	return wrote, nil
}

// SaveRollout writes the state of a rollout. A state with an equal or higher number of saves stays, and the error wraps
// ErrConflict unless it is this very state. A single statement decides, so exactly one of several concurrent attempts
// is saved.
func (s rollouts) SaveRollout(ctx context.Context, row rollout.Row) error {
	state := sql.NullString{String: row.State, Valid: true}
	err := s.queries.RolloutSave(ctx, controlplanedb.RolloutSaveParams{ID: []byte(row.ID), Saved: uint64(row.Saved),
		Phase: string(row.Phase), State: state})
	if err != nil {
		return fmt.Errorf("save rollout %s: %w", row.ID, explain(err))
	}
	saved, err := s.queries.RolloutSaved(ctx, []byte(row.ID))
	if errors.Is(err, sql.ErrNoRows) {
		saved, err = s.beginRollout(ctx, row, state)
	}
	if err != nil {
		return fmt.Errorf("save rollout %s: %w", row.ID, explain(err))
	}
	if int64(saved.Saved) != row.Saved || saved.State.String != row.State {
		return fmt.Errorf("%w: rollout %s has moved on: MySQL has save %d of it, and this is save %d: look at its status "+
			"again", controlplane.ErrConflict, row.ID, saved.Saved, row.Saved)
	}
	return nil
}

// beginRollout inserts the row of a rollout that has none, and returns the row that is stored then.
func (s rollouts) beginRollout(ctx context.Context, row rollout.Row,
	state sql.NullString) (controlplanedb.RolloutSavedRow, error) {
	err := s.queries.RolloutBegan(ctx, controlplanedb.RolloutBeganParams{
		ID: []byte(row.ID), Actor: row.By.Actor, Reason: row.By.Reason, StartedAt: uint64(row.StartedMs),
		Saved: uint64(row.Saved), Phase: string(row.Phase), State: state,
	})
	if err != nil && !isNumber(err, duplicateKey) {
		return controlplanedb.RolloutSavedRow{}, err
	}
	return s.queries.RolloutSaved(ctx, []byte(row.ID))
}

// NewerRollout returns the state of a rollout that was saved more often than saved; empty: there is none.
func (s rollouts) NewerRollout(ctx context.Context, id string, saved int64) (string, error) {
	state, err := s.queries.RolloutNewer(ctx, controlplanedb.RolloutNewerParams{ID: []byte(id), Saved: uint64(saved)})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read the state of rollout %s: %w", id, explain(err))
	}
	return state.String, nil
}

// RolloutRecorded reports whether a rollout has been recorded under an ID.
func (s rollouts) RolloutRecorded(ctx context.Context, id string) (bool, error) {
	rows, err := s.queries.RolloutHasBegun(ctx, []byte(id))
	if err != nil {
		return false, fmt.Errorf("look for rollout %s: %w", id, explain(err))
	}
	return rows > 0, nil
}

// Rollouts returns the rollouts that began last, newest first, at most rows.
func (s rollouts) Rollouts(ctx context.Context, rows int) (traces []rollout.Trace, err error) {
	found, err := s.queries.Rollouts(ctx, int32(rows))
	if err != nil {
		return nil, fmt.Errorf("read which rollouts began: %w", explain(err))
	}
	for _, r := range found {
		traces = append(traces, rollout.Trace{Saved: int64(r.Saved), Summary: rollout.Summary{
			ID: string(r.ID), By: controlplane.By{Actor: r.Actor, Reason: r.Reason}, StartedMs: int64(r.StartedAt),
			EndedMs: r.EndedMs, Phase: rollout.Phase(r.Phase), Why: r.Why, Epoch: r.Epoch,
		}})
	}
	return traces, nil
}

// inTransaction runs statements in one transaction. Each statement sees everything that was committed before it began.
func (s *statements) inTransaction(ctx context.Context, run func(*queries) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain(err)
	}
	if err := run(s.queries.WithTx(tx)); err != nil {
		_ = tx.Rollback() // the statement's own error is more useful
		if errors.Is(err, controlplane.ErrConflict) || errors.Is(err, controlplane.ErrNotFound) ||
			errors.Is(err, controlplane.ErrInvalid) {
			return err // an error of this program, so no advice about MySQL
		}
		return explain(err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", explain(err))
	}
	return nil
}
