package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/shared/settings/document"
)

const empty = "kind: weir-settings\nversion: 1\n"

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The documents in a directory count as one document: apply shows a common diff, and --prune deletes settings that are
// in none of them.
func TestApplyADirectory(t *testing.T) {
	w, d := newDrawerWorld(t)
	if code := w.run(t, "apply", "-f", path(t, filled), "--reason", "first"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	dir := tree(t, map[string]string{
		"acme/api.yaml":      empty + "overrides: [{workspace: acme, namespace: api, pattern: 'user_*', limit: 50, duration_ms: 60000}]\n",
		"acme/api.yaml.orig": "not: this",
		".git/config.yaml":   "not: this",
		"acme/.swp.yaml":     "not: this",
		"beta.json":          `{"kind":"weir-settings","version":1,"overrides":[{"workspace":"beta","namespace":"web","pattern":"bot","limit":1}]}`,
		"README.md":          "not this",
	})
	const both = "~ override acme/api/user_*: limit 100 -> 50, candidate 60 -> 0, shadow true -> false\n" +
		"+ override beta/web/bot: limit 1, window of the request\n"
	w.want(t, w.run(t, "apply", "-f", dir, "--dry-run"), exitOK,
		both+"3 settings not in the document stay as they are; --prune deletes them\n2 changes to make; --dry-run changes nothing\n")
	if code := w.run(t, "apply", "-f", dir, "--prune", "--yes", "--reason", "all"); code != exitOK || len(d.overrides) != 2 {
		t.Errorf("exit %d, %+v\n%s", code, d.overrides, w.stderr.String())
	}
	w.want(t, w.run(t, "apply", "-f", dir, "--prune", "--reason", "again"), exitOK, "nothing to change\n")
}

// Errors name the file. A directory without documents is an error, so that it does not prune everything.
func TestApplyRefusesADirectory(t *testing.T) {
	one := empty + "overrides: [{workspace: acme, namespace: api, pattern: u, limit: 1}]\n"
	big := "#" + strings.Repeat(" ", document.BytesMax*2/3) + "\n" + empty
	many := map[string]string{}
	for i := range plan.DocumentsMax + 1 {
		many[fmt.Sprintf("%04d.yaml", i)] = empty
	}
	for name, tc := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"none":     {map[string]string{"a.txt": one}, []string{"it holds no document (.yaml, .yml, .json)"}},
		"a fault":  {map[string]string{"a.yaml": one, "b/c.yml": one + "x: 1\n"}, []string{"b/c.yml: ", "x is not a known field"}},
		"twice":    {map[string]string{"a.yaml": one, "b.yaml": one}, []string{`/b.yaml: override "u" of namespace "api" of workspace "acme" is in `, "/a.yaml, too"}},
		"too long": {map[string]string{"a.yaml": big, "b.yaml": big}, []string{"b.yaml: the documents together are longer than 16777216 bytes"}},
		"too many": {many, []string{"it holds more than 1000 documents"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newDrawerWorld(t)
			code := w.run(t, "apply", "-f", tree(t, tc.files), "--prune", "--yes", "--reason", "x")
			for _, says := range tc.says {
				if code != exitUsage || len(d.audit) > 0 || !strings.Contains(w.stderr.String(), says) {
					t.Errorf("exit %d, no %q in %.500s", code, says, w.stderr.String())
				}
			}
		})
	}
}
