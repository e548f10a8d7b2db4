package store

import (
	"fmt"
	"strings"
)

// bulkStatement is a one-row INSERT taken apart, to be put together again with any
// number of rows: sqlc checks the one-row form against the schema, and the many-row
// form is made of that very text.
type bulkStatement struct{ head, tuple, tail string }

// newBulkStatement takes the VALUES tuple out of a one-row INSERT. It panics on a
// statement without one: the text is the program's own.
func newBulkStatement(oneRow string) bulkStatement {
	const values = "VALUES "
	start := strings.Index(oneRow, values+"(")
	if start < 0 {
		panic("store: no VALUES tuple in " + oneRow)
	}
	start += len(values)
	length := strings.IndexByte(oneRow[start:], ')') + 1
	return bulkStatement{oneRow[:start], oneRow[start : start+length], oneRow[start+length:]}
}

// text is the statement for rows rows, at least 1.
func (b bulkStatement) text(rows int) string {
	return b.head + strings.Repeat(b.tuple+", ", rows-1) + b.tuple + b.tail
}

// chunked calls each with slices of at most most items, in order, until one fails.
func chunked[T any](items []T, most int, each func([]T) error) error {
	for done := 0; done < len(items); {
		chunk := items[done:min(done+most, len(items))]
		if err := each(chunk); err != nil {
			return fmt.Errorf("rows %d to %d of %d: %w", done, done+len(chunk)-1, len(items), err)
		}
		done += len(chunk)
	}
	return nil
}
