package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// "go get" of an adapter resolves: each requires a version of Weir that a release has.
func TestPublishedModulesCanBeGot(t *testing.T) {
	tags, err := tagsHere(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkModules(t.Context(), "../..", tags); err != nil {
		t.Error(err)
	}
}

// A module that the public cannot get is rejected, with its file and the reason.
func TestModulesThatNobodyCouldGetAreRefused(t *testing.T) {
	const module = "module github.com/weirhq/weir/dataplane/adapters/x\n\ngo 1.26.0\n\nreplace github.com/weirhq/weir => ../../..\n\nrequire github.com/weirhq/weir v0.3.0\n"
	tagged := []string{"latest", "v0.3.0", "dataplane/adapters/x/v0.3.0"}
	for name, step := range map[string]struct {
		change [2]string
		tags   []string
		want   string // empty: it is fine
	}{
		"no release":                     {tags: nil},
		"a release with all of its tags": {tags: tagged},
		"a release without its tag":      {tags: tagged[:2], want: "tag dataplane/adapters/x/v0.3.0 is missing"},
		"another release":                {tags: []string{"v0.4.0"}, want: "dataplane/adapters/x/go.mod: requires github.com/weirhq/weir v0.3.0, want v0.4.0"},
		"v0.0.0":                         {change: [2]string{"v0.3.0", "v0.0.0"}, want: `requires github.com/weirhq/weir "v0.0.0", want a released version`},
		"a pseudo-version of nothing":    {change: [2]string{"v0.3.0", "v0.0.0-00010101000000-000000000000"}, want: "want a released version"},
		"no requirement":                 {change: [2]string{"require github.com/weirhq/weir v0.3.0", ""}, want: `requires github.com/weirhq/weir ""`},
		"another module's name":          {change: [2]string{"adapters/x", "adapters/y"}, want: "module is github.com/weirhq/weir/dataplane/adapters/y, want"},
		"another replacement":            {change: [2]string{"replace github.com/weirhq/weir", "replace example.com/x"}, want: "example.com/x is replaced"},
		"no module file":                 {change: [2]string{module, "modul"}, want: "dataplane/adapters/x/go.mod"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "dataplane", "adapters", "x")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := module
		if step.change[0] != "" {
			text = strings.Replace(text, step.change[0], step.change[1], 1)
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkModules(t.Context(), root, step.tags)
		if (err != nil) != (step.want != "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: %v, want %q", name, err, step.want)
		}
	}
	if err := checkModules(t.Context(), t.TempDir(), nil); err == nil {
		t.Error("a repository without published modules passes")
	}
}
