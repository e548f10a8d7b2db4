package planted

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A change that moves code away from a patch fails here at once, and not only when somebody hunts for the bug.
func TestEachPlantedBugFits(t *testing.T) {
	const module = "../../.."
	bugs, err := Read(filepath.Join(module, "dataplane", "hunt", "planted"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range bugs {
		source, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(bug.File)))
		if err != nil {
			t.Errorf("%s: %v", bug.Name, err)
			continue
		}
		if _, err := bug.Apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}

// A patch can also be applied by hand.
func TestGitAcceptsEachPlantedBug(t *testing.T) {
	const module = "../../.."
	patches, err := filepath.Glob(filepath.Join(module, "dataplane", "hunt", "planted", "*.patch"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("%d patches: %v", len(patches), err)
	}
	for _, patch := range patches {
		name, err := filepath.Rel(module, patch)
		if err != nil {
			t.Fatal(err)
		}
		git := exec.CommandContext(t.Context(), "git", "apply", "--check", name)
		git.Dir = module
		if text, err := git.CombinedOutput(); err != nil {
			t.Errorf("git apply --check %s: %v\n%s", name, err, text)
		}
	}
}

func TestAPatchThatDoesNotFitIsRefused(t *testing.T) {
	for text, words := range map[string]string{
		"no diff\n":                                     "no line says --- a/FILE",
		"what\n--- a/x.go\n+++ b/x.go\n":                "no hunk",
		"what\n--- a/x.go\n+++ b/x.go\n@@\nodd\n":       "belongs to no hunk",
		"what\n--- a/x.go\n+++ b/x.go\n@@\n-gone\n+b\n": "0 places",
		"what\n--- a/x.go\n+++ b/x.go\n@@\n-a\n+b\n":    "2 places",
	} {
		p, err := Parse(text)
		if err == nil {
			_, err = p.Apply("a\nb\na\n")
		}
		if !errors.Is(err, ErrPatch) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}

func TestAPatchReplacesWholeLines(t *testing.T) {
	p, err := Parse("what\n--- a/x.go\n+++ b/x.go\n@@ -7,2 +7,2 @@\n a\n-b\n+c\n")
	if err != nil || p.File != "x.go" || p.What != "what" {
		t.Fatalf("%+v, %v", p, err)
	}
	if got, err := p.Apply("ba\nb\na\nb\nd\n"); err != nil || got != "ba\nb\na\nc\nd\n" {
		t.Errorf("%q, %v", got, err)
	}
}
