package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.RolloutStore = (*Store)(nil)

const duplicateKey = 1062

// NewestTunings are the newest version of each region that has one, and of the fleet.
func (s *Store) NewestTunings(ctx context.Context) ([]controlplane.RegionTuning, error) {
	rows, err := s.queries.TuningNewest(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tunings: %w", explain(err))
	}
	var newest []controlplane.RegionTuning
	for _, r := range rows {
		newest = append(newest, controlplane.RegionTuning{Region: string(r.Region), Version: int64(r.Version), Document: r.Document})
	}
	return newest, nil
}

// WriteTunings writes versions in one transaction, in order, and answers their numbers.
// A write whose ID is there already is left out and its number answered: the unique key
// decides, so two attempts at the same moment are one write too.
func (s *Store) WriteTunings(ctx context.Context, writes []controlplane.TuningWrite) (versions []int64, err error) {
	err = s.inTransaction(ctx, func(q *queries) error {
		for _, w := range writes {
			version, err := writeTuning(ctx, q, w)
			if err != nil {
				return fmt.Errorf("write tuning %s: %w", w.ID, err)
			}
			versions = append(versions, version)
		}
		return nil
	})
	return versions, err
}

func writeTuning(ctx context.Context, q *queries, w controlplane.TuningWrite) (int64, error) {
	id := sql.NullString{String: w.ID, Valid: true}
	version, err := q.TuningWrite(ctx, controlplanedb.TuningWriteParams{
		Region: []byte(w.Region), Document: w.Document, Actor: w.Actor, Reason: w.Reason, WriteID: id,
	})
	var answered *mysql.MySQLError
	if errors.As(err, &answered) && answered.Number == duplicateKey {
		before, err := q.TuningWritten(ctx, id)
		return int64(before), err
	}
	return version, err
}

// inTransaction runs statements as one. Each sees what others have committed before it.
func (s *Store) inTransaction(ctx context.Context, run func(*queries) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain(err)
	}
	if err := run(s.queries.WithTx(tx)); err != nil {
		_ = tx.Rollback() // the statement's own error says more
		if errors.Is(err, controlplane.ErrConflict) || errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrInvalid) {
			return err // ours, and no word about MySQL
		}
		return explain(err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", explain(err))
	}
	return nil
}
