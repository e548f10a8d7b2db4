package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.PromiseStore = (*Store)(nil)

// KeepPromise stores a promise. That of a rollout that has one already stays as it is.
func (s *Store) KeepPromise(ctx context.Context, p controlplane.Promise) error {
	figures, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("keep the promise of rollout %s: %w", p.Rollout, err)
	}
	err = s.queries.PromiseKept(ctx, controlplanedb.PromiseKeptParams{ID: []byte(p.Rollout),
		EndedAt: uint64(max(0, p.EndedMs)), Figures: string(figures)})
	var answered *mysql.MySQLError
	if errors.As(err, &answered) && answered.Number == duplicateKey {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep the promise of rollout %s: %w", p.Rollout, explain(err))
	}
	return nil
}

// Promises are those of the rollouts that ended last, newest first. One that cannot be read is left out.
func (s *Store) Promises(ctx context.Context, limit int) ([]controlplane.Promise, error) {
	rows, err := s.queries.PromisesKept(ctx, int32(limit)) //nolint:gosec // a constant
	if err != nil {
		return nil, fmt.Errorf("read promises: %w", explain(err))
	}
	var kept []controlplane.Promise
	for _, r := range rows {
		p := controlplane.Promise{Rollout: string(r.ID), EndedMs: int64(r.EndedAt)} //nolint:gosec // ms since 1970
		if json.Unmarshal([]byte(r.Figures), &p) == nil {
			kept = append(kept, p)
		}
	}
	return kept, nil
}
