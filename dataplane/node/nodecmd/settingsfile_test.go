package nodecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/document"
)

// export puts a document into a file, as operators do.
func export(t *testing.T, path string, d settings.Document) {
	t.Helper()
	text, err := document.YAML(&d)
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

// A node without MySQL and Redis uses the file's settings from its first request on, and applies changes of the file.
// An invalid file is logged and counted, and changes nothing.
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
	c.endWell(t)
}

// The document that the README shows is valid, and its override blocks the caller that it names.
func TestTheREADMEsSettings(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "    kind: weir-settings\n")
	text, _, whole := strings.Cut(rest, "\n\n")
	if !found || !whole {
		t.Fatal("the README has no document of settings")
	}
	path := filepath.Join(t.TempDir(), "settings.yaml")
	document := "kind: weir-settings\n" + strings.ReplaceAll("\n"+text, "\n    ", "\n")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	c := begin(t, "--settings-file="+path)
	if got := c.ask(t, "abuser", 1); got.Allowed || got.Limit != 0 {
		t.Errorf("abuser gets %v, want a denial by the limit 0", got)
	}
	if got := c.ask(t, "user_1", 1); !got.Allowed || got.Limit != 100 || got.Override != "user_*" {
		t.Errorf("user_1 gets %v, want the limit of the pattern user_*", got)
	}
	c.end()
}

// A node does not start with a file at fault.
func TestASettingsFileAtFaultIsAnErrorAtStart(t *testing.T) {
	for content, want := range map[string]string{
		"":                                      ": settings document: it is empty",
		"kind: weir-settings\nversion: 1\nx: 1": ": settings document: line 3: x is not a known field",
	} {
		path := file(t, content)
		want = "settings-file: " + path + want
		var stdout, stderr await.Log
		if code := Main(t.Context(), []string{"--listen=127.0.0.1:0", "--settings-file=" + path}, &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, %s", code, &stderr)
		}
	}
	var stdout, stderr await.Log
	if code := Main(t.Context(), []string{"--settings-file=/no/such/file"}, &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "settings-file: stat /no/such/file") {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

// Settings must have a single source.
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
