package check

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const runbooks = "https://github.com/weirhq/weir/blob/main/deploy/prometheus/runbooks/"

// ruleFile is the part of Prometheus' rule files that is used here.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	for _, path := range files(t, "deploy/prometheus/rules/*.yml") {
		var file ruleFile
		if err := yaml.UnmarshalStrict(read(t, path), &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, group := range file.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all
}

func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("PROMTOOL_BIN"), "promtool"))
	if err != nil {
		t.Fatalf("%v (run `make setup`)", err)
	}
	return path
}

// Each alert fires in its state, and is silent in a healthy fleet. Prometheus evaluates deploy/prometheus/tests.
func TestAlerts(t *testing.T) {
	promtool := promtool(t)
	for _, args := range [][]string{
		append([]string{"check", "rules"}, files(t, "deploy/prometheus/rules/*.yml")...),
		append([]string{"test", "rules"}, files(t, "deploy/prometheus/tests/*.yml")...),
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, out)
		}
	}
}

// Each alert has both of its tests, a severity, a sentence and a runbook, and each runbook has its alert.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, path := range files(t, "deploy/prometheus/tests/*.yml") {
		var file struct {
			Tests []struct {
				Alerts []struct {
					Name     string `json:"alertname"`
					Expected []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(read(t, path), &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, test := range file.Tests {
			for _, alert := range test.Alerts {
				if len(alert.Expected) > 0 {
					fires[alert.Name] = true
				} else {
					silent[alert.Name] = true
				}
			}
		}
	}
	known := make(map[string]bool)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		known[r.Alert] = true
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a test in which it fires: %v, one in which it is silent: %v; want both", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		if s := r.Labels["severity"]; !slices.Contains([]string{"page", "ticket", "info"}, s) {
			t.Errorf("%s: severity is %q, want page, ticket or info", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["runbook_url"] != runbooks+r.Alert+".md" {
			t.Errorf("%s: annotations are %v, want a summary, and the runbook %s.md", r.Alert, r.Annotations, r.Alert)
		}
		page, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/runbooks", r.Alert+".md"))
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
			continue
		}
		if !strings.Contains(string(page), "```promql\n"+r.Expr+"\n```\n") {
			t.Errorf("%s: its runbook shows another expression than %s", r.Alert, r.Expr)
		}
	}
	for _, path := range files(t, "deploy/prometheus/runbooks/*.md") {
		if name := strings.TrimSuffix(filepath.Base(path), ".md"); !known[name] {
			t.Errorf("%s: there is no such alert", path)
		}
	}
}

// Every runbook has the same sections, so a reader at night finds the commands and the fix in the same place.
func TestEveryRunbookHasTheSameSections(t *testing.T) {
	const want = "## Meaning, ## Effect on callers, ## Check, ## Fix"
	for _, path := range files(t, "deploy/prometheus/runbooks/*.md") {
		var sections []string
		for line := range strings.Lines(string(read(t, path))) {
			if strings.HasPrefix(line, "## ") {
				sections = append(sections, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(sections, ", "); got != want {
			t.Errorf("%s: sections %s, want %s", path, got, want)
		}
	}
}
