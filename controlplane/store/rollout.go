package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.RolloutStore = (*Store)(nil)

const (
	duplicateKey = 1062
	deadlock     = 1213
)

// NewestTunings are the newest version of each region that has one, and of the fleet.
func (s *Store) NewestTunings(ctx context.Context) ([]controlplane.RegionTuning, error) {
	rows, err := s.queries.TuningNewest(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tunings: %w", explain(err))
	}
	var newest []controlplane.RegionTuning
	for _, r := range rows {
		newest = append(newest, controlplane.RegionTuning{Region: string(r.Region), Version: int64(r.Version),
			Document: r.Document})
	}
	return newest, nil
}

// errRefused undoes a transaction when one of its writes is refused.
var errRefused = errors.New("refused")

// WriteTunings writes versions in one transaction, in order, and answers their numbers.
// A write whose ID is there already is left out and its number answered; one of another
// document under that ID, and one over a version that is not the region's newest any more,
// undoes them all. Unique keys decide, so attempts at the same moment are one after the other.
func (s *Store) WriteTunings(ctx context.Context,
	writes []controlplane.TuningWrite) (written controlplane.TuningsWritten, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		own := map[string]int64{} // by region, of this call
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
		return settingsChanged(ctx, q)
	})
	if errors.Is(err, errRefused) {
		return controlplane.TuningsWritten{Refused: written.Refused}, nil
	}
	return written, err
}

func writeTuning(ctx context.Context, q *queries,
	w controlplane.TuningWrite) (int64, *controlplane.TuningRefusal, error) {
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
		var answered *mysql.MySQLError
		if !errors.As(err, &answered) || answered.Number != duplicateKey {
			return version, nil, err
		}
	}
	// Something else came first: another attempt at this very write, or another write.
	version, refused, err = writtenBefore(ctx, q, w)
	if !errors.Is(err, sql.ErrNoRows) {
		return version, refused, err
	}
	newest, err = q.TuningNewestOf(ctx, []byte(w.Region))
	return 0, &controlplane.TuningRefusal{ID: w.ID, Region: w.Region, Newest: newest}, err
}

func insertTuning(ctx context.Context, q *queries, w controlplane.TuningWrite) (int64, error) {
	return q.TuningWrite(ctx, controlplanedb.TuningWriteParams{
		Region: []byte(w.Region), Document: w.Document, Actor: w.Actor, Reason: w.Reason,
		WriteID: sql.NullString{String: w.ID, Valid: true}, Replaces: sql.NullInt64{Int64: w.Over, Valid: true},
	})
}

// writtenBefore is the version that a write made before; sql.ErrNoRows: it has not been made.
func writtenBefore(ctx context.Context, q *queries,
	w controlplane.TuningWrite) (int64, *controlplane.TuningRefusal, error) {
	before, err := q.TuningWritten(ctx, sql.NullString{String: w.ID, Valid: true})
	if err != nil {
		return 0, nil, err
	}
	if string(before.Region) == w.Region && before.Document == w.Document {
		return int64(before.Version), nil, nil
	}
	newest, err := q.TuningNewestOf(ctx, []byte(w.Region))
	return 0, &controlplane.TuningRefusal{ID: w.ID, Region: w.Region, Newest: newest, IDTaken: true}, err
}

// TuningsOf are the versions that a rollout wrote, oldest first, at most rows.
func (s *Store) TuningsOf(ctx context.Context, id string, rows int) ([]controlplane.RegionTuning, error) {
	found, err := s.queries.TuningsOf(ctx, controlplanedb.TuningsOfParams{
		// '0' follows '/'
		FromID: sql.NullString{String: id + "/", Valid: true}, ToID: sql.NullString{String: id + "0", Valid: true},
		Limit: int32(rows),
	})
	if err != nil {
		return nil, fmt.Errorf("read the tunings of rollout %s: %w", id, explain(err))
	}
	var wrote []controlplane.RegionTuning
	for _, r := range found {
		wrote = append(wrote, controlplane.RegionTuning{Region: string(r.Region), Version: int64(r.Version),
			Document: r.Document})
	}
	return wrote, nil
}

// TracesOfTunings are the rollouts that wrote the newest versions, the newest first; at most
// rows versions are looked at.
func (s *Store) TracesOfTunings(ctx context.Context, rows int) ([]controlplane.TuningTrace, error) {
	found, err := s.queries.TuningTraces(ctx, int32(rows))
	if err != nil {
		return nil, fmt.Errorf("read who wrote tunings: %w", explain(err))
	}
	var traces []controlplane.TuningTrace
	at := map[string]int{}
	for _, r := range found {
		id, _, _ := strings.Cut(r.WriteID.String, "/")
		i, known := at[id]
		if !known {
			i = len(traces)
			at[id], traces = i, append(traces, controlplane.TuningTrace{ID: id, Newest: int64(r.Version)})
		}
		traces[i].By, traces[i].StartedMs = controlplane.By{Actor: r.Actor, Reason: r.Reason}, int64(r.CreatedAt)
	}
	return traces, nil
}

// inTransaction runs statements as one. Each sees what others have committed before it.
func (s *Store) inTransaction(ctx context.Context, run func(*queries) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain(err)
	}
	if err := run(s.queries.WithTx(tx)); err != nil {
		_ = tx.Rollback() // the statement's own error says more
		if errors.Is(err, controlplane.ErrConflict) || errors.Is(err, controlplane.ErrNotFound) ||
			errors.Is(err, controlplane.ErrInvalid) {
			return err // ours, and no word about MySQL
		}
		return explain(err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", explain(err))
	}
	return nil
}
