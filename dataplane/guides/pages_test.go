package guides

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/nodecmd"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableOf returns the cells of the rows below a heading, without the header.
func tableOf(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	_, section, ok := strings.Cut(page, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), " | ") {
			cells = append(cells, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		rows = append(rows, cells)
	}
	if len(rows) < 2 {
		t.Fatalf("no table below %q", heading)
	}
	return rows[1:]
}

// The table of tuning has each field, with its default and its bounds.
func TestTheTuningPageHasEachField(t *testing.T) {
	stored, err := json.Marshal(tuning.Default())
	if err != nil {
		t.Fatal(err)
	}
	defaults := make(map[string]json.Number)
	numbers := json.NewDecoder(bytes.NewReader(stored))
	numbers.UseNumber()
	if err := numbers.Decode(&defaults); err != nil {
		t.Fatal(err)
	}
	rows := tableOf(t, read(t, "tuning.md"), "## Tuning")
	if len(rows) != len(defaults) {
		t.Errorf("%d rows, want one for each of %d fields", len(rows), len(defaults))
	}
	for _, row := range rows {
		field := row[0]
		if string(defaults[field]) != row[1] {
			t.Errorf("%s: the default is %q on the page, and %q", field, row[1], defaults[field])
			continue
		}
		least, most, _ := strings.Cut(row[2], " to ")
		for value, valid := range map[string]bool{least: true, most: true, next(t, least, -1): false, next(t, most, 1): false} {
			if err := with(t, field, value).Validate(); (err == nil) != valid {
				t.Errorf("%s = %s: %v, want valid: %v", field, value, err, valid)
			}
		}
	}
}

// next returns a number a little below or above another.
func next(t *testing.T, number string, by float64) string {
	t.Helper()
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatFloat(f+by, 'f', -1, 64)
}

// with returns the default tuning with one field changed.
func with(t *testing.T, field, value string) tuning.Tuning {
	t.Helper()
	changed := tuning.Default()
	if err := json.Unmarshal([]byte(`{"`+field+`":`+value+`}`), &changed); err != nil {
		t.Fatal(err)
	}
	return changed
}

// A node's own settings are options of weir-node, with these defaults, and fields of dataplane.Config.
func TestANodesOwnSettingsExist(t *testing.T) {
	var printed, problems bytes.Buffer
	if code := nodecmd.Main(t.Context(), []string{"--print-config"}, &printed, &problems); code != 0 {
		t.Fatalf("exit %d: %s", code, &problems)
	}
	for _, row := range tableOf(t, read(t, "tuning.md"), "## A node's own") {
		option, field := row[0], row[1]
		if option != "–" && !strings.Contains(printed.String(), "\n"+option+": "+row[2]+"\n") {
			t.Errorf("weir-node has no option %s with the default %s", option, row[2])
		}
		in := reflect.TypeFor[dataplane.Config]()
		for name := range strings.SplitSeq(field, ".") {
			found, ok := in.FieldByName(name)
			if field != "–" && !ok {
				t.Errorf("dataplane.Config has no field %s", field)
				break
			}
			in = found.Type
		}
	}
}

// Each metric that a page names is one that a program publishes, with the labels and values that the page names.
func TestPagesNameMetricsThatExist(t *testing.T) {
	reference := read(t, "../../shared/gen/reference/metrics.md")
	rows := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` (.*)$").FindAllStringSubmatch(reference, -1) {
		rows[m[1]] = m[2]
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		for _, m := range regexp.MustCompile(`\b(weir_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(read(t, page), -1) {
			named++
			row, ok := rows[m[1]]
			if !ok {
				t.Errorf("%s names %s, which no program publishes", page, m[1])
			}
			for label := range strings.SplitSeq(m[2], ",") {
				name, value, _ := strings.Cut(label, "=")
				value = strings.Trim(value, `"`)
				values, listed := "", false
				if _, rest, has := strings.Cut(row, "`"+name+"`"); m[2] != "" && !has {
					t.Errorf("%s: %s has no label %s", page, m[1], name)
				} else if values, listed = strings.CutPrefix(rest, " ("); listed {
					values, _, _ = strings.Cut(values, ")")
				}
				if listed && value != "" && !slices.Contains(strings.Split(values, ", "), value) {
					t.Errorf("%s: %s is never %s=%q; it is one of %s", page, m[1], name, value, values)
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d metrics are named", named)
	}
}

// Each figure of another limiter is a figure of the benchmarks' page.
func TestComparedFiguresAreThoseOfTheBenchmarks(t *testing.T) {
	benchmarks, figures := read(t, "../benchmarks/README.md"), 0
	for _, row := range tableOf(t, read(t, "compare.md"), "## Figures") {
		for _, cell := range row[1:] {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				continue // the head of the second table
			}
			figures++
			if !regexp.MustCompile(`[^0-9.]` + regexp.QuoteMeta(cell) + `[^0-9.]`).MatchString(benchmarks) {
				t.Errorf("%s: the benchmarks have no %s", row[0], cell)
			}
		}
	}
	if figures < 30 {
		t.Errorf("only %d figures", figures)
	}
}

// The interfaces to write for another database have the methods that the page lists.
func TestTheInterfacesOfDatabasesHaveTheirMethods(t *testing.T) {
	for _, row := range tableOf(t, read(t, "databases.md"), "## PostgreSQL") {
		in := map[string]reflect.Type{
			"store.CountStore": reflect.TypeFor[store.CountStore](),
			"store.Feed":       reflect.TypeFor[store.Feed](),
			"store.Settings":   reflect.TypeFor[store.Settings](),
		}[row[0]]
		if in == nil {
			t.Errorf("%s is no interface of package store", row[0])
			continue
		}
		listed := regexp.MustCompile(`\w+`).FindAllString(row[1], -1)
		for _, method := range listed {
			if _, ok := in.MethodByName(method); !ok {
				t.Errorf("%s has no method %s", row[0], method)
			}
		}
		if len(listed) != in.NumMethod() {
			t.Errorf("%s: the page lists %d methods, the interface has %d", row[0], len(listed), in.NumMethod())
		}
	}
}

// The figures of the ways to run a limiter are those of the pages that measure them.
func TestTheCostsOfADecisionAreThoseOfTheBenchmarks(t *testing.T) {
	measured, figures := read(t, "../benchmarks/README.md")+read(t, "../../deploy/COSTS.md"), 0
	for _, row := range tableOf(t, read(t, "choosing.md"), "## Cost of a decision") {
		for _, figure := range regexp.MustCompile(`\d+\.\d+|\d+ ns`).FindAllString(row[1], -1) {
			figures++
			if !strings.Contains(measured, " "+figure) {
				t.Errorf("%s: no page has measured %s", row[0], figure)
			}
		}
	}
	if figures < 5 {
		t.Errorf("only %d figures", figures)
	}
}
