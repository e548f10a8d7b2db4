package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

// alikeRowsMax bounds the patterns that one check reads.
const alikeRowsMax = 100_000

// inRoom inserts a pattern unless nodes would ignore it because too many patterns begin alike, such as "a*b*" and
// "a*c*". The first check locks these patterns, so that concurrent inserts take turns. The second check counts patterns
// that were inserted while the first check waited for the lock.
func inRoom(ctx context.Context, q *queries, workspace, namespace, pattern string, insert func() error) error {
	if err := roomFor(ctx, q, workspace, namespace, pattern); err != nil {
		return err
	}
	if err := insert(); err != nil {
		return err
	}
	return roomFor(ctx, q, workspace, namespace, pattern)
}

func roomFor(ctx context.Context, q *queries, workspace, namespace, pattern string) error {
	if strings.Count(pattern, "*") < 2 {
		return nil
	}
	rows, err := q.OverridesAlike(ctx, controlplanedb.OverridesAlikeParams{
		WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Written: []byte(pattern), Limit: alikeRowsMax + 1,
	})
	if err != nil {
		return fmt.Errorf("read the patterns that begin alike: %w", err)
	}
	if len(rows) > alikeRowsMax {
		return fmt.Errorf("%w: pattern begins like more than %d other patterns of %s/%s with more than one '*' (at most "+
			"%d are checked)",
			controlplane.ErrInvalid, alikeRowsMax, workspace, namespace, alikeRowsMax)
	}
	others := make([]string, len(rows))
	for i, r := range rows {
		others[i] = string(r)
	}
	if alike := window.PatternsAlike(pattern, others); alike >= window.PatternsAlikeMax {
		return fmt.Errorf("%w: pattern begins like %d other patterns of %s/%s with more than one '*' (at most %d begin "+
			"alike): delete one of them, or write more before the first '*'",
			controlplane.ErrInvalid, alike, workspace, namespace, window.PatternsAlikeMax)
	}
	return nil
}
