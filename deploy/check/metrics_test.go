package check

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/weirhq/weir/shared/servers"
)

// Every expression of every rule and dashboard is PromQL about metrics that processes publish, with labels and values
// that these metrics have. Every metric in a document exists.
func TestMetricsExist(t *testing.T) { servers.TurnSQL(t, testMetricsExist) }

func testMetricsExist(t *testing.T) {
	have := scrapeFleet(t)
	have["up"] = map[string]map[string]bool{"job": {}, "instance": {}}

	for _, r := range rules(t) { // recording rules first: the others use them
		if r.Record != "" {
			expr := have.check(t, r.Record, r.Expr)
			have[r.Record] = labelsOf(expr)
		}
	}
	for _, r := range rules(t) {
		if r.Alert != "" {
			have.check(t, r.Alert, r.Expr)
		}
	}
	for _, path := range files(t, "deploy/grafana/*.json") {
		for where, expr := range dashboard(t, path) {
			have.check(t, filepath.Base(path)+": "+where, expr)
		}
	}
	for _, path := range documents(t) {
		have.checkDocument(t, path)
	}
	have.checkReference(t)
}

// checkReference compares the list of all metrics with the metrics that a fleet publishes.
func (p published) checkReference(t *testing.T) {
	t.Helper()
	reference := string(read(t, filepath.Join(root, "shared/gen/reference/metrics.md")))
	for name, labels := range p {
		if strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") ||
			!strings.HasPrefix(name, "weir_") || strings.Contains(name, ":") {
			continue
		}
		_, row, listed := strings.Cut(reference, "\n| `"+name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		if !listed {
			t.Errorf("shared/gen/reference/metrics.md lacks %s: add its collector to deploy/reference", name)
		}
		for label := range labels {
			if listed && label != "job" && label != "instance" && !strings.Contains(row, "`"+label+"`") {
				t.Errorf("shared/gen/reference/metrics.md lacks the label %s of %s", label, name)
			}
		}
	}
}

// jobs are the names of jobs that rules and dashboards may rely on. Every way to deploy must use these names.
var jobs = []string{"weir-node", "weir-control"}

// restateJob is the job of installations where Prometheus reaches Restate, which has no
// authentication. Compose and the chart keep its port private.
const restateJob = "weir-restate"

func (p published) check(t *testing.T, where, text string) parser.Expr {
	t.Helper()
	text = strings.NewReplacer("$__rate_interval", "5m", "$region", ".*").Replace(text)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, text)
		return nil
	}
	used := make(map[string]bool) // labels of everything that is selected
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			if err := p.checkSelector(s); err != nil {
				t.Errorf("%s: %v in %s", where, err, text)
			}
			for label := range p[s.Name] {
				used[label] = true
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var names []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, name := range names {
			if !used[name] {
				t.Errorf("%s: no metric of it has the label %s: %s", where, name, text)
			}
		}
		return nil
	})
	return expr
}

func (p published) checkSelector(s *parser.VectorSelector) error {
	known, ok := p[s.Name]
	if !ok {
		return fmt.Errorf("no process publishes %q", s.Name)
	}
	for _, m := range s.LabelMatchers {
		values, ok := known[m.Name]
		switch {
		case m.Name == model.MetricNameLabel:
		case !ok:
			return fmt.Errorf("%s has no label %s", s.Name, m.Name)
		case m.Name == "job":
			if !slices.ContainsFunc(append(slices.Clone(jobs), restateJob), m.Matches) {
				return fmt.Errorf("no job is named by %s", m)
			}
		case !slices.ContainsFunc(keys(values), m.Matches):
			return fmt.Errorf("%s is never %s; it is one of %q", s.Name, m, keys(values))
		}
	}
	return nil
}

func keys(set map[string]bool) (list []string) {
	for key := range set {
		list = append(list, key)
	}
	slices.Sort(list)
	return list
}

// labelsOf returns the labels of a recorded series, from its outermost aggregation.
func labelsOf(expr parser.Expr) map[string]map[string]bool {
	found := make(map[string]map[string]bool)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok && len(found) == 0 {
			for _, label := range a.Grouping {
				if label != "le" {
					found[label] = map[string]bool{"": true}
				}
			}
		}
		return nil
	})
	return found
}

// dashboard returns the expressions of a dashboard, by their place.
func dashboard(t *testing.T, path string) map[string]string {
	t.Helper()
	var board struct {
		UID, Title  string
		Annotations struct {
			List []struct{ Name, Expr string }
		}
		Templating struct {
			List []struct{ Name, Type string }
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(read(t, path), &board); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if board.UID+".json" != filepath.Base(path) {
		t.Errorf("%s: its uid is %q", path, board.UID)
	}
	all := make(map[string]string)
	for _, a := range board.Annotations.List {
		all["annotation "+a.Name] = a.Expr
	}
	ids := make(map[int]bool)
	for _, panel := range board.Panels {
		if ids[panel.ID] || len(panel.Targets) == 0 {
			t.Errorf("%s: panel %s: its id %d is not its own, or it shows nothing", path, panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			all[panel.Title+" "+target.RefID] = target.Expr
		}
	}
	return all
}

// notMetrics are other names with the same beginning as metrics.
var notMetrics = map[string]string{
	"weir_control": "a user of MySQL",
	"weir_node":    "a user of MySQL",
	"weir_migrate": "a user of MySQL",
	"weir_":        "the prefix itself, and how tokens begin",
}

// mention is a metric's name in prose: with an alternative in braces, or a star at its
// end, and perhaps with labels in braces.
var mention = regexp.MustCompile(`\bweir_[a-z0-9_]*(?:\{[a-z0-9_, ]+\}[a-z0-9_]*)?\*?(?:\{[^}\n]*\})?`)

func (p published) checkDocument(t *testing.T, path string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, path))) {
		_, greps := strings.CutPrefix(line, "    ")
		p.checkLine(t, path, line, greps && strings.Contains(line, "| grep "))
	}
}

// checkLine treats the words that a line greps for as beginnings of names.
func (p published) checkLine(t *testing.T, path, line string, greps bool) {
	t.Helper()
	for _, text := range mention.FindAllString(line, -1) {
		for _, name := range expand(text) {
			name, wanted, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if notMetrics[name] != "" {
				continue
			}
			known := p[name]
			if prefix, star := strings.CutSuffix(name, "*"); star || greps {
				for other, labels := range p {
					if strings.HasPrefix(other, prefix) {
						known = labels
					}
				}
			}
			if known == nil {
				t.Errorf("%s: no process publishes %s", path, name)
				continue
			}
			for _, label := range regexp.MustCompile(`(?:^|,)\s*([a-z_]+)`).FindAllStringSubmatch(wanted, -1) {
				if known[label[1]] == nil {
					t.Errorf("%s: %s has no label %s", path, name, label[1])
				}
			}
			for _, m := range regexp.MustCompile(`([a-z_]+)="([^"{}<>…]+)"`).FindAllStringSubmatch(wanted, -1) {
				if values := known[m[1]]; isRunbook(path) && values != nil && !values[m[2]] {
					t.Errorf("%s: %s is never %s; it is one of %q", path, name, m[0], keys(values))
				}
			}
		}
	}
}

// isRunbook reports whether a page is read while something fails, so that each value of a label on it must be right.
// Other pages also name values that only other programs, or other settings, publish.
func isRunbook(path string) bool { return strings.Contains(strings.ToLower(path), "runbook") }

// expand writes the alternatives of a_{b,c}_d out. Braces after a whole name hold labels.
func expand(text string) []string {
	before, rest, braces := strings.Cut(text, "{")
	if !braces || !strings.HasSuffix(before, "_") {
		return []string{text}
	}
	inside, after, _ := strings.Cut(rest, "}")
	var all []string
	for word := range strings.SplitSeq(inside, ",") {
		all = append(all, before+strings.TrimSpace(word)+after)
	}
	return all
}

// documents returns all pages that git tracks, or will track.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		paths = append(paths, filepath.Join(root, strings.TrimSpace(line)))
	}
	if len(paths) < 10 {
		t.Fatalf("only %d documents", len(paths))
	}
	return paths
}
