package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/watch"
)

// harmless are privileges that are not worth a warning.
var harmless = []string{"USAGE"}

// grantsSQL selects the direct grants of the session's user. An empty db means all databases, and an empty tbl all
// tables of the database.
const grantsSQL = `
SELECT '' AS db, '' AS tbl, PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = @me
UNION ALL SELECT TABLE_SCHEMA, '', PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE GRANTEE = @me
UNION ALL SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES WHERE GRANTEE = @me`

// examineGrants compares the user's grants with the needed privileges. It cannot see privileges of roles, so its advice
// for a missing grant mentions roles.
func (s *Store) examineGrants(ctx context.Context, migrates bool) ([]watch.Check, error) {
	var database, user, host string
	err := s.db.QueryRowContext(ctx,
		`SELECT DATABASE(), SUBSTRING_INDEX(CURRENT_USER(), '@', 1), SUBSTRING_INDEX(CURRENT_USER(), '@', -1)`).Scan(
		&database, &user, &host)
	if err != nil {
		return nil, err
	}
	me := fmt.Sprintf("'%s'@'%s'", user, host)
	rows, err := s.db.QueryContext(ctx, strings.ReplaceAll(grantsSQL, "@me", "?"), me, me, me)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	granted := grants{}
	for rows.Next() {
		var db, table, privilege string
		if err := rows.Scan(&db, &table, &privilege); err != nil {
			return nil, err
		}
		// MySQL stores a database grant as a pattern in which _ and % can be escaped.
		if db = strings.ReplaceAll(db, `\`, ""); db == "" || db == database {
			granted.add(scope{db != "", table}, privilege)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return granted.checks(database, migrates), nil
}

// scope is all databases, this database, or a table of it.
type scope struct {
	ours  bool
	table string
}

type grants map[scope][]string

func (g grants) add(to scope, privilege string) {
	if !slices.Contains(harmless, privilege) {
		g[to] = append(g[to], strings.ToUpper(privilege))
	}
}

// checks reports missing and superfluous privileges.
func (g grants) checks(database string, migrates bool) []watch.Check {
	return []watch.Check{g.missing(database), g.excess(database, migrates)}
}

func (g grants) missing(database string) watch.Check {
	var lacks, statements []string
	for _, table := range slices.Sorted(maps.Keys(needed)) {
		var of []string
		for privilege := range strings.SplitSeq(needed[table], ",") {
			if !slices.Contains(g[scope{}], privilege) && !slices.Contains(g[scope{ours: true}], privilege) &&
				!slices.Contains(g[scope{true, table}], privilege) {
				of = append(of, privilege)
			}
		}
		if len(of) > 0 {
			lacks = append(lacks, table+" "+strings.Join(of, "+"))
			statements = append(statements, fmt.Sprintf("GRANT %s ON %s.%s TO …;", strings.Join(of, ", "), database, table))
		}
	}
	if len(lacks) == 0 {
		return watch.Pass("grants", "all needed privileges are granted")
	}
	return watch.Fail("grants", "not granted to the user itself: "+strings.Join(lacks, ", "),
		strings.Join(statements, " ")+" If a role of the user grants it, no action is needed.")
}

func (g grants) excess(database string, migrates bool) watch.Check {
	const name = "grants, too many"
	if more := g[scope{}]; len(more) > 0 {
		return watch.Warn(name, fmt.Sprintf("on every database of the server: %s", strings.Join(more, ", ")),
			fmt.Sprintf("Give weir-control a user of its own, with rights in %s alone: see schema/README.md.", database))
	}
	if migrates {
		return watch.Pass(name, "none beyond the database; it migrates, and needs them there")
	}
	var more []string
	for _, at := range slices.SortedFunc(maps.Keys(g), func(a, b scope) int { return strings.Compare(a.table, b.table) }) {
		for _, privilege := range g[at] {
			if !slices.Contains(strings.Split(needed[at.table], ","), privilege) {
				more = append(more, strings.TrimSpace(at.table+" "+privilege))
			}
		}
	}
	if len(more) > 0 {
		return watch.Warn(name, strings.Join(more, ", "),
			"Revoke all grants that are not in schema/README.md: --no-migrate needs no others.")
	}
	return watch.Pass(name, "none")
}
