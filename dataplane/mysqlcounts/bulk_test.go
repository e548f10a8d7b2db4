package mysqlcounts

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// For a single row, the statement has the text of the checked one-row statement.
func TestUpsertOfOneRowIsTheCheckedStatement(t *testing.T) {
	if got, want := upsertRow.statement(1), dataplanedb.WindowCountUpsert; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUpsertRepeatsTheTuple(t *testing.T) {
	for _, rows := range []int{1, 2, 3, store.PublishRowsMax} {
		got := upsertRow.statement(rows)
		if n := strings.Count(got, upsertRow.tuple); n != rows {
			t.Errorf("%d rows: %d tuples", rows, n)
		}
		if n := strings.Count(got, "?"); n != rows*upsertColumns || n > 65535 {
			t.Errorf("%d rows: %d placeholders, want %d", rows, n, rows*upsertColumns)
		}
		if tail := got[len(got)-len(upsertRow.tail):]; tail != upsertRow.tail || !strings.HasPrefix(tail, "\nON DUPLICATE KEY UPDATE") {
			t.Errorf("%d rows: ends with %q", rows, tail)
		}
	}
	if want := reflect.TypeFor[dataplanedb.WindowCountUpsertParams]().NumField(); upsertColumns != want {
		t.Errorf("%d arguments a row, the checked statement takes %d", upsertColumns, want)
	}
}

// Names are passed as []byte, so that the driver writes them as binary literals. As strings they would pass here, but
// MySQL would refuse names that are not UTF-8.
func TestUpsertArgs(t *testing.T) {
	x := cell("x")
	row := []any{[]byte("w"), []byte("n"), []byte("x"), x.DurationMs(), x.Sequence, []byte("eu"), int64(5), x.ExpiresAtMs(), int64(0)}
	if got := upsertArgs("eu", []store.Count{{Cell: x, Count: 5}}); !reflect.DeepEqual(got, row) {
		t.Errorf("got %#v, want %#v", got, row)
	}
	if n := len(upsertArgs("eu", countsOf(1, cells(7)...))); n != 7*upsertColumns {
		t.Errorf("%d arguments for 7 rows", n)
	}
}

// The tuple and the rest of the statement may contain calls, line breaks and the word VALUES.
func TestSplit(t *testing.T) {
	for name, want := range map[string]multiRow{
		"plain":         {"INSERT INTO t (a, b)\nVALUES ", "(?, ?)", "\nON DUPLICATE KEY UPDATE a = 1"},
		"calls":         {"INSERT INTO t (a)\nVALUES ", "(f(g(?), (1 + ?)) * h())", "\nON DUPLICATE KEY UPDATE\n a = VALUES(a)"},
		"a line break":  {"INSERT INTO t (a)\nVALUES ", "(?,\n  ?)", "\nON DUPLICATE KEY UPDATE a = 1\n"},
		"quotes":        {"INSERT INTO t (a)\nVALUES ", `(')', "(", ?)`, "\nON DUPLICATE KEY UPDATE a = ')'"},
		"quoted column": {"INSERT INTO t (`VALUES`)\nVALUES ", "(?)", "\nON DUPLICATE KEY UPDATE a = 1"},
		"a comment":     {"-- VALUES (1)\nINSERT INTO t (a)\nVALUES ", "(?)", "\nON DUPLICATE KEY UPDATE a = 1"},
	} {
		if got := mustSplit(want.head + want.tuple + want.tail); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
	for _, broken := range []string{
		"", "SELECT 1", "INSERT INTO t (a) SELECT ?", "INSERT INTO t (a)\nVALUES (?)", "-- VALUES (?)",
		"UPDATE t SET a = IF(VALUES(a) > 1, 1, 2)", "INSERT INTO t (a) SELECT ?\nON DUPLICATE KEY UPDATE a = 1",
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is split", broken)
				}
			}()
			mustSplit(broken)
		}()
	}
}
