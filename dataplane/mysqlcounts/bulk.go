package mysqlcounts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/window"
)

// The multi-row upsert is made of the text of the one-row statement in queries/dataplane, which the generator has
// checked against the tables.

// multiRow is a one-row INSERT in three parts: the text up to VALUES, the tuple, and the rest.
type multiRow struct{ head, tuple, tail string }

var upsertRow = mustSplit(dataplanedb.WindowCountUpsert)

// statement returns the INSERT with the given number of rows, at least 1.
func (m multiRow) statement(rows int) string {
	return m.head + strings.Join(slices.Repeat([]string{m.tuple}, rows), ",") + m.tail
}

// upsertColumns is the number of arguments of a row, in the order of dataplanedb.WindowCountUpsertParams. A prepared
// statement takes at most 65,535 arguments.
const upsertColumns = 9

// upsertArgs passes names as []byte. The driver then writes them as binary literals, which no charset conversion can
// refuse or change.
func upsertArgs(region string, counts []store.Count) []any {
	args := make([]any, 0, upsertColumns*len(counts))
	regionBytes := []byte(region)
	for _, n := range counts {
		args = append(args,
			[]byte(n.Cell.Workspace), []byte(n.Cell.Namespace), []byte(n.Cell.Identifier),
			window.StoredDuration(&n.Cell.Key), n.Cell.Sequence, regionBytes,
			n.Count, n.Cell.ExpiresAtMs(), window.ExpiryClass(&n.Cell.Key))
	}
	return args
}

// mustSplit splits a statement. The tuple must be all of the text between the lines that begin with VALUES and with ON
// DUPLICATE KEY UPDATE.
func mustSplit(oneRow string) multiRow {
	head, rest, ok := strings.Cut(oneRow, valuesLine)
	tuple, tail, ok2 := strings.Cut(rest, updateLine)
	if !ok || !ok2 {
		panic(fmt.Sprintf("mysqlcounts: no VALUES tuple in %q", oneRow)) // oneRow is a constant, so a test would fail
	}
	return multiRow{head + valuesLine, tuple, updateLine + tail}
}

const (
	valuesLine = "\nVALUES "
	updateLine = "\nON DUPLICATE KEY UPDATE"
)
