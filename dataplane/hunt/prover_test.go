package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func plantedBugs(t *testing.T) []planted {
	t.Helper()
	bugs, err := readPlanted("planted")
	if err != nil {
		t.Fatal(err)
	}
	return bugs
}

// It says at once what a change elsewhere has moved away from a patch.
func TestEachPlantedBugFits(t *testing.T) {
	for _, bug := range plantedBugs(t) {
		source, err := os.ReadFile(filepath.Join("../..", bug.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := bug.apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}

func TestEachPlantedBugCompiles(t *testing.T) {
	for _, bug := range plantedBugs(t) {
		overlay, err := bug.overlay("../..", t.TempDir())
		if err != nil {
			t.Error(err)
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "./"+path.Dir(bug.file))
		cmd.Dir = "../.."
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", bug.name, err, text)
		}
	}
}

// quick are planted bugs that the first seeds show. make hunt-proof hunts for all.
var quick = []string{"01-others-not-settled", "02-denied-is-counted"}

func TestAHuntFindsPlantedBugs(t *testing.T) {
	bugs := slices.DeleteFunc(plantedBugs(t), func(p planted) bool { return !slices.Contains(quick, p.name) })
	if len(bugs) != len(quick) {
		t.Fatalf("%d of %v", len(bugs), quick)
	}
	var out bytes.Buffer
	p := prover{module: "../..", out: &out, from: 1, seeds: 60}
	if err := p.run(t.Context(), bugs, 2); err != nil {
		t.Errorf("%v:\n%s", err, out.Bytes())
	}
	t.Log(out.String())
}

// A patch that changes a comment plants no bug.
func TestAPlantedBugThatIsNotFoundIsAnError(t *testing.T) {
	bug := planted{
		name: "harmless", file: "dataplane/sim/hunt/guest/main.go",
		hunks: []hunk{{"package main\n", "package main // as it is\n"}},
	}
	var out bytes.Buffer
	p := prover{module: "../..", out: &out, from: 1, seeds: 1}
	if err := p.run(t.Context(), []planted{bug}, 1); !errors.Is(err, errMissed) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "NOT FOUND") || !strings.Contains(out.String(), "0 of 1 planted bugs found") {
		t.Error(out.String())
	}
}

func TestAPatchThatDoesNotFitIsRefused(t *testing.T) {
	for text, words := range map[string]string{
		"no diff\n":                                     "no line says --- a/FILE",
		"what\n--- a/x.go\n+++ b/x.go\n":                "no hunk",
		"what\n--- a/x.go\n+++ b/x.go\n@@\nodd\n":       "none of a hunk",
		"what\n--- a/x.go\n+++ b/x.go\n@@\n-gone\n+b\n": "0 places",
		"what\n--- a/x.go\n+++ b/x.go\n@@\n-a\n+b\n":    "2 places",
	} {
		p, err := parsePlanted(text)
		if err == nil {
			_, err = p.apply("a\nb\na\n")
		}
		if !errors.Is(err, errPatch) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}

func TestAPatchReplacesWholeLines(t *testing.T) {
	p, err := parsePlanted("what\n--- a/x.go\n+++ b/x.go\n@@ -7,2 +7,2 @@\n a\n-b\n+c\n")
	if err != nil || p.file != "x.go" || p.what != "what" {
		t.Fatalf("%+v, %v", p, err)
	}
	if got, err := p.apply("ba\nb\na\nb\nd\n"); err != nil || got != "ba\nb\na\nc\nd\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAPlantedBugThatNeverEndsIsFound(t *testing.T) {
	bug := planted{
		name: "endless", file: "dataplane/sim/hunt/guest/main.go",
		hunks: []hunk{{"func main() {\n", "func main() {\n\tfor {\n\t}\n"}},
	}
	var out bytes.Buffer
	p := prover{module: "../..", out: &out, from: 1, seeds: 1, within: time.Second}
	if err := p.run(t.Context(), []planted{bug}, 1); err != nil || !strings.Contains(out.String(), "breaks ends") {
		t.Errorf("%v:\n%s", err, out.Bytes())
	}
}

func TestTheReadmeListsEachPlantedBug(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	bugs := plantedBugs(t)
	for _, bug := range bugs {
		if strings.Count(string(text), "\n| "+bug.what+" | ") != 1 {
			t.Errorf("no row, or more than one, is of %s: %s", bug.name, bug.what)
		}
	}
	if want := fmt.Sprintf("has %d bugs", len(bugs)); !strings.Contains(string(text), want) {
		t.Errorf("README.md does not say that it %s", want)
	}
	root, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("hunts for %d planted bugs", len(bugs)); !strings.Contains(string(root), want) {
		t.Errorf("the module's README.md does not say that make hunt-proof %s", want)
	}
}
