package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

var _ limits.KeyStore = (*Store)(nil)

func (s settings) KeyRows(ctx context.Context, workspace, namespace, identifier string,
	rows int) (now time.Time, found []limits.KeyRow, err error) {
	if now, err = s.Now(ctx); err != nil {
		return now, nil, err
	}
	all, err := s.queries.WindowCountsOfKey(ctx, controlplanedb.WindowCountsOfKeyParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Identifier: []byte(identifier), NowMs: unixMs(now),
		Limit: int32(rows),
	})
	if err != nil {
		return now, nil, fmt.Errorf("read counts: %w", explain(err))
	}
	for _, r := range all {
		if r.Count > window.LimitMax { // no relay has written it
			continue
		}
		found = append(found, limits.KeyRow{
			StoredDuration: int64(r.DurationMs), Sequence: r.Sequence,
			KeyPart: limits.KeyPart{Region: string(r.Region), Count: int64(r.Count),
				UpdatedAt: time.UnixMilli(int64(r.UpdatedAt))},
		})
	}
	return now, found, nil
}

func (s settings) KeyReset(ctx context.Context, workspace, namespace, identifier string) (*limits.Reset, error) {
	rows, err := s.queries.ResetOfKey(ctx, controlplanedb.ResetOfKeyParams{WorkspaceID: []byte(workspace),
		Namespace: []byte(namespace), Identifier: []byte(identifier)})
	if err != nil {
		return nil, fmt.Errorf("read the reset: %w", explain(err))
	}
	for _, r := range rows {
		return new(resetOf([]byte(workspace), []byte(namespace), []byte(identifier), r.Generation, r.SetAt, r.ExpiresAt)), nil
	}
	return nil, nil
}
