package mysqlcounts

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/window"
)

// The multi-row upsert, made of the very text of the one-row statement in
// queries/dataplane, which the generator has checked against the tables.

// multiRow is a one-row INSERT taken apart: head, one VALUES tuple, tail.
type multiRow struct{ head, tuple, tail string }

var upsertRow = mustSplit(dataplanedb.WindowCountUpsert)

// statement takes rows rows, at least one.
func (m multiRow) statement(rows int) string {
	var b strings.Builder
	b.Grow(len(m.head) + len(m.tail) + rows*(len(m.tuple)+1))
	b.WriteString(m.head)
	b.WriteString(m.tuple)
	for range rows - 1 {
		b.WriteByte(',')
		b.WriteString(m.tuple)
	}
	b.WriteString(m.tail)
	return b.String()
}

// upsertColumns is how many arguments a row takes, in the order of
// dataplanedb.WindowCountUpsertParams. A prepared statement takes 65,535.
const upsertColumns = 9

// upsertArgs passes names as []byte: the driver then writes them as binary literals,
// which no charset on the way can refuse or change.
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

func mustSplit(oneRow string) multiRow {
	m, err := split(oneRow)
	if err != nil {
		panic(err) // of a constant: a test would have seen it
	}
	return m
}

// split finds the tuple that follows the first VALUES outside comments, quotes and
// parentheses. The tuple may hold calls, which have parentheses of their own.
func split(oneRow string) (multiRow, error) {
	var word string // the last one
	from := -1      // of the tuple
	depth := 0
	for i := 0; i < len(oneRow); {
		n := max(1, opaque(oneRow[i:]))
		switch c := oneRow[i]; {
		case n > 1: // a comment or a quoted text
		case isWordByte(c):
			n = wordLen(oneRow[i:])
			word = oneRow[i : i+n]
		case c == '(':
			if from < 0 && depth == 0 && word == "VALUES" {
				from = i
			}
			depth++
		case c == ')':
			depth--
			if from >= 0 && depth == 0 {
				return multiRow{oneRow[:from], oneRow[from : i+1], oneRow[i+1:]}, nil
			}
		}
		i += n
	}
	return multiRow{}, fmt.Errorf("no complete VALUES tuple in %q", oneRow)
}

func wordLen(s string) int {
	for i := range len(s) {
		if !isWordByte(s[i]) {
			return i
		}
	}
	return len(s)
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// opaque is the length of the comment or the quoted text that s begins with, 0 if it
// begins with neither.
func opaque(s string) int {
	until := func(skip int, end string) int {
		if n := strings.Index(s[skip:], end); n >= 0 {
			return skip + n + len(end)
		}
		return len(s)
	}
	switch {
	case strings.HasPrefix(s, "-- "):
		return until(0, "\n")
	case strings.HasPrefix(s, "/*"):
		return until(2, "*/")
	case s[0] == '\'' || s[0] == '"' || s[0] == '`':
		return until(1, s[:1])
	}
	return 0
}
