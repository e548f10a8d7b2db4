package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/planted"
)

func plantedBugs(t *testing.T) []planted.Bug {
	t.Helper()
	bugs, err := planted.Read("planted")
	if err != nil {
		t.Fatal(err)
	}
	return bugs
}

func TestEachPlantedBugCompiles(t *testing.T) {
	for _, bug := range plantedBugs(t) {
		t.Run(bug.Name, func(t *testing.T) {
			t.Parallel()
			overlay, err := bug.Overlay("../..", t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "./"+path.Dir(bug.File))
			cmd.Dir = "../.."
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

// quick are planted bugs that the first seeds show. make hunt-proof hunts for all.
var quick = []string{"01-others-not-settled", "02-denied-is-counted"}

func TestAHuntFindsPlantedBugs(t *testing.T) {
	bugs := slices.DeleteFunc(plantedBugs(t), func(p planted.Bug) bool { return !slices.Contains(quick, p.Name) })
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
	bug := planted.Bug{
		Name: "harmless", File: "dataplane/sim/hunt/guest/main.go",
		Hunks: []planted.Hunk{{Before: "package main\n", After: "package main // as it is\n"}},
	}
	var out bytes.Buffer
	p := prover{module: "../..", out: &out, from: 1, seeds: 1}
	if err := p.run(t.Context(), []planted.Bug{bug}, 1); !errors.Is(err, errMissed) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "NOT FOUND") || !strings.Contains(out.String(), "0 of 1 planted bugs found") {
		t.Error(out.String())
	}
}

func TestAPlantedBugThatNeverEndsIsFound(t *testing.T) {
	bug := planted.Bug{
		Name: "endless", File: "dataplane/sim/hunt/guest/main.go",
		Hunks: []planted.Hunk{{Before: "func main() {\n", After: "func main() {\n\tfor {\n\t}\n"}},
	}
	var out bytes.Buffer
	p := prover{module: "../..", out: &out, from: 1, seeds: 1, within: time.Second}
	if err := p.run(t.Context(), []planted.Bug{bug}, 1); err != nil || !strings.Contains(out.String(), "breaks ends") {
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
		if strings.Count(string(text), "\n| "+bug.What+" | ") != 1 {
			t.Errorf("no row, or more than one, is of %s: %s", bug.Name, bug.What)
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
