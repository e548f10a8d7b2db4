package nodecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// export puts a document into a file, as operators do.
func export(t *testing.T, path string, d settings.Document) {
	t.Helper()
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func limited(pattern string, limit int64) settings.Document {
	return settings.Document{Overrides: []settings.Override{{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}}}
}

// A node without MySQL and Redis decides by the file from its first request on, and by what the file becomes. One that
// is at fault is logged and counted, and changes nothing.
func TestSettingsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.yaml")
	export(t, path, limited("user_*", 3))
	c := begin(t, "--settings-file="+path)
	if got := c.ask(t, "user_1", 3); !got.Allowed || got.Limit != 3 || got.Override != "user_*" {
		t.Errorf("%v", got)
	}
	export(t, path, limited("user_*", 5))
	await.True(t, "the new limit is in force", func() bool { return c.ask(t, "user_1", 0).Limit == 5 })
	if err := os.WriteFile(path, []byte("kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, limit: -1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the log names the fault", func() bool { return strings.Contains(c.stderr.String(), "line 4: overrides[0].namespace is missing") })
	if got := c.ask(t, "user_1", 0); got.Limit != 5 {
		t.Errorf("after a file at fault: %v", got)
	}
	if _, metrics := c.get(t, "/metrics"); !strings.Contains(metrics, `weir_reloads_total{outcome="error",what="settings"} 1`) ||
		!strings.Contains(metrics, `weir_reloads_total{outcome="ok",what="settings"} 1`) {
		t.Error("/metrics does not count the file at fault and the good one before it")
	}
	if code := c.end(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, &c.stderr)
	}
}

// A node does not start with a file at fault.
func TestASettingsFileAtFaultIsAnErrorAtStart(t *testing.T) {
	for content, want := range map[string]string{
		"":                                      "settings-file: settings document: it is empty",
		"kind: weir-settings\nversion: 1\nx: 1": "settings-file: settings document: line 3: x is not a known field",
	} {
		var stdout, stderr await.Log
		if code := Main(t.Context(), []string{"--listen=127.0.0.1:0", "--settings-file=" + file(t, content)}, &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, %s", code, &stderr)
		}
	}
	var stdout, stderr await.Log
	if code := Main(t.Context(), []string{"--settings-file=/no/such/file"}, &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "settings-file: stat /no/such/file") {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

// Settings have one source.
func TestSettingsFileAndAnotherSource(t *testing.T) {
	for _, other := range []string{"--redis-url=redis://127.0.0.1:6379", "--mysql-dsn=weir@tcp(127.0.0.1:3306)/weir", "--v2-overrides"} {
		_, _, err := parse("--region=eu", "--settings-file=/settings.yaml", other)
		name, _, _ := strings.Cut(other[2:], "=")
		wantError(t, err, "settings-file and "+name+" are both set: set only one")
	}
	if config, _, err := parse("--settings-file=/settings.yaml"); err != nil || config.SettingsFile != "/settings.yaml" {
		t.Errorf("%+v, %v", config, err)
	}
	t.Setenv("WEIR_SETTINGS_FILE", "/other.yaml")
	if config, _, err := parse(); err != nil || config.SettingsFile != "/other.yaml" {
		t.Errorf("%+v, %v", config, err)
	}
}

// All that a document sets reaches decisions: tuning of the region, mode, outage policy, shadow, candidates, durations.
func TestAllOfASettingsFileIsInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.yaml")
	fleet, eu := tuning.Default(), tuning.Default()
	fleet.Floor, eu.Floor = 0.2, 0.3
	export(t, path, settings.Document{
		Tuning: &fleet, RegionTuning: map[string]tuning.Tuning{"eu": eu},
		Namespaces: []settings.Namespace{
			{Workspace: "acme", Namespace: "try", Mode: "exact", Outage: "closed", NodeShare: "wait", Shadow: true},
			{Workspace: "acme", Namespace: "ai", Mode: "estimate", Outage: "local", NodeShare: "flush", Estimate: `{"preset":"posthog"}`},
		},
		Overrides: []settings.Override{{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 8, DurationMs: 2_000, Candidate: 1}},
	})
	f, err := openSettingsFile(path)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.drive(t.Context(), limiter); err != nil {
		t.Fatal(err)
	}
	ask := func(namespace string, cost int64) dataplane.Decision {
		return limiter.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: namespace, Identifier: "k", Limit: 10, Duration: time.Hour, Cost: cost})
	}
	if d := ask("try", 11); !d.Allowed || !d.Shadowed {
		t.Errorf("shadow: %+v", d)
	}
	if d := ask("api", 2); d.Limit != 8 || d.Duration != 2*time.Second || !d.CandidateDenied {
		t.Errorf("override: %+v", d)
	}
	if d := ask("ai", 10); d.Allowed {
		t.Errorf("the preset denies what reaches the limit: %+v", d)
	}
	if floor := limiter.RelayTuning().Floor; floor != 0.3 {
		t.Errorf("the region's floor is %v", floor)
	}
	rows, err := f.Settings(t.Context(), "us")
	if err != nil || rows.Namespaces[1].Outage != "closed" || rows.Namespaces[1].NodeShare != "wait" || !strings.Contains(string(rows.TuningDocument), `"floor":0.2`) {
		t.Errorf("%+v, %v", rows, err)
	}

	export(t, path, settings.Document{})
	if changed, err := f.Check(); !changed || err != nil {
		t.Errorf("changed %v, %v", changed, err)
	}
	if floor := limiter.RelayTuning().Floor; floor != tuning.Default().Floor {
		t.Errorf("without tuning the floor is %v", floor)
	}
	if d := ask("try", 11); d.Allowed {
		t.Errorf("without settings: %+v", d)
	}
}
