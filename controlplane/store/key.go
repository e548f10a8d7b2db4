package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

var _ limits.KeysStore = (*Store)(nil)

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
		if r.Count > window.LimitMax { // no relay can have written it
			continue
		}
		found = append(found, keyRowOf(r))
	}
	return now, found, nil
}

func keyRowOf(r controlplanedb.WindowCountsOfKeyRow) limits.KeyRow {
	return limits.KeyRow{
		StoredDuration: int64(r.DurationMs), Sequence: r.Sequence,
		KeyPart: limits.KeyPart{Region: string(r.Region), Count: int64(r.Count),
			UpdatedAt: time.UnixMilli(int64(r.UpdatedAt))},
	}
}

func (s settings) KeyRowsOf(ctx context.Context, workspace, namespace, begins, ends string,
	rows int) (now time.Time, found []limits.KeyRowOf, err error) {
	if now, err = s.Now(ctx); err != nil {
		return now, nil, err
	}
	all, err := s.queries.WindowCountsOfNamespace(ctx, controlplanedb.WindowCountsOfNamespaceParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Begins: []byte(begins), Ends: []byte(ends),
		NowMs: unixMs(now), Limit: int32(rows),
	})
	if err != nil {
		return now, nil, fmt.Errorf("read counts: %w", explain(err))
	}
	for _, r := range all {
		if r.Count > window.LimitMax { // no relay can have written it; the row still takes part in paging
			r.Count = 0
		}
		row := limits.KeyRowOf{Identifier: string(r.Identifier), KeyRow: keyRowOf(controlplanedb.WindowCountsOfKeyRow{
			DurationMs: r.DurationMs, Sequence: r.Sequence, Region: r.Region, Count: r.Count, UpdatedAt: r.UpdatedAt})}
		found = append(found, row)
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

func (s settings) ResetsOf(ctx context.Context, workspace, namespace string,
	identifiers []string) (map[string]*limits.Reset, error) {
	found := make(map[string]*limits.Reset)
	for some := range slices.Chunk(identifiers, identifiersMax) {
		rows, err := s.queries.ResetsOf(ctx, controlplanedb.ResetsOfParams{WorkspaceID: []byte(workspace),
			Namespace: []byte(namespace), Identifiers: allBytes(some)})
		if err != nil {
			return nil, fmt.Errorf("read the resets: %w", explain(err))
		}
		for _, r := range rows {
			found[string(r.Identifier)] = new(resetOf([]byte(workspace), []byte(namespace), r.Identifier, r.Generation,
				r.SetAt, r.ExpiresAt))
		}
	}
	return found, nil
}
