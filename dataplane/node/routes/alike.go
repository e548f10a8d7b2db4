package routes

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// ErrPatternsAlike is a pattern with several '*' that nodes would leave out, since window.PatternsAlikeMax others of
// the namespace begin alike.
var ErrPatternsAlike = fmt.Errorf("begins like others with more than one '*' (at most %d begin alike)",
	window.PatternsAlikeMax)

// alikeRowsMax bounds the patterns that a search for room reads.
const alikeRowsMax = 100_000

// overridesAlike is the query OverridesAlike of queries/controlplane.
const overridesAlike = "SELECT pattern FROM ratelimit_overrides " +
	"WHERE workspace_id = ? AND namespace = ? AND pattern LIKE '%*%*%' " +
	"AND LEFT(SUBSTRING_INDEX(pattern, '*', 1), LENGTH(?)) = LEFT(?, LENGTH(SUBSTRING_INDEX(pattern, '*', 1))) " +
	"LIMIT ? FOR UPDATE"

// roomFor rejects a new pattern that nodes would leave out. It runs before and after the insert. The first query locks
// the patterns that begin alike, so that concurrent inserts take turns. The second query counts patterns that others
// inserted while the first query waited.
func roomFor(ctx context.Context, tx *sql.Tx, workspace, namespace, pattern string) error {
	if strings.Count(pattern, "*") < 2 {
		return nil
	}
	head, _, _ := strings.Cut(pattern, "*")
	rows, err := tx.QueryContext(ctx, overridesAlike, []byte(workspace), []byte(namespace), []byte(head), []byte(head),
		alikeRowsMax+1)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has what matters
	var others []string
	for rows.Next() {
		var other []byte
		if err := rows.Scan(&other); err != nil {
			return err
		}
		others = append(others, string(other))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(others) > alikeRowsMax || window.PatternsAlike(pattern, others) >= window.PatternsAlikeMax {
		return ErrPatternsAlike
	}
	return nil
}

// roomForLocked is roomFor in memory, before the row is there.
func (m *Memory) roomForLocked(workspace, namespace, pattern string) error {
	if strings.Count(pattern, "*") < 2 {
		return nil
	}
	var others []string
	for i, _ := m.findLocked(workspace, namespace, ""); i < len(m.rows) && m.rows[i].Workspace == workspace &&
		m.rows[i].Namespace == namespace; i++ {
		others = append(others, m.rows[i].Pattern)
	}
	if window.PatternsAlike(pattern, others) >= window.PatternsAlikeMax {
		return ErrPatternsAlike
	}
	return nil
}
